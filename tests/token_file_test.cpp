// Files of tokens, made by hand: what is read, and what is refused, at which byte.
#include "runtime/train/token_file.h"

#include <numeric>

#include "runtime/core/memory.h"
#include "runtime/train/data.h"
#include "tests/data_fixture.h"
#include "tests/refusal.h"

namespace sixfold::train {
namespace {

namespace fs = std::filesystem;
using test::little_endian;
using test::llmc_header;
using test::refusal;

constexpr int64_t kMagic = 20240520, kGpt2 = 50257;

class TokenFileTest : public test::FolderTest {
 protected:
  static Corpus load(const fs::path& path, DataFormat format = DataFormat::Auto, int64_t vocab_size = kGpt2) {
    return load_corpus({.path = path, .format = format, .vocab_size = vocab_size});
  }
  static std::string refused(const fs::path& path, DataFormat format, int64_t vocab_size = kGpt2) {
    const std::string text = refusal([&] { load(path, format, vocab_size); });
    const std::string name = "--data " + path.string() + ": ";
    EXPECT_EQ(text.rfind(name, 0), 0u) << text;
    return text.substr(name.size());
  }
};

std::vector<int32_t> all(TokenView view) {
  std::vector<int32_t> tokens(view.size());
  view.copy(0, tokens);
  return tokens;
}

TEST_F(TokenFileTest, LittleEndianUnsignedWithAHeaderOrWithout) {
  // 0x1234 lies as 34 12; 40000 is no negative number.
  const std::string tokens = std::string("\x34\x12\x00\x00\x40\x9c\x50\xc4", 8);
  const std::vector<int32_t> expected = {0x1234, 0, 40000, 50256};
  const fs::path llmc = file("llmc.bin", llmc_header(kMagic, 1, 4) + tokens), plain = file("plain.bin", tokens);
  for (const auto& [path, format] : {std::pair(llmc, DataFormat::Llmc),
                                     {llmc, DataFormat::Auto},
                                     {plain, DataFormat::U16},
                                     {plain, DataFormat::Auto}}) {
    const Corpus corpus = load(path, format);
    EXPECT_EQ(all(corpus.tokens()), expected);
    EXPECT_FALSE(corpus.tokens().are_bytes());
    EXPECT_EQ(corpus.num_files, 1);
  }
  // The same bytes under another name are text, unless one says otherwise; and a .bin may be text.
  const fs::path other = file("tokens", tokens);
  EXPECT_EQ(load(other).tokens().size(), 8u);
  EXPECT_TRUE(load(other).tokens().are_bytes());
  EXPECT_EQ(all(load(other, DataFormat::U16).tokens()), expected);
  EXPECT_EQ(load(llmc, DataFormat::Text).tokens().size(), 1024u + 8);
  // With the magic number alone: an llm.c file, and a short one.
  EXPECT_EQ(refused(file("magic.bin", little_endian({kMagic}, 4)), DataFormat::Auto),
            "the file has 4 bytes; the header of an llm.c file alone has 1024");
}

TEST_F(TokenFileTest, RefusesHeadersThatAreNotTrue) {
  const std::string tokens = little_endian({1, 2, 3}, 2);
  const auto refused_llmc = [&](const std::string& content) { return refused(file("f", content), DataFormat::Llmc); };
  EXPECT_EQ(refused_llmc(tokens), "the file has 6 bytes; the header of an llm.c file alone has 1024");
  EXPECT_EQ(refused_llmc(llmc_header(7, 1, 3) + tokens),
            "magic number 7 (at byte 0); allowed is 20240520, and for files without a header --data-format u16");
  EXPECT_EQ(refused_llmc(llmc_header(kMagic, 2, 3) + tokens), "version 2 (at byte 4); allowed is 1");
  EXPECT_EQ(refused_llmc(llmc_header(kMagic, 1, 0)), "0 tokens (at byte 8); allowed are 1 to 2147483647");
  EXPECT_EQ(refused_llmc(llmc_header(kMagic, 1, -3) + tokens), "-3 tokens (at byte 8); allowed are 1 to 2147483647");
  EXPECT_EQ(
      refused_llmc(llmc_header(kMagic, 1, 4) + tokens),
      "the header says 4 tokens (at byte 8), that is a file of 1032 bytes, but it has 1030: it has been cut short");
  EXPECT_EQ(
      refused_llmc(llmc_header(kMagic, 1, 2) + tokens),
      "the header says 2 tokens (at byte 8), that is a file of 1028 bytes, but it has 1030: something follows them");
  EXPECT_EQ(
      refused_llmc(llmc_header(kMagic, 1, 3) + tokens.substr(0, 5)),
      "the header says 3 tokens (at byte 8), that is a file of 1030 bytes, but it has 1029: it has been cut short");
}

TEST_F(TokenFileTest, RefusesWhatIsNoFileOfTokens) {
  EXPECT_EQ(refused(file("odd", "abc"), DataFormat::U16),
            "the file has 3 bytes; allowed is an even number, for tokens of two bytes each");
  EXPECT_EQ(refused(file("odd.bin", "abc"), DataFormat::Auto),
            "the file has 3 bytes; allowed is an even number, for tokens of two bytes each");
  for (const DataFormat format : {DataFormat::U16, DataFormat::Llmc, DataFormat::Auto}) {
    EXPECT_EQ(refused(file("empty.bin", ""), format), "the file is empty");
  }
  EXPECT_EQ(refused(folder_ / "missing.bin", DataFormat::U16), "no such file or folder; allowed is a file of tokens");
  EXPECT_EQ(refused(folder_, DataFormat::Llmc), "is no regular file; allowed is a file of tokens");
  file("folder.bin/text", "a");
  EXPECT_TRUE(load(folder_ / "folder.bin").tokens().are_bytes());  // a folder is text, whatever its name
  EXPECT_EQ(refusal([] { parse_data_format("i32"); }), "--data-format i32: allowed are auto, text, llmc, u16");
}

TEST_F(TokenFileTest, NamesTheFirstTokenOutsideOfTheVocabulary) {
  std::vector<int64_t> tokens(1000, 7);
  tokens[700] = 300;
  tokens[900] = 65535;
  const fs::path llmc = file("llmc.bin", llmc_header(kMagic, 1, 1000) + little_endian(tokens, 2));
  EXPECT_EQ(load(llmc, DataFormat::Auto, 65536).tokens()[900], 65535);
  EXPECT_EQ(refused(llmc, DataFormat::Auto),
            "token 900 is 65535, outside of the vocabulary; allowed are 0 to 50256, and more with --vocab or another "
            "--model");
  EXPECT_EQ(refused(llmc, DataFormat::Auto, 301).substr(0, 18), "token 900 is 65535");
  EXPECT_EQ(refused(llmc, DataFormat::Auto, 300).substr(0, 16), "token 700 is 300");
  EXPECT_EQ(refused(llmc, DataFormat::Auto, 7).substr(0, 12), "token 0 is 7");
  // Far into a file, wherever it is looked at in parts.
  for (const int64_t at : {4095, 4096, 12287, 12288, (1 << 24) - 1, 1 << 24, (1 << 24) + 5000}) {
    std::string bytes(size_t{2} << 24, '\0');
    bytes.resize(bytes.size() + 10002);
    bytes[static_cast<size_t>(2 * at) + 1] = '\x7f';
    EXPECT_EQ(
        refused(file("large.bin", bytes), DataFormat::U16, 256).rfind("token " + std::to_string(at) + " is 32512", 0),
        0u);
  }
}

TEST_F(TokenFileTest, SplitsAndWindowsAreThoseOfBytes) {
  std::vector<int64_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 1000);
  Corpus corpus = load(file("u16.bin", little_endian(tokens, 2)));
  const Corpus moved = std::move(corpus);
  const CorpusSplit split = split_corpus(moved.tokens(), 0.25, 4, 1, "--data F");
  EXPECT_EQ(split.train.size(), 75u);
  EXPECT_EQ(split.validation.size(), 25u);
  EXPECT_EQ(split.validation[0], 1075);
  const Windows windows(split.train, 8);
  EXPECT_EQ(windows.count(), 9);  // 9 x 8 + 1 = 73 <= 75
  std::vector<int32_t> inputs(8), targets(8);
  windows.copy(8, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<int32_t>{1064, 1065, 1066, 1067, 1068, 1069, 1070, 1071}));
  EXPECT_EQ(targets, (std::vector<int32_t>{1065, 1066, 1067, 1068, 1069, 1070, 1071, 1072}));
  EXPECT_THROW(split.train.copy(68, inputs), CheckError);

