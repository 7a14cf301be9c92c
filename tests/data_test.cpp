// Text as a corpus, windows, the order of an epoch, and who gets which row.
#include "runtime/train/data.h"

#include <map>
#include <numeric>
#include <set>

#include "runtime/train/permutation.h"
#include "tests/data_fixture.h"
#include "tests/refusal.h"

namespace sixfold::train {
namespace {

namespace fs = std::filesystem;
using test::refusal;
using DataTest = test::FolderTest;

std::string text_of(const Corpus& corpus) {
  return {corpus.bytes.begin(), corpus.bytes.end()};
}

Corpus load_text(const fs::path& path) {
  return load_corpus({.path = path, .format = DataFormat::Text});
}

TokenView view(const std::vector<uint8_t>& bytes) {
  return TokenView(std::span(bytes));
}

TEST_F(DataTest, AFileIsTakenAsItIs) {
  const Corpus corpus = load_text(file("a.bin", std::string("x\0y", 3)));
  EXPECT_EQ(text_of(corpus), std::string("x\0y", 3));
  EXPECT_EQ(corpus.num_files, 1);
  EXPECT_EQ(corpus.num_skipped, 0);
}

TEST_F(DataTest, AFolderIsItsTextFilesInByteOrderOfTheirPaths) {
  file("b", "2");
  file("a/z", "1");
  file("a.txt", "0");  // '.' sorts before '/', and upper case before lower
  file("Z", "A");
  file("c/deep/er/\xc3\xa4", "4");
  file("c/deep/a", "3");
  file("binary", std::string("n\0n", 3));
  file("empty", "");
  const Corpus corpus = load_text(folder_);
  EXPECT_EQ(text_of(corpus), "A01234");
  EXPECT_EQ(corpus.num_files, 7);
  EXPECT_EQ(corpus.num_skipped, 1);
}

TEST_F(DataTest, MissingAndEmptyAreOneClearError) {
  const std::string missing = (folder_ / "nothing").string();
  EXPECT_EQ(refusal([&] { load_text(missing); }),
            "--data " + missing + ": no such file or folder; allowed are a file and a folder of text files");
  const fs::path empty = file("empty", "");
  EXPECT_EQ(refusal([&] { load_text(empty); }),
            "--data " + empty.string() + ": the file is empty (1 text files, 0 skipped for a NUL byte)");
  file("binary", std::string("\0", 1));
  EXPECT_EQ(refusal([&] { load_text(folder_); }),
            "--data " + folder_.string() + ": no text in this folder (1 text files, 1 skipped for a NUL byte)");
}

TEST_F(DataTest, BytesOutsideOfTheVocabularyAreNamed) {
  const fs::path path = file("text", "aabcz");
  EXPECT_EQ(load_corpus({.path = path, .vocab_size = 'z' + 1}).tokens().size(), 5u);
  EXPECT_EQ(refusal([&] { load_corpus({.path = path, .vocab_size = 'z'}); }),
            "--data " + path.string() +
                ": byte 4 is 122, outside of the vocabulary; allowed are 0 to 121, and more with --vocab or another "
                "--model");
}

TEST_F(DataTest, TooShortIsOneClearError) {
  const std::vector<uint8_t> bytes(64, 'a');  // 8 windows of 8 need 65 bytes
  const std::string error = refusal([&] { split_corpus(view(bytes), 0, 8, 8, "--data F"); });
  EXPECT_EQ(error,
            "--data F: 64 bytes for training make 7 windows of --seq-len 8; --global-batch 8 needs as many, that is at "
            "least 65 bytes");
  EXPECT_NO_THROW(split_corpus(view(std::vector<uint8_t>(65, 'a')), 0, 8, 8, "--data F"));
  // 10% of 100 bytes are 10, which make one window of 8 but none of 10.
  EXPECT_EQ(split_corpus(view(std::vector<uint8_t>(100, 'a')), 0.1, 8, 1, "--data F").validation.size(), 10u);
  EXPECT_NE(refusal([&] {
              split_corpus(view(std::vector<uint8_t>(100, 'a')), 0.1, 10, 1, "--data F");
            }).find("--val-fraction"),
            std::string::npos);
}

TEST_F(DataTest, TheTailIsHeldOut) {
  std::vector<uint8_t> bytes(100);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const CorpusSplit split = split_corpus(view(bytes), 0.25, 4, 1, "--data F");
  EXPECT_EQ(split.train.size(), 75u);
  EXPECT_EQ(split.validation.size(), 25u);
  EXPECT_EQ(split.validation[0], 75);
}

TEST_F(DataTest, WindowsFollowOneAnotherAndTargetsAreOneFurther) {
  std::vector<uint8_t> bytes(100);
  std::iota(bytes.begin(), bytes.end(), uint8_t{100});
  const Windows windows(view(bytes), 8);
  EXPECT_EQ(windows.count(), 12);  // 12 * 8 + 1 = 97 <= 100
  EXPECT_EQ(Windows(view(bytes).first(97), 8).count(), 12);
  EXPECT_EQ(Windows(view(bytes).first(96), 8).count(), 11);
  EXPECT_EQ(Windows(TokenView(), 8).count(), 0);
  std::vector<int32_t> tokens(8), targets(8);
  windows.copy(11, tokens, targets);
  EXPECT_EQ(tokens, (std::vector<int32_t>{188, 189, 190, 191, 192, 193, 194, 195}));
  EXPECT_EQ(targets, (std::vector<int32_t>{189, 190, 191, 192, 193, 194, 195, 196}));
  EXPECT_THROW(windows.copy(12, tokens, targets), CheckError);
}

TEST(Permutation, IsABijectionForEverySize) {
  for (int64_t size = 1; size <= 300; ++size) {
    const Permutation permutation(size, 7, 3);
    std::set<int64_t> images;
    for (int64_t i = 0; i < size; ++i) images.insert(permutation(i));
    ASSERT_EQ(static_cast<int64_t>(images.size()), size);
    ASSERT_EQ(*images.begin(), 0);
    ASSERT_EQ(*images.rbegin(), size - 1);
  }
  const int64_t large = 100'003;  // a prime, far from a power of four
  std::vector<bool> seen(static_cast<size_t>(large));
  const Permutation permutation(large, 1, 0);
  for (int64_t i = 0; i < large; ++i) {
    const auto image = static_cast<size_t>(permutation(i));
    ASSERT_FALSE(seen.at(image));
    seen[image] = true;
  }
  EXPECT_THROW(permutation(large), CheckError);
  EXPECT_THROW(permutation(-1), CheckError);
}

TEST(Permutation, MixesAndDependsOnSeedAndEpoch) {
  // A random permutation of n has one fixed point on average, and 3 places in 1000 keep their image under another key.
  const int64_t size = 1000;
  const Permutation a(size, 1, 0), same(size, 1, 0), other_seed(size, 2, 0), other_epoch(size, 1, 1);
  int fixed = 0, seed_equal = 0, epoch_equal = 0, neighbours = 0;
  double correlation = 0;
  for (int64_t i = 0; i < size; ++i) {
    EXPECT_EQ(a(i), same(i));
    fixed += a(i) == i;
    seed_equal += a(i) == other_seed(i);
    epoch_equal += a(i) == other_epoch(i);
    neighbours += i > 0 && std::abs(a(i) - a(i - 1)) == 1;
    correlation += (static_cast<double>(i) - 499.5) * (static_cast<double>(a(i)) - 499.5);
  }
  EXPECT_LT(fixed, 10);
  EXPECT_LT(seed_equal, 10);
  EXPECT_LT(epoch_equal, 10);
  EXPECT_LT(neighbours, 12);                                  // 2 on average
  EXPECT_LT(std::abs(correlation / (size * 83333.0)), 0.13);  // 4 standard deviations of 1 / sqrt(n)
}

TEST(BatchOrder, NoRowTwiceInAnEpochAndOtherOrdersInOthers) {
  // 100 tokens, T = 8: 12 rows. Four ranks of two rows take 8; the second step would fit ranks 0 and 1 only, so all
  // ranks turn over together after the first.
  const std::vector<uint8_t> bytes(100, 'a');
  const BatchOrder order(Windows(view(bytes), 8).count(), 8, 5, true);
  EXPECT_EQ(order.steps_per_epoch(), 1);

  const BatchOrder longer(50, 8, 5, true);  // 6 steps, 2 rows dropped
  EXPECT_EQ(longer.steps_per_epoch(), 6);
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> windows;
    for (int64_t step = epoch * 6; step < epoch * 6 + 6; ++step) {
      for (int64_t row = 0; row < 8; ++row) windows.push_back(longer.window(step, row));
    }
    const std::set<int64_t> distinct(windows.begin(), windows.end());
    EXPECT_EQ(distinct.size(), 48u);
    EXPECT_LT(*distinct.rbegin(), 50);
    epochs.push_back(windows);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(BatchOrder, WithoutShuffleIsTheIdentity) {
  const BatchOrder order(10, 6, 5, false);
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(order.window(0, row), row);
    EXPECT_EQ(order.window(1, row), row);  // the second epoch
  }
  EXPECT_THROW(order.window(0, 6), CheckError);
  EXPECT_THROW(BatchOrder(5, 6, 1, true), CheckError);
}

TEST(BatchShare, TenRowsOnThreeRanksWithMicroBatchesOfTwo) {
  // 10 rows: one global batch of 6, 4 rows dropped.
  const BatchOrder order(10, 6, 5, false);
  EXPECT_EQ(order.steps_per_epoch(), 1);
  std::map<int, std::vector<int64_t>> rows;
  for (int rank = 0; rank < 3; ++rank) {
    const BatchShare share{6, 2, rank, 3};
    check_batch_share(share);
    EXPECT_EQ(share.num_micro_batches(), 1);
    for (int64_t i = 0; i < 2; ++i) rows[rank].push_back(order.window(0, share.global_row(0, i)));
  }
  EXPECT_EQ(rows[0], (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(rows[1], (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(rows[2], (std::vector<int64_t>{2, 5}));
}

TEST(BatchShare, EveryRowOnceWhateverTheCut) {
  for (int dp : {1, 2, 3, 4, 6}) {
    for (int64_t micro_batch : {1, 2}) {
      std::set<int64_t> rows;
      for (int rank = 0; rank < dp; ++rank) {
        const BatchShare share{24, micro_batch, rank, dp};
        EXPECT_EQ(share.num_micro_batches() * micro_batch * dp, 24);
        for (int m = 0; m < share.num_micro_batches(); ++m) {
          for (int64_t i = 0; i < micro_batch; ++i) {
            const int64_t row = share.global_row(m, i);
            EXPECT_EQ(row % dp, rank);
            EXPECT_TRUE(rows.insert(row).second);
          }
        }
      }
      EXPECT_EQ(rows.size(), 24u);
      EXPECT_EQ(*rows.rbegin(), 23);
    }
  }
}

TEST(BatchShare, RefusesWhatDoesNotDivideAndSaysWhatDoes) {
  EXPECT_EQ(refusal([] {
              check_batch_share({10, 1, 0, 4});
            }),
            "--global-batch 10 does not divide over dp = 4: allowed are multiples of it, such as 8 or 12");
  EXPECT_EQ(refusal([] {
              check_batch_share({2, 1, 0, 4});
            }),
            "--global-batch 2 does not divide over dp = 4: allowed are multiples of it, such as 4");
  EXPECT_EQ(
      refusal([] {
        check_batch_share({12, 4, 0, 2});
      }),
      "--micro-batch 4 does not divide the 6 rows of a rank (--global-batch 12 / dp = 2): allowed are 1, 2, 3, 6");
}

}  // namespace
}  // namespace sixfold::train
