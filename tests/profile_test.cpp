// Hardware profiles: the shipped ones, files, --emulate-links, and the refusal of everything else.
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "runtime/comm/observe/profile_file.h"
#include "runtime/core/error.h"
#include "tests/harness.h"
#include "tests/refusal.h"

namespace sixfold::comm {
namespace {

using test::expect_mentions;
using test::refusal;

const std::string kGood = R"({"name": "mine", "intra": {"alpha_us": 2, "gb_per_s": 300},
  "inter": {"alpha_us": 5.5, "gb_per_s": 25, "source": "a guess"}, "num_rails": 2, "reduce_gb_per_s": 500})";

/// kGood with `from` replaced by `to`.
std::string altered(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  if (at == std::string::npos) ADD_FAILURE() << from << " is not in the text";
  return text.replace(at, from.size(), to);
}

TEST(Profile, ShippedOnesHoldTheRatesOfTheDatasheetsPerDirection) {
  EXPECT_EQ(builtin_profile_names(), (std::vector<std::string>{"a100-hdr", "h100-ndr", "host"}));
  const Profile a100 = load_profile("a100-hdr"), h100 = load_profile("h100-ndr");
  EXPECT_DOUBLE_EQ(a100.intra.bytes_per_s, 300e9);
  EXPECT_DOUBLE_EQ(a100.inter.bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(h100.intra.bytes_per_s, 450e9);
  EXPECT_DOUBLE_EQ(h100.inter.bytes_per_s, 50e9);
  for (const std::string& name : builtin_profile_names()) {
    const Profile profile = load_profile(name);
    EXPECT_EQ(profile.name, name);
    EXPECT_NO_THROW(check_profile(profile));
    EXPECT_GT(profile.inter.alpha_s, profile.intra.alpha_s) << name;
    EXPECT_LT(profile.inter.alpha_s, 1e-3) << name;
  }
}

TEST(Profile, ReadsUnits) {
  const Profile profile = parse_profile(kGood, "test");
  EXPECT_EQ(profile.name, "mine");
  EXPECT_DOUBLE_EQ(profile.intra.alpha_s, 2e-6);
  EXPECT_DOUBLE_EQ(profile.inter.alpha_s, 5.5e-6);
  EXPECT_DOUBLE_EQ(profile.inter.bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(profile.reduce_bytes_per_s, 500e9);
  EXPECT_EQ(profile.copy_bytes_per_s, 0);
  EXPECT_EQ(profile.num_rails, 2);
  EXPECT_DOUBLE_EQ(parse_profile(altered("\"num_rails\"", "\"copy_gb_per_s\": 7, \"num_rails\""), "").copy_bytes_per_s,
                   7e9);
  EXPECT_EQ(profile.matmul_flops, 0);
  EXPECT_DOUBLE_EQ(parse_profile(altered("\"num_rails\"", "\"matmul_tflops\": 3, \"num_rails\""), "").matmul_flops,
                   3e12);
}

TEST(Profile, RefusesFilesThatAreNotRight) {
  struct Case {
    std::string text, mentions;
  };
  const Case cases[] = {
      {"", "JSON"},
      {"{", "JSON"},
      {"[]", "must be an object"},
      {"7", "must be an object"},
      {altered("\"name\": \"mine\",", ""), "'name' is missing"},
      {altered("\"mine\"", "3"), "'name' is 3"},
      {altered("\"alpha_us\": 2, ", ""), "'intra': 'alpha_us' is missing"},
      {altered("\"intra\": {\"alpha_us\": 2, \"gb_per_s\": 300},", ""), "'intra' is missing"},
      {altered("{\"alpha_us\": 2, \"gb_per_s\": 300}", "300"), "'intra': must be an object"},
      {altered(": 300", ": -300"), "'gb_per_s' is -300"},
      {altered(": 300", ": 0"), "'gb_per_s' is 0"},
      {altered(": 300", ": \"300\""), "'gb_per_s' is \"300\""},
      {altered(": 300", ": null"), "'gb_per_s' is null"},
      {altered(": 300", ": NaN"), "JSON"},
      {altered(": 300", ": 1e999"), "JSON"},
      {altered(": 5.5", ": -1"), "'alpha_us' is -1"},
      {altered("\"num_rails\": 2", "\"num_rails\": 0"), "'num_rails' is 0"},
      {altered("\"num_rails\": 2", "\"num_rails\": 1.5"), "'num_rails' is 1.5"},
      {altered("\"num_rails\": 2", "\"num_rails\": 99999999999999999999"), "'num_rails' is"},
      {altered("\"num_rails\": 2", "\"num_rails\": 4294967297"), "'num_rails' is"},
      {altered("\"num_rails\": 2, ", ""), "'num_rails' is missing"},
      {altered(": 500", ": 0"), "'reduce_gb_per_s' is 0"},
      {altered("\"num_rails\"", "\"rails\": 1, \"num_rails\""), "'rails' is not a key; allowed are"},
      {altered("\"gb_per_s\": 300", "\"gb_per_s\": 300, \"gbps\": 1"), "'gbps' is not a key"},
      {altered("\"gb_per_s\": 300", "\"gb_per_s\": 300, \"gb_per_s\": 1"), "'gb_per_s' is given twice"},
      {kGood + "x", "JSON"},
  };
  for (const Case& c : cases) {
    const std::string text = refusal([&] { parse_profile(c.text, "--profile f.json"); });
    expect_mentions(text, {"--profile f.json", c.mentions});
  }
}

TEST(Profile, NamesAndFiles) {
  expect_mentions(refusal([] { load_profile("b200"); }), {"--profile b200", "a100-hdr, h100-ndr, host", ".json"});
  expect_mentions(refusal([] { load_profile(""); }), {"--profile", "a100-hdr"});
  expect_mentions(refusal([] { load_profile("absent.json"); }), {"--profile absent.json", "cannot read"});
  expect_mentions(refusal([] { load_profile("./a100-hdr"); }), {"--profile ./a100-hdr", "cannot read"});
  expect_mentions(refusal([] { load_profile("/"); }), {"--profile /", "no regular file"});

  const std::string path = testing::TempDir() + "profile_test." + std::to_string(getpid()) + ".json";
  std::ofstream(path) << kGood;
  EXPECT_EQ(load_profile(path).name, "mine");
  std::ofstream(path) << "{}";
  expect_mentions(refusal([&] { load_profile(path); }), {"--profile " + path, "'name' is missing"});
  unlink(path.c_str());
}

TEST(EmulatedLinks, AreRatesTimesScale) {
  Profile base;
  base.name = "base";
  base.intra = {1e-6, 1};
  base.inter = {2e-6, 1};
  base.reduce_bytes_per_s = 7e9;
  base.num_rails = 3;
  const Profile profile = parse_emulated_links("intra=300,inter=25,scale=0.001", base);
  EXPECT_DOUBLE_EQ(profile.intra.bytes_per_s, 0.3e9);
  EXPECT_DOUBLE_EQ(profile.inter.bytes_per_s, 0.025e9);
  EXPECT_EQ(profile.intra.alpha_s, 1e-6);
  EXPECT_EQ(profile.inter.alpha_s, 2e-6);
  EXPECT_EQ(profile.reduce_bytes_per_s, 7e9);
  EXPECT_EQ(profile.num_rails, 3);
  EXPECT_DOUBLE_EQ(parse_emulated_links("inter=2.5,intra=1e1", base).inter.bytes_per_s, 2.5e9);
  EXPECT_DOUBLE_EQ(parse_emulated_links("scale=2,inter=2.5,intra=1e1", base).intra.bytes_per_s, 20e9);
}

TEST(EmulatedLinks, RefuseEverythingElse) {
  const Profile base = load_profile("host");
  for (const char* text : {"",
                           ",",
                           "intra",
                           "intra=300",
                           "inter=25",
                           "intra=300,inter=25,",
                           "intra=300,,inter=25",
                           "intra=300 ,inter=25",
                           "intra=300,inter=25,scale=",
                           "intra=0,inter=25",
                           "intra=-1,inter=25",
                           "intra=nan,inter=25",
                           "intra=inf,inter=25",
                           "intra=300,inter=25GB",
                           "intra=300,intra=300,inter=25",
                           "intra=300,inter=25,latency=1",
                           "intra=1e999,inter=25",
                           "intra=300,inter=25,scale=1e-400",
                           "intra=1e300,inter=25,scale=1e300",
                           "intra=300;inter=25",
                           "INTRA=300,inter=25",
                           "intra==300,inter=25",
                           "intra=+300,inter=25",
                           "intra=0x10,inter=25"}) {
    expect_mentions(refusal([&] { parse_emulated_links(text, base); }),
                    {"--emulate-links " + std::string(text), "intra=GBPS,inter=GBPS[,scale=FACTOR]"});
  }
}

TEST(Profile, ChecksRefuseWhatCannotBeAMachine) {
  const Profile good = load_profile("a100-hdr");
  const auto broken = [&](auto&& change) {
    Profile profile = good;
    change(profile);
    EXPECT_THROW(check_profile(profile), CheckError);
  };
  broken([](Profile& p) { p.intra.alpha_s = -1; });
  broken([](Profile& p) { p.inter.bytes_per_s = 0; });
  broken([](Profile& p) { p.inter.bytes_per_s = std::nan(""); });
  broken([](Profile& p) { p.reduce_bytes_per_s = INFINITY; });
  broken([](Profile& p) { p.copy_bytes_per_s = -1; });
  broken([](Profile& p) { p.matmul_flops = -1; });
  broken([](Profile& p) { p.num_rails = 0; });
}

}  // namespace
}  // namespace sixfold::comm