  EXPECT_EQ(
      refusal([&] { split_corpus(moved.tokens(), 0, 10, 10, "--data F"); }),
      "--data F: 100 tokens for training make 9 windows of --seq-len 10; --global-batch 10 needs as many, that is "
      "at least 101 tokens");
  // One row and its last target are the least there may be.
  EXPECT_EQ(split_corpus(moved.tokens(), 0, 99, 1, "--data F").train.size(), 100u);
  EXPECT_NE(refusal([&] { split_corpus(moved.tokens(), 0, 100, 1, "--data F"); }).find("at least 101 tokens"),
            std::string::npos);
}

TEST_F(TokenFileTest, ValidationFromAFileOfItsOwn) {
  const Corpus training = load(file("train.bin", little_endian(std::vector<int64_t>(100, 1), 2)));
  const Corpus validation = load(file("val.bin", little_endian(std::vector<int64_t>(9, 2), 2)));
  const CorpusSplit alone = split_corpus(training.tokens(), 0, 8, 1, "--data F");
  const CorpusSplit both = with_validation(alone, validation.tokens(), 8, "--val-data V");
  EXPECT_EQ(both.train.size(), 100u);
  EXPECT_EQ(all(both.validation), std::vector<int32_t>(9, 2));
  EXPECT_EQ(
      refusal([&] { with_validation(alone, validation.tokens(), 9, "--val-data V"); }),
      "--val-data V: 9 tokens are shorter than one window of --seq-len 9 + 1, which is the least that is allowed");
  const Corpus text = load(file("text", "some text, longer than a window"));
  EXPECT_EQ(refusal([&] { with_validation(alone, text.tokens(), 8, "--val-data V"); }),
            "--val-data V: is one of bytes, but --data of tokens; allowed are two of a kind");
}

// 64 MiB of tokens: looked at, every one, but not kept.
TEST_F(TokenFileTest, TokensAreNotReadIntoMemory) {
  if (process_resident_bytes() == 0) GTEST_SKIP() << "this system does not tell";
  constexpr size_t kBytes = size_t{64} << 20;
  const fs::path path = file("large.bin", std::string(kBytes, '\1'));
  const size_t before = process_resident_bytes();
  const Corpus corpus = load(path);
  EXPECT_EQ(corpus.tokens().size(), kBytes / 2);
  EXPECT_EQ(corpus.tokens()[kBytes / 2 - 1], 0x101);
  EXPECT_LT(process_resident_bytes(), before + kBytes / 8);
}

}  // namespace
}  // namespace sixfold::train
