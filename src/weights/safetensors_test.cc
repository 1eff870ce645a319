#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"

namespace medley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::filesystem::path scratch(const std::string& name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("medley_safetensors_{}", ::getpid());
  std::filesystem::create_directories(folder);
  return folder / name;
}

// A file with this header text and `data` zero bytes after it.
std::filesystem::path file_with(const std::string& header, size_t data, uint64_t length = ~uint64_t(0)) {
  const auto path = scratch("hostile.safetensors");
  std::ofstream out(path, std::ios::binary);
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  if (length == ~uint64_t(0)) length = padded.size();
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << padded << std::string(data, '\0');
  return path;
}

void expect_refused(const std::filesystem::path& path, const std::string& message) {
  EXPECT_THAT([&] { SafetensorsFile file(path); }, ThrowsMessage<Error>(HasSubstr(message)));
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  std::vector<float> a{1, 2, 3, 4, 5, 6};
  std::vector<int64_t> b{7, -8};
  bf16 c(1.5f);
  const auto path = scratch("round.safetensors");
  write_safetensors(path, {{"a", TensorView(a.data(), DType::f32, {2, 3})},
                           {"b", TensorView(b.data(), DType::i64, {2})},
                           {"scalar", TensorView(&c, DType::bf16, std::initializer_list<int64_t>{})},
                           {"nothing", TensorView(a.data(), DType::f32, {0, 5})}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors().at("a").view.describe(), "f32 [2, 3]");
  EXPECT_EQ(std::memcmp(file.tensors().at("a").bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(file.tensors().at("b").view.as<int64_t>()[1], -8);
  EXPECT_EQ(float(*file.tensors().at("scalar").view.as<bf16>()), 1.5f);
  EXPECT_EQ(file.tensors().at("nothing").view.elements(), 0);
}

TEST(Safetensors, HostileFilesAreRefusedWithWhatAndWhere) {
  expect_refused(scratch("not_there"), "not_there: cannot be opened");
  expect_refused(scratch(""), "is not a regular file");
  {
    std::ofstream(scratch("short"), std::ios::binary) << "abc";
    expect_refused(scratch("short"), "too few");
  }
  expect_refused(file_with("{}", 0, 1000), "does not fit the file");
  expect_refused(file_with("{}", 0, ~uint64_t(1)), "does not fit the file");
  expect_refused(file_with("[]", 0), "not a JSON object");
  expect_refused(file_with("{\"a\":", 0), "not valid JSON");
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  expect_refused(file_with(one("F99", "[1]", "[0,4]"), 4), "tensor w: unknown dtype");
  expect_refused(file_with(one("F32", "[2]", "[0,4]"), 4), "tensor w: shape [2] of F32 does not fill its 4 bytes");
  expect_refused(file_with(one("F32", "[1]", "[0,8]"), 4), "tensor w: bytes [0, 8) lie outside");
  expect_refused(file_with(one("F32", "[1]", "[4,0]"), 4), "lie outside");
  expect_refused(file_with(one("F32", "[-1]", "[0,4]"), 4), "is not a size");
  expect_refused(file_with(one("F32", "[4611686018427387904]", "[0,4]"), 4), "is not a size");
  expect_refused(file_with(one("F32", "[2147483648,2147483648,2147483648]", "[0,4]"), 4), "larger than any file");
  expect_refused(file_with(one("F32", "[1]", "[0,4]"), 8), "4 bytes at the end belong to no tensor");
  expect_refused(file_with(one("F32", "[1]", "[4,8]"), 8), "4 bytes before tensor w belong to no tensor");
  expect_refused(file_with(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                           4),
                 "overlaps");
  expect_refused(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                           R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                           5),
                 "tensor b: data begins at");
}

TEST(Safetensors, ASparseTerabyteIsRefusedAtOnce) {
  const auto path = file_with(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
  std::filesystem::resize_file(path, uintmax_t(1) << 40);
  expect_refused(path, "bytes at the end belong to no tensor");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace medley
