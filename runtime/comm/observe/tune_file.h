// Tables of algorithms as JSON files (--tune-file), written by measurements and read by programs:
//
//   {"rows": [{"primitive": "all_reduce", "ranks": 8, "nodes": 1, "up_to_bytes": 65536, "algorithm": "tree"},
//             {"primitive": "all_reduce", "ranks": 8, "nodes": 1, "algorithm": "direct"}]}
//
// Rows of one primitive, number of ranks and number of nodes stand together in ascending order of size; the last of
// them has no up_to_bytes. Sizes are those of operation_bytes().
#pragma once

#include <string>
#include <string_view>

#include "runtime/comm/schedule/select.h"

namespace sixfold::comm {

/// Throws ConfigError that names --tune-file, the file, the row and what is wrong.
SelectTable read_tune_file(const std::string& path);
/// Replaces the file, at once. Throws ConfigError that names --tune-file and the file when it cannot be written.
void write_tune_file(const std::string& path, const SelectTable& table);

/// The same on text; errors begin with `where`.
SelectTable parse_tune_table(std::string_view text, const std::string& where);
std::string tune_table_text(const SelectTable& table);

}  // namespace sixfold::comm
