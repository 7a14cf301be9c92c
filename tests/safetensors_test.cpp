// The safetensors format: what is written, byte by byte, and what a reader must refuse.
#include "runtime/train/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

namespace sixfold::train {
namespace {

namespace fs = std::filesystem;

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest()
      : path_(fs::temp_directory_path() / ("sixfold_safetensors_" + std::to_string(getpid()) + "_" +
                                           ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~SafetensorsTest() override {
    fs::remove(path_);
    fs::remove(path_.string() + ".partial");
  }

  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    return text.str();
  }
  // Writes a file with this header and `data_bytes` zero bytes behind it.
  void write_file(const std::string& header, size_t data_bytes) const {
    const uint64_t length = header.size();
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header << std::string(data_bytes, '\0');
  }
  std::string error_of_opening() const {
    try {
      SafetensorsFile file(path_);
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(path_.string()), std::string::npos) << error.what();
      return error.what();
    }
    return "no error";
  }

  const fs::path path_;
  Memory memory_;
};

TEST_F(SafetensorsTest, BytesAreAsTheFormatSays) {
  float values[3] = {1.0f, -2.0f, 0.5f};
  uint8_t bytes[2] = {7, 9};
  {
    SafetensorsWriter writer(path_, {{"a", DType::F32, {3}}, {"b.c", DType::U8, {1, 2}}});
    writer.write("b.c", Tensor::view(bytes, {1, 2}, DType::U8));  // in any order
    writer.write("a", Tensor::view(values, {3}, DType::F32));
    EXPECT_FALSE(fs::exists(path_));  // nothing under this name before it is whole
    writer.finish();
  }
  EXPECT_FALSE(fs::exists(path_.string() + ".partial"));
  std::string header =
      R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b.c":{"dtype":"U8","shape":[1,2],"data_offsets":[12,14]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string expected;
  for (int i = 0; i < 8; ++i) expected += static_cast<char>(header.size() >> (8 * i) & 0xff);
  expected += header;
  expected += std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f\x07\x09", 14);
  EXPECT_EQ(content(), expected);
}

TEST_F(SafetensorsTest, RoundTripOfEveryDtypeAndShape) {
  std::vector<Tensor> tensors;
  std::vector<TensorInfo> infos;
  for (DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 8}, Shape{2, 3, 4}}) {
      Tensor tensor = Tensor::empty(shape, dtype, memory_, Category::Other);
      for (size_t i = 0; i < tensor.bytes(); ++i) {
        static_cast<uint8_t*>(tensor.raw())[i] = static_cast<uint8_t>(37 * i + tensors.size());
      }
      infos.push_back({std::string("t").append(std::to_string(tensors.size())), dtype, shape});
      tensors.push_back(tensor);
    }
  }
  SafetensorsWriter writer(path_, infos, {{"step", "12"}});
  for (size_t i = 0; i < infos.size(); ++i) writer.write(infos[i].name, tensors[i]);
  writer.finish();

  SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata().at("step"), "12");
  ASSERT_EQ(file.tensors().size(), infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    ASSERT_TRUE(file.contains(infos[i].name));
    const Tensor out = Tensor::zeros(infos[i].shape, infos[i].dtype, memory_, Category::Other);
    file.read(infos[i].name, out);
    if (out.bytes() > 0) {
      EXPECT_EQ(std::memcmp(out.raw(), tensors[i].raw(), out.bytes()), 0) << infos[i].name;
    }
  }
  EXPECT_FALSE(file.contains("t99"));
  const Tensor wrong = Tensor::zeros({6}, DType::F32, memory_, Category::Other);
  EXPECT_THROW(file.read("t1", wrong), ConfigError);   // stored with shape (5)
  EXPECT_THROW(file.read("t99", wrong), ConfigError);  // not there
}

TEST_F(SafetensorsTest, WriterChecksItsCaller) {
  SafetensorsWriter writer(path_, {{"a", DType::F32, {2}}, {"b", DType::F32, {2}}});
  const Tensor two = Tensor::zeros({2}, DType::F32, memory_, Category::Other);
  EXPECT_THROW(writer.write("c", two), CheckError);
  EXPECT_THROW(writer.write("a", two.reshape({1, 2})), CheckError);
  writer.write("a", two);
  EXPECT_THROW(writer.write("a", two), CheckError);
  EXPECT_THROW(writer.finish(), CheckError);  // b is missing
  EXPECT_THROW(SafetensorsWriter("/nonexistent/folder/file", {}), ConfigError);
}

TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  // Names in another order than the data, blanks behind the header, metadata, an empty tensor between two others.
  write_file(
      R"({"z":{"dtype":"I32","shape":[1],"data_offsets":[4,8]}, "__metadata__":{"format":"pt"},)"
      R"("e":{"dtype":"F16","shape":[0],"data_offsets":[4,4]}, "a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
      8);
  SafetensorsFile file(path_);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_EQ(file.tensors()[1].name, "e");
  EXPECT_EQ(file.tensors()[2].name, "z");
  write_file("{}", 0);
  EXPECT_TRUE(SafetensorsFile(path_).tensors().empty());
}

TEST_F(SafetensorsTest, RefusesBrokenFiles) {
  EXPECT_NE(error_of_opening().find("cannot be read"), std::string::npos);  // there is none
  std::ofstream(path_) << "short";
  EXPECT_NE(error_of_opening().find("shorter"), std::string::npos);
  std::ofstream(path_) << std::string(16, '\xff');
  EXPECT_NE(error_of_opening().find("a header of 18446744073709551615 bytes"), std::string::npos);

  const std::vector<std::pair<std::string, std::string>> headers = {
      {"", "no error"},  // replaced below: the valid one
      {"[1]", "not a JSON object"},
      {" {}", "not a JSON object"},  // must begin with a brace
      {"{\"a\":", "parse error"},
      {R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", "F64 is not supported"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", "data_offsets"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "needs 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "needs 12 bytes"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "shape [-2]"},
      {R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", "shape [2.5]"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}})", "too large"},  // 2^64 + 8 bytes
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})",
       "tensor b begins at 5 where the one before ends at 4"},
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       "tensor b begins at 4 where the one before ends at 5"},
      {R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})", "the tensors have 7 bytes, the file has 8"},
      {R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "the tensors have 9 bytes, the file has 8"},
      {R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
       "tensor a is there twice"},
  };
  for (const auto& [header, fault] : headers) {
    const std::string valid = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    write_file(header.empty() ? valid : header, 8);
    EXPECT_NE(error_of_opening().find(fault), std::string::npos) << header << "\n" << error_of_opening();
  }
}

}  // namespace
}  // namespace sixfold::train
