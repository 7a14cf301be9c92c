#include "runtime/comm/observe/tune_file.h"

#include <filesystem>
#include <fstream>

#include "runtime/comm/observe/strict_json.h"
#include "runtime/core/error.h"

namespace sixfold::comm {

namespace {

constexpr int64_t kMaxRanks = 1 << 24;

int read_number(ObjectReader& reader, const std::string& key) {
  const int64_t value = reader.whole(key, 1);
  if (value > kMaxRanks) reader.refuse(key, "is " + std::to_string(value) + "; at most " + std::to_string(kMaxRanks));
  return static_cast<int>(value);
}

/// What `parse` makes of a name; a name that it does not know is an error of this file.
template <typename Parse>
auto read_name(ObjectReader& reader, const std::string& key, const Parse& parse) {
  const std::string name = reader.text(key);
  try {
    return parse(name);
  } catch (const ConfigError& error) {
    reader.refuse(key, std::string("is not known: ") + error.what());
  }
}

SelectRow read_row(const nlohmann::json& json, const std::string& where) {
  ObjectReader reader(json, where);
  SelectRow row;
  row.primitive = read_name(reader, "primitive", parse_primitive);
  row.num_ranks = read_number(reader, "ranks");
  row.num_nodes = read_number(reader, "nodes");
  if (row.num_nodes > row.num_ranks) reader.refuse("nodes", "is more than 'ranks'");
  if (reader.has("up_to_bytes")) row.up_to_bytes = static_cast<size_t>(reader.whole("up_to_bytes", 0));
  row.algorithm = read_name(reader, "algorithm", parse_algorithm);
  if (find_builder(row.primitive, row.algorithm) == nullptr) {
    std::string allowed;
    for (Algorithm algorithm : algorithms_of(row.primitive)) {
      allowed += (allowed.empty() ? "" : ", ") + std::string(algorithm_name(algorithm));
    }
    reader.refuse("algorithm", "is " + std::string(algorithm_name(row.algorithm)) + "; allowed for " +
                                   std::string(primitive_name(row.primitive)) + " are " + allowed);
  }
  reader.expect_nothing_else();
  return row;
}

}  // namespace

SelectTable parse_tune_table(std::string_view text, const std::string& where) {
  const nlohmann::json json = parse_json(text, where);
  ObjectReader reader(json, where);
  SelectTable table;
  for (const nlohmann::json& row : reader.array("rows")) {
    table.rows.push_back(read_row(row, where + ": row " + std::to_string(table.rows.size())));
  }
  reader.expect_nothing_else();
  try {
    check_select_table(table);
  } catch (const CheckError& error) {
    throw ConfigError(where +
                      ": rows of one primitive, 'ranks' and 'nodes' must stand together in ascending order of "
                      "'up_to_bytes', the last of them without it: " +
                      error.what());
  }
  return table;
}

std::string tune_table_text(const SelectTable& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const SelectRow& row : table.rows) {
    nlohmann::ordered_json json = {
        {"primitive", primitive_name(row.primitive)}, {"ranks", row.num_ranks}, {"nodes", row.num_nodes}};
    if (row.up_to_bytes != kAnyBytes) json["up_to_bytes"] = row.up_to_bytes;
    json["algorithm"] = algorithm_name(row.algorithm);
    rows.push_back(json);
  }
  return nlohmann::ordered_json{{"rows", rows}}.dump(1) + "\n";
}

SelectTable read_tune_file(const std::string& path) {
  const std::string where = "--tune-file " + path;
  return parse_tune_table(read_text_file(path, where), where);
}

void write_tune_file(const std::string& path, const SelectTable& table) {
  check_select_table(table);
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << tune_table_text(table);
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(unfinished, path, failed);
  if (!file || failed) throw ConfigError("--tune-file " + path + ": cannot write the file");
}

}  // namespace sixfold::comm
