#include "tokenizer/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

std::string decoded(const json& decoder, const Tokens& tokens) {
  DecodeRun run = Decoder::make(decoder, "test").start();
  std::string text;
  for (const std::string& token : tokens) run.push(token, text);
  run.finish(text);
  return text;
}

json sequence(std::initializer_list<json> decoders) {
  return {{"type", "Sequence"}, {"decoders", json::array_t(decoders)}};
}
const json fuse = {{"type", "Fuse"}};
json replace(const char* kind, const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{kind, from}}}, {"content", to}};
}
json strip(const char* character, int start, int stop) {
  return {{"type", "Strip"}, {"content", character}, {"start", start}, {"stop", stop}};
}

TEST(Decoder, BytesThatAreNoTextShowOncePerByte) {
  const json decoder = sequence({{{"type", "ByteFallback"}}, fuse});
  EXPECT_EQ(decoded(decoder, {"<0xE4>", "<0xBD>", "<0xA0>", "a"}),
            "\xe4\xbd\xa0"
            "a");
  EXPECT_EQ(decoded(decoder, {"<0xE4>", "<0xBD>", "a"}),
            "\xef\xbf\xbd\xef\xbf\xbd"
            "a");
  EXPECT_EQ(decoded(decoder, {"<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>"}),
            "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(decoded(decoder, {"<0xZZ>", "<0x1>"}), "<0xZZ><0x1>");
}

TEST(Decoder, AByteRunIsHeldUntilItEnds) {
  DecodeRun run = Decoder::make({{"type", "ByteFallback"}}, "test").start();
  std::string text;
  for (const char* token : {"<0xE4>", "<0xBD>", "<0xA0>"}) run.push(token, text);
  EXPECT_EQ(text, "");
  run.push("x", text);
  EXPECT_EQ(text, "\xe4\xbd\xa0x");
}

TEST(Decoder, EachOrFused) {
  EXPECT_EQ(decoded(strip(" ", 1, 1), {"  a ", " b"}), " ab");
  EXPECT_EQ(decoded(sequence({fuse, strip(" ", 1, 1)}), {"  a ", " b "}), " a  b");
  EXPECT_EQ(decoded(replace("String", "ab", "X"), {"a", "b", "ab"}), "abX");
  EXPECT_EQ(decoded(sequence({fuse, replace("String", "ab", "X")}), {"a", "b", "ab"}), "XX");
  EXPECT_EQ(decoded(sequence({fuse, replace("Regex", "a+b", "X")}), {"a", "a", "b", "a"}), "Xa");
  EXPECT_EQ(decoded(nullptr, {"a", "b"}), "a b");
  EXPECT_EQ(decoded(nullptr, {}), "");
}

TEST(Decoder, OrdersThatMeanNothingAreRefused) {
  for (const json& late :
       {json{{"type", "ByteFallback"}}, json{{"type", "ByteLevel"}}, json{{"type", "Metaspace"}, {"replacement", "_"}}})
    EXPECT_THROW(Decoder::make(sequence({fuse, late}), "test"), Error);
  EXPECT_THROW(Decoder::make(strip("ab", 1, 0), "test"), Error);
}

// The step by step forms against their plain definitions, over texts cut in any way.
RC_GTEST_PROP(Decoder, FusedStepsDoNotMindTheCuts, ()) {
  const auto token = rc::gen::container<std::string>(rc::gen::element('a', 'b', ' '));
  const auto tokens = *rc::gen::container<Tokens>(token);
  const auto pattern = *rc::gen::nonEmpty(token);
  const int start = *rc::gen::inRange(0, 4), stop = *rc::gen::inRange(0, 4);
  std::string text;
  for (const auto& part : tokens) text += part;
  for (size_t at = 0; (at = text.find(pattern, at)) != std::string::npos; ++at) text.replace(at, pattern.size(), "#");
  for (int i = 0; i < start && text.starts_with(' '); ++i) text.erase(0, 1);
  for (int i = 0; i < stop && text.ends_with(' '); ++i) text.pop_back();
  RC_ASSERT(decoded(sequence({fuse, replace("String", pattern.c_str(), "#"), strip(" ", start, stop)}), tokens) ==
            text);
}

}  // namespace
}  // namespace medley
