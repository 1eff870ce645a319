// The GGUF reader on files that are right and on files that are wrong in one place.
#include "weights/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "weights/checkpoint.h"
#include "weights/test_gguf.h"
#include "weights/weight_loader.h"

namespace medley {
namespace {

using test::GgufBytes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr uint32_t f32 = 0, q4_0 = 2, q8_0 = 8, iq2_xxs = 16;

void expect_refused(const GgufBytes& file, const std::string& message) {
  EXPECT_THAT([&] { file.parse(); }, ThrowsMessage<Error>(HasSubstr(message)));
}

// A small right file: two keys, two tensors.
GgufBytes small() {
  GgufBytes file(2, 2);
  file.key("general.architecture", GgufType::string).text("llama");
  file.key("llama.block_count", GgufType::u32, uint32_t(3));
  file.tensor("a", {3, 2}, f32, 0).tensor("b.weight", {64, 2, 1}, q8_0, 32).pad();
  for (int i = 0; i < 6; ++i) file.put(float(i));
  return file.put(uint64_t(0)).raw(std::string(4 * 34, 'q'));
}

TEST(Gguf, TensorsAreViewsInRowMajorOrder) {
  const GgufBytes file = small();
  const GgufContents contents = file.parse();
  EXPECT_EQ(contents.version, 3u);
  ASSERT_EQ(contents.tensors.size(), 2u);
  const StoredTensor& a = contents.tensors.at("a");
  EXPECT_EQ(a.view.describe(), "f32 [2, 3]");
  EXPECT_EQ(a.view.row<float>(1)[2], 5.0f);
  const StoredTensor& b = contents.tensors.at("b.weight");
  EXPECT_EQ(b.view.describe(), "q8_0 [1, 2, 64]");
  EXPECT_EQ(b.bytes.size(), 4u * 34);
  EXPECT_EQ(b.view.bytes(), 4u * 34);
  EXPECT_EQ(static_cast<const char*>(b.view.slice(1, 1, 1).slice(2, 32, 32).data) - file.str().data(),
            std::ptrdiff_t(file.str().size()) - 34);
}

TEST(Gguf, EveryKindOfValueIsRead) {
  GgufBytes file(0, 18);
  file.key("u8", GgufType::u8, uint8_t(200)).key("i8", GgufType::i8, int8_t(-100));
  file.key("u16", GgufType::u16, uint16_t(60000)).key("i16", GgufType::i16, int16_t(-30000));
  file.key("u32", GgufType::u32, uint32_t(4000000000)).key("i32", GgufType::i32, int32_t(-2000000000));
  file.key("u64", GgufType::u64, uint64_t(1) << 62).key("i64", GgufType::i64, int64_t(-1));
  file.key("f32", GgufType::f32, 0.5f).key("f64", GgufType::f64, 0.1);
  file.key("no", GgufType::boolean, uint8_t(0)).key("yes", GgufType::boolean, uint8_t(1));
  file.key("string", GgufType::string).text("Gr\xc3\xbc\xc3\x9f");
  file.key("ints", GgufType::array).array(GgufType::i16, 3).put(int16_t(-1)).put(int16_t(2)).put(int16_t(3));
  file.key("floats", GgufType::array).array(GgufType::f32, 2).put(1.5f).put(-2.0f);
  file.key("strings", GgufType::array).array(GgufType::string, 3).text("a").text("").text("bc");
  file.key("nested", GgufType::array).array(GgufType::array, 2);
  file.array(GgufType::u8, 1).put(uint8_t(7)).array(GgufType::string, 1).text("x");
  file.key("none", GgufType::array).array(GgufType::string, 0);
  const GgufContents contents = file.parse();
  const auto at = [&](const char* key) -> const GgufValue& { return contents.metadata.find(key)->second; };
  EXPECT_EQ(at("u8").integer(), 200);
  EXPECT_EQ(at("i8").integer(), -100);
  EXPECT_EQ(at("u16").integer(), 60000);
  EXPECT_EQ(at("i16").integer(), -30000);
  EXPECT_EQ(at("u32").integer(), 4000000000);
  EXPECT_EQ(at("i32").integer(), -2000000000);
  EXPECT_EQ(at("u64").integer(), int64_t(1) << 62);
  EXPECT_EQ(at("i64").integer(), -1);
  EXPECT_EQ(at("i64").number(), -1.0);
  EXPECT_EQ(at("f32").number(), 0.5);
  EXPECT_EQ(at("f64").number(), 0.1);
  EXPECT_FALSE(at("no").boolean());
  EXPECT_TRUE(at("yes").boolean());
  EXPECT_EQ(at("string").string(), "Gr\xc3\xbc\xc3\x9f");
  EXPECT_THAT(at("ints").integers(), ElementsAre(-1, 2, 3));
  EXPECT_THAT(at("ints").numbers(), ElementsAre(-1.0, 2.0, 3.0));
  EXPECT_THAT(at("floats").numbers(), ElementsAre(1.5, -2.0));
  EXPECT_THAT(at("strings").strings(), ElementsAre("a", "", "bc"));
  ASSERT_EQ(at("nested").arrays().size(), 2u);
  EXPECT_THAT(at("nested").arrays()[0].integers(), ElementsAre(7));
  EXPECT_THAT(at("nested").arrays()[1].strings(), ElementsAre("x"));
  EXPECT_EQ(at("none").size(), 0u);
  EXPECT_THAT([&] { at("f32").integer(); },
              ThrowsMessage<Error>(HasSubstr("m.gguf: key f32: is of type f32, want an integer")));
  EXPECT_THAT([&] { at("ints").strings(); },
              ThrowsMessage<Error>(HasSubstr("is an array of i16, want an array of strings")));
  EXPECT_THAT([&] { at("u8").string(); }, ThrowsMessage<Error>(HasSubstr("want a string")));
}

TEST(Gguf, TheBeginningIsChecked) {
  EXPECT_THAT([] { parse_gguf({}, "m.gguf"); }, ThrowsMessage<Error>(HasSubstr("does not begin as a GGUF file")));
  std::string other = small().str();
  other[3] = 'L';
  EXPECT_THAT([&] { parse_gguf(std::as_bytes(std::span(other)), "m.gguf"); },
              ThrowsMessage<Error>(HasSubstr("does not begin")));
  expect_refused(GgufBytes(0, 0, 1), "GGUF version 1; medley reads 2 and 3");
  expect_refused(GgufBytes(0, 0, 0x03000000), "big-endian");
  GgufBytes(0, 0, 2).parse();
}

TEST(Gguf, CountsLargerThanTheFileAreRefusedBeforeAnythingIsAllocated) {
  expect_refused(GgufBytes(uint64_t(1) << 60, 0), "1152921504606846976 tensors, more than its 24 bytes can hold");
  expect_refused(GgufBytes(0, ~uint64_t(0)), "18446744073709551615 keys");
  GgufBytes big(2'000'000, 0);
  big.raw(std::string(50'000'000, '\0'));
  expect_refused(big, "are no real model");
  GgufBytes array(0, 1);
  array.key("k", GgufType::array).array(GgufType::i32, uint64_t(1) << 62).raw(std::string(64, 'x'));
  expect_refused(array, "key k: says it has 4611686018427387904 elements");
  GgufBytes strings(0, 1);
  strings.key("k", GgufType::array).array(GgufType::string, 9).raw(std::string(64, '\0'));
  expect_refused(strings, "key k: says it has 9 elements");
}

TEST(Gguf, StringsAndValuesThatPassTheEndAreRefused) {
  GgufBytes key(0, 1);
  key.put(uint64_t(100)).raw("general.name");
  expect_refused(key, "m.gguf: a key: 100 bytes at byte 32 pass the end of the file of 44 bytes");
  GgufBytes string(0, 1);
  string.key("k", GgufType::string).put(~uint64_t(0)).raw("abc");
  expect_refused(string, "m.gguf: key k: 18446744073709551615 bytes at byte 45 pass the end");
  GgufBytes element(0, 1);
  element.key("k", GgufType::array).array(GgufType::string, 2).text("a").put(uint64_t(50)).raw("bc");
  expect_refused(element, "key k: 50 bytes");
}

TEST(Gguf, UnknownValuesAndDeepNestingAreRefused) {
  expect_refused(GgufBytes(0, 1).text("k").put(uint32_t(13)).raw("12345678"), "key k: is of the unknown type 13");
  GgufBytes deep(0, 1);
  deep.key("k", GgufType::array);
  for (int i = 0; i < 1000; ++i) deep.array(GgufType::array, 1);
  deep.array(GgufType::u8, 0);
  expect_refused(deep, "key k: arrays lie in arrays more than 4 deep");
}

TEST(Gguf, DuplicatesAreRefused) {
  GgufBytes keys(0, 2);
  keys.key("k", GgufType::u8, uint8_t(1)).key("k", GgufType::u8, uint8_t(1));
  expect_refused(keys, "key k: is there twice");
  GgufBytes tensors(2, 0);
  tensors.tensor("t", {1}, f32, 0).tensor("t", {1}, f32, 32).pad().raw(std::string(64, '\0'));
  expect_refused(tensors, "tensor t: is there twice");
}

GgufBytes one_tensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data) {
  GgufBytes file(1, 0);
  return file.tensor("t", dims, type, offset).pad().raw(std::string(data, '\0'));
}

TEST(Gguf, TensorRangesAreChecked) {
  one_tensor({8}, f32, 32, 64).parse();
  expect_refused(one_tensor({8}, f32, 32, 63), "tensor t: 32 bytes at offset 32 pass the end of the file (63 bytes");
  expect_refused(one_tensor({8}, f32, ~uint64_t(31), 64), "pass the end of the file");
  expect_refused(one_tensor({8}, f32, 16, 64), "tensor t: begins at offset 16, not a multiple of the file's alignment");
  expect_refused(one_tensor({uint64_t(1) << 40, uint64_t(1) << 40}, f32, 0, 64), "larger than any file");
  expect_refused(one_tensor({~uint64_t(0)}, f32, 0, 64), "larger than any file");
  expect_refused(one_tensor({uint64_t(1) << 56}, f32, 0, 64), "pass the end of the file");
  expect_refused(one_tensor({1, 1, 1, 1, 1}, f32, 0, 64), "has 5 dimensions; medley reads 1 to 4");
  expect_refused(one_tensor({}, f32, 0, 64), "has 0 dimensions");
  expect_refused(one_tensor({40, 2}, q4_0, 0, 64),
                 "tensor t: rows of 40 elements are not whole blocks of 32, which Q4_0");
  GgufBytes overlap(3, 0);
  overlap.tensor("a", {8}, f32, 64).tensor("b", {9}, f32, 32).tensor("c", {1}, f32, 0).pad().raw(std::string(96, '\0'));
  expect_refused(overlap, "tensor a overlaps tensor b");
}

TEST(Gguf, TheAlignmentIsTheFilesOwn) {
  const auto with = [](uint32_t alignment) {
    GgufBytes file(1, 1);
    file.key("general.alignment", GgufType::u32, alignment).tensor("t", {2}, f32, 0);
    return file.pad(std::max<uint32_t>(alignment, 1)).put(1.0f).put(2.0f);
  };
  EXPECT_EQ(with(256).parse().tensors.at("t").view.as<float>()[1], 2.0f);
  for (uint32_t wrong : {0u, 4u, 24u, 1u << 21}) expect_refused(with(wrong), "general.alignment is");
}

TEST(Gguf, AnUnknownTensorTypeIsRefusedWhenItIsRead) {
  GgufBytes file(3, 0);
  file.tensor("old", {256}, iq2_xxs, 0).tensor("new", {7}, 77, 96).tensor("fine", {1}, f32, 128).pad();
  file.raw(std::string(132, '\0'));
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("medley_types_{}.gguf", ::getpid());
  std::ofstream(path, std::ios::binary) << file.str();
  const Checkpoint checkpoint(open_gguf(path), [](const std::string& name) { return "model." + name; });
  std::filesystem::remove(path);
  WeightLoader weights(checkpoint, {});
  EXPECT_EQ(weights.take_floats("model.fine", {1}), std::vector<float>{0});
  EXPECT_THAT([&] { weights.take("model.old", {256}); },
              ThrowsMessage<Error>(HasSubstr("tensor model.old is IQ2_XXS; medley reads")));
  EXPECT_THAT([&] { weights.take("model.new", {7}); },
              ThrowsMessage<Error>(HasSubstr("tensor model.new is of the unknown type 77")));
}

class SplitGguf : public testing::Test {
 protected:
  SplitGguf() : folder_(std::filesystem::path(testing::TempDir()) / fmt::format("medley_split_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~SplitGguf() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const std::string& name, uint16_t no, uint16_t count, const std::string& tensor) {
    GgufBytes file(1, 2);
    file.key("split.no", GgufType::u16, no).key("split.count", GgufType::u16, count);
    file.tensor(tensor, {1}, f32, 0).pad().put(float(no));
    std::ofstream(folder_ / name, std::ios::binary) << file.str();
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

TEST_F(SplitGguf, TheFilesOfAModelAreOpenedTogether) {
  write("m-00001-of-00002.gguf", 0, 2, "a");
  const auto second = write("m-00002-of-00002.gguf", 1, 2, "b");
  const Checkpoint checkpoint(open_gguf(second), [](const std::string& name) { return name; });
  WeightLoader weights(checkpoint, {});
  EXPECT_EQ(weights.take_floats("a", {1}), std::vector<float>{0});
  EXPECT_EQ(weights.take_floats("b", {1}), std::vector<float>{1});
  weights.finish();
  EXPECT_THAT(checkpoint.describe(), HasSubstr("m-00001-of-00002.gguf (2 files)"));
}

TEST_F(SplitGguf, WhatDoesNotBelongTogetherIsRefused) {
  const auto refused = [](const std::filesystem::path& path, const std::string& message) {
    EXPECT_THAT([&] { open_gguf(path); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  const auto first = write("m-00001-of-00002.gguf", 0, 2, "a");
  refused(first, "m-00002-of-00002.gguf: is missing; the model is split into 2 files");
  write("m-00002-of-00002.gguf", 1, 2, "a");
  refused(first, "tensor a is also in");
  write("m-00002-of-00002.gguf", 0, 2, "b");
  refused(first, "does not say that it is file 1 of 2");
  refused(write("other.gguf", 0, 2, "a"), "medley finds the others by names like NAME-00001-of-00002.gguf");
}

// Damage anywhere is either noticed or harmless; never a crash, and never a view outside the file.
RC_GTEST_PROP(GgufDamage, ChangedOrCutBytesNeverLeadOutside, ()) {
  std::string bytes = small().str();
  const auto changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const auto at = *rc::gen::inRange<size_t>(0, bytes.size());
    bytes[at] = char(*rc::gen::element(0, 1, 2, 8, 9, 13, 127, 128, 255));
  }
  bytes.resize(*rc::gen::inRange<size_t>(bytes.size() / 2, bytes.size() + 1));
  const auto whole = std::as_bytes(std::span(bytes));
  try {
    const GgufContents contents = parse_gguf(whole, "m.gguf");
    for (const auto& [name, tensor] : contents.tensors) {
      RC_ASSERT(tensor.bytes.data() >= whole.data());
      RC_ASSERT(tensor.bytes.data() + tensor.bytes.size() <= whole.data() + whole.size());
      if (tensor.readable) RC_ASSERT(tensor.view.bytes() == tensor.bytes.size());
    }
  } catch (const Error& error) {
    RC_ASSERT(std::string(error.what()).find("m.gguf") == 0u);
  }
}

}  // namespace
}  // namespace medley
