// Which algorithm runs: the rule, tables from the cost model, tables from files.
#include "runtime/comm/schedule/select.h"

#include <unistd.h>

#include <fstream>

#include "runtime/comm/observe/profile_file.h"
#include "runtime/comm/observe/tune_file.h"
#include "runtime/comm/schedule/closed_form.h"
#include "runtime/comm/schedule/tune.h"
#include "tests/harness.h"
#include "tests/refusal.h"

namespace sixfold::comm {
namespace {

constexpr size_t kKi = 1024, kMi = kKi * kKi;

SelectRow row(Primitive primitive, int num_ranks, int num_nodes, size_t up_to_bytes, Algorithm algorithm) {
  SelectRow r;
  r.primitive = primitive;
  r.num_ranks = num_ranks;
  r.num_nodes = num_nodes;
  r.up_to_bytes = up_to_bytes;
  r.algorithm = algorithm;
  return r;
}

using test::refusal;

// ---- The rule ------------------------------------------------------------------------------------------------------

struct RuleCase {
  Primitive primitive;
  size_t bytes;
  int size;
  Algorithm algorithm, deterministic;
};
const RuleCase kRule[] = {
    {Primitive::AllReduce, 1, 2, Algorithm::Direct, Algorithm::Direct},
    {Primitive::AllReduce, 64 * kMi, 8, Algorithm::Direct, Algorithm::Direct},
    {Primitive::AllReduce, 64 * kKi, 9, Algorithm::Tree, Algorithm::Direct},
    {Primitive::AllReduce, 64 * kKi + 1, 9, Algorithm::Ring, Algorithm::Direct},
    {Primitive::Broadcast, 64 * kKi, 2, Algorithm::Tree, Algorithm::Direct},
    {Primitive::Broadcast, 64 * kKi + 1, 2, Algorithm::Ring, Algorithm::Direct},
    {Primitive::Reduce, 64 * kKi, 64, Algorithm::Tree, Algorithm::Direct},
    {Primitive::Reduce, 64 * kKi + 1, 64, Algorithm::Ring, Algorithm::Direct},
    {Primitive::AllGather, 1, 8, Algorithm::Direct, Algorithm::Direct},
    {Primitive::AllGather, 1, 9, Algorithm::Ring, Algorithm::Direct},
    {Primitive::ReduceScatter, kMi, 8, Algorithm::Direct, Algorithm::Direct},
    {Primitive::ReduceScatter, kMi, 16, Algorithm::Ring, Algorithm::Direct},
    {Primitive::AllToAll, 1, 2, Algorithm::Pairwise, Algorithm::Pairwise},
    {Primitive::AllToAll, kMi, 64, Algorithm::Pairwise, Algorithm::Pairwise},
};

TEST(Select, RuleForOneHost) {
  for (const RuleCase& c : kRule) {
    const Topology topology = Topology::one_node(c.size);
    const SelectTable as_table = default_select_table(topology);
    check_select_table(as_table);
    EXPECT_EQ(select(c.primitive, c.bytes, c.size, false), c.algorithm) << primitive_name(c.primitive) << c.bytes;
    EXPECT_EQ(select(c.primitive, c.bytes, c.size, true), c.deterministic) << primitive_name(c.primitive) << c.bytes;
    for (const SelectTable& table : {as_table, SelectTable{}}) {
      EXPECT_EQ(select(c.primitive, c.bytes, topology, false, table), c.algorithm) << primitive_name(c.primitive);
      EXPECT_EQ(select(c.primitive, c.bytes, topology, true, table), c.deterministic) << primitive_name(c.primitive);
    }
  }
}

// ---- Tables --------------------------------------------------------------------------------------------------------

TEST(Select, TableDecidesForItsGroups) {
  const SelectTable table{{row(Primitive::AllReduce, 4, 2, 1000, Algorithm::Tree),
                           row(Primitive::AllReduce, 4, 2, 2000, Algorithm::Direct),
                           row(Primitive::AllReduce, 4, 2, kAnyBytes, Algorithm::Ring),
                           row(Primitive::AllReduce, 4, 1, kAnyBytes, Algorithm::Tree)}};
  check_select_table(table);
  const auto choice = [&](size_t bytes, const Topology& topology, bool deterministic = false) {
    return select(Primitive::AllReduce, bytes, topology, deterministic, table);
  };
  const Topology two_nodes = Topology::parse("2x2", 4);
  EXPECT_EQ(choice(0, two_nodes), Algorithm::Tree);
  EXPECT_EQ(choice(1000, two_nodes), Algorithm::Tree);
  EXPECT_EQ(choice(1001, two_nodes), Algorithm::Direct);
  EXPECT_EQ(choice(2001, two_nodes), Algorithm::Ring);
  EXPECT_EQ(choice(2001, Topology::one_node(4)), Algorithm::Tree);
  EXPECT_EQ(choice(1000, two_nodes, true), Algorithm::Direct);
  // Left to the rule: other groups, other primitives.
  EXPECT_EQ(choice(1000, Topology::parse("4x1", 4)), Algorithm::Direct);
  EXPECT_EQ(select(Primitive::Broadcast, 1, two_nodes, false, table), Algorithm::Tree);
}

TEST(Select, ChecksTables) {
  const auto refuses = [](const std::vector<SelectRow>& rows) {
    EXPECT_THROW(check_select_table(SelectTable{rows}), CheckError);
  };
  const SelectRow last = row(Primitive::AllReduce, 4, 1, kAnyBytes, Algorithm::Ring);
  const SelectRow first = row(Primitive::AllReduce, 4, 1, 10, Algorithm::Tree);
  const SelectRow other = row(Primitive::AllReduce, 8, 1, kAnyBytes, Algorithm::Ring);
  EXPECT_NO_THROW(check_select_table(SelectTable{{first, last, other}}));
  refuses({first});
  refuses({first, other});
  refuses({last, last});
  refuses({last, first});
  refuses({first, first, last});
  refuses({last, other, last});
  refuses({row(Primitive::AllGather, 4, 1, kAnyBytes, Algorithm::Tree)});
  refuses({row(Primitive::AllReduce, 4, 1, kAnyBytes, Algorithm::Auto)});
  refuses({row(Primitive::AllReduce, 4, 5, kAnyBytes, Algorithm::Ring)});
  refuses({row(Primitive::AllReduce, 4, 0, kAnyBytes, Algorithm::Ring)});
}

TEST(Select, ExplainsTables) {
  SelectTable table{{row(Primitive::AllReduce, 8, 2, 64 * kKi, Algorithm::Tree),
                     row(Primitive::AllReduce, 8, 2, kAnyBytes, Algorithm::Ring)}};
  EXPECT_EQ(explain(table),
            "all_reduce, 8 ranks on 2 nodes, up to 64 KiB: tree\n"
            "all_reduce, 8 ranks on 2 nodes, above: ring\n");
  table.rows[0].priced_bytes = 64 * kKi;
  table.rows[0].seconds = 21.44e-6;
  table.rows[0].runner_up = Algorithm::Ring;
  table.rows[0].runner_up_seconds = 58e-3;
  table.rows[1] = row(Primitive::AllToAll, 1, 1, kAnyBytes, Algorithm::Pairwise);
  table.rows[1].priced_bytes = 1500;
  table.rows[1].seconds = 1.5e-3;
  EXPECT_EQ(explain(table),
            "all_reduce, 8 ranks on 2 nodes, up to 64 KiB: tree (64 KiB: 21.4 us; ring 58.0 ms)\n"
            "all_to_all, 1 rank on 1 node, above: pairwise (1500 B: 1500.0 us)\n");
}

// ---- From the cost model -------------------------------------------------------------------------------------------

/// Of AllReduce, on one node, one slice a message: what the textbooks say, in us, for latency a and S us to carry all.
double textbook_us(Algorithm algorithm, double n, double a, double full) {
  switch (algorithm) {
    case Algorithm::Ring:
      return 2 * (n - 1) * (a + full / n);
    case Algorithm::Direct:  // one shot up to 32768 elements, sent by all to all
      return full * 1000 / 4 * n * n <= 32768 ? a + (n - 1) * full : 2 * a + 2 * (n - 1) / n * full;
    default:
      return std::numeric_limits<double>::infinity();
  }
}

TEST(Tune, AgreesWithTheTextbooks) {
  // 1 us, 1000 bytes a us, additions for nothing; slots that hold everything.
  Profile profile{.name = "test", .intra = {1e-6, 1e9}, .inter = {1e-6, 1e9}, .reduce_bytes_per_s = 1e15};
  const LinkShape links{4, size_t{1} << 30};
  const Topology topology = Topology::one_node(8);
  const SelectTable table =
      make_select_table(profile, topology, links, {Algorithm::Ring, Algorithm::Direct, Algorithm::Pairwise});
  for (size_t bytes = kSmallestPricedBytes; bytes <= kLargestPricedBytes; bytes *= 2) {
    const double full = static_cast<double>(bytes) / 1000;
    const bool ring = textbook_us(Algorithm::Ring, 8, 1, full) < textbook_us(Algorithm::Direct, 8, 1, full);
    EXPECT_EQ(select(Primitive::AllReduce, bytes, topology, false, table), ring ? Algorithm::Ring : Algorithm::Direct)
        << bytes;
    // Direct sends the whole buffer from one port; a chain passes it on.
    if (bytes >= kMi) continue;
    EXPECT_EQ(select(Primitive::Broadcast, bytes, topology, false, table), Algorithm::Direct) << bytes;
  }
  EXPECT_EQ(select(Primitive::AllToAll, 77, topology, false, table), Algorithm::Pairwise);
}

TEST(Tune, EveryRowIsTheCheapest) {
  const Profile profile = load_profile("a100-hdr");
  const LinkShape links;
  for (const char* shape : {"1x8", "2x4", "4x2", "8x1"}) {
    const Topology topology = Topology::parse(shape, 8);
    const SelectTable table = make_select_table(profile, topology, links);
    for (const SelectRow& r : table.rows) {
      EXPECT_GE(r.priced_bytes, kSmallestPricedBytes);
      EXPECT_GT(r.seconds, 0);
      if (r.runner_up != Algorithm::Auto) {
        EXPECT_LE(r.seconds, r.runner_up_seconds);
      }
    }
    for (Primitive primitive : kCollectives) {
      for (size_t bytes : {kKi, 128 * kKi}) {
        CostQuery query{primitive, Algorithm::Auto, topology.num_nodes(), topology.ranks_per_node(), bytes / 4, 4,
                        links};
        if (input_count(primitive, 1, 8) + output_count(primitive, 1, 8) > 2) query.count /= 8;
        query.algorithm = select(primitive, bytes, topology, false, table);
        const double chosen = predict_seconds(query, profile).seconds;
        for (Algorithm algorithm : algorithms_of(primitive, &topology)) {
          query.algorithm = algorithm;
          EXPECT_LE(chosen, predict_seconds(query, profile).seconds * 1.25)
              << shape << " " << primitive_name(primitive) << " " << algorithm_name(algorithm) << " " << bytes;
        }
      }
    }
  }
}

TEST(Tune, IsTheSameEveryTime) {
  const Profile profile = load_profile("h100-ndr");
  const Topology topology = Topology::parse("2x4", 8);
  const std::string first = explain(make_select_table(profile, topology, {}));
  EXPECT_EQ(explain(make_select_table(profile, topology, {})), first);
  EXPECT_NE(explain(make_select_table(profile, Topology::one_node(8), {})), first);
}

TEST(Tune, UnequalNodesAndRefusals) {
  const Profile profile = load_profile("a100-hdr");
  const Topology unequal = Topology::of_hosts({"a", "b", "a"});
  EXPECT_NO_THROW(make_select_table(profile, unequal, {}));
  EXPECT_NO_THROW(make_select_table(profile, Topology::one_node(1), {}));
  // A table for nodes of equal size may name hierarchical, which does not apply to others: the next row that does.
  const SelectTable equal{{row(Primitive::AllReduce, 4, 2, 1000, Algorithm::Hierarchical),
                           row(Primitive::AllReduce, 4, 2, kAnyBytes, Algorithm::Ring)}};
  EXPECT_EQ(select(Primitive::AllReduce, 1, Topology::parse("2x2", 4), false, equal), Algorithm::Hierarchical);
  EXPECT_EQ(select(Primitive::AllReduce, 1, Topology({0, 0, 0, 1}), false, equal), Algorithm::Ring);
  EXPECT_THROW(make_select_table(profile, unequal, {}, {Algorithm::Ring}), CheckError);  // no AllToAll
  EXPECT_THROW(make_select_table(Profile{}, unequal, {}), CheckError);
}

// ---- Files ---------------------------------------------------------------------------------------------------------

TEST(TuneFile, ComesBackAsItWas) {
  const SelectTable table = make_select_table(load_profile("a100-hdr"), Topology::parse("2x4", 8), {});
  const std::string path = testing::TempDir() + "select_test." + std::to_string(getpid()) + ".json";
  write_tune_file(path, table);
  const SelectTable read = read_tune_file(path);
  EXPECT_EQ(tune_table_text(read), tune_table_text(table));
  ASSERT_EQ(read.rows.size(), table.rows.size());
  for (size_t i = 0; i < read.rows.size(); ++i) {
    EXPECT_EQ(read.rows[i].primitive, table.rows[i].primitive);
    EXPECT_EQ(read.rows[i].num_ranks, 8);
    EXPECT_EQ(read.rows[i].num_nodes, 2);
    EXPECT_EQ(read.rows[i].up_to_bytes, table.rows[i].up_to_bytes);
    EXPECT_EQ(read.rows[i].algorithm, table.rows[i].algorithm);
  }
  unlink(path.c_str());
  EXPECT_NE(refusal([&] { read_tune_file(path); }).find("--tune-file " + path + ": cannot read"), std::string::npos);
  EXPECT_NE(refusal([&] { write_tune_file("/nowhere/x.json", table); }).find("--tune-file /nowhere/x.json"),
            std::string::npos);
}

TEST(TuneFile, RefusesWhatIsNotATable) {
  const auto rows = [](const std::string& text) { return "{\"rows\": [" + text + "]}"; };
  const std::string good = R"({"primitive": "all_reduce", "ranks": 8, "nodes": 1, "algorithm": "ring"})";
  const std::string limited =
      R"({"primitive": "all_reduce", "ranks": 8, "nodes": 1, "up_to_bytes": 99, "algorithm": "tree"})";
  EXPECT_EQ(parse_tune_table(rows(limited + "," + good), "").rows.size(), 2u);
  EXPECT_EQ(parse_tune_table(rows(""), "").rows.size(), 0u);
  const auto altered = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return rows(text.replace(text.find(from), from.size(), to));
  };
  struct Case {
    std::string text, mentions;
  };
  const Case cases[] = {
      {"", "JSON"},
      {"[]", "must be an object"},
      {"{}", "'rows' is missing"},
      {"{\"rows\": {}}", "not a list"},
      {"{\"rows\": [], \"version\": 1}", "'version' is not a key; allowed are rows"},
      {rows("3"), "row 0: must be an object"},
      {rows(good + ",{}"), "row 1: 'primitive' is missing"},
      {altered("all_reduce", "all_reduces"), "'primitive' is not known"},
      {altered("ring", "rings"), "'algorithm' is not known"},
      {altered("ring", "auto"), "allowed for all_reduce are ring"},
      {altered("ring", "pairwise"), "allowed for all_reduce are ring"},
      {altered("8", "0"), "'ranks' is 0"},
      {altered("8", "-8"), "'ranks' is -8"},
      {altered("8", "8.5"), "'ranks' is 8.5"},
      {altered("8", "\"8\""), "'ranks' is \"8\""},
      {altered("8", "4294967304"), "'ranks' is 4294967304"},
      {altered(": 1", ": 9"), "'nodes' is more than 'ranks'"},
      {altered("\"nodes\"", "\"up_to_bytes\": -1, \"nodes\""), "'up_to_bytes' is -1"},
      {altered("\"nodes\"", "\"up_to\": 1, \"nodes\""), "'up_to' is not a key"},
      {altered("\"nodes\"", "\"ranks\": 8, \"nodes\""), "'ranks' is given twice"},
      {rows(limited), "the last of them without it"},
      {rows(good + "," + limited), "ascending order"},
      {rows(good + "," + good), "ascending order"},
  };
  for (const Case& c : cases) {
    const std::string text = refusal([&] { parse_tune_table(c.text, "--tune-file t.json"); });
    EXPECT_NE(text.find("--tune-file t.json"), std::string::npos) << text;
    EXPECT_NE(text.find(c.mentions), std::string::npos) << c.mentions << " not in: " << text;
  }
}

}  // namespace
}  // namespace sixfold::comm
