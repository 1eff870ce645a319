#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Json, ErrorsNameTheFileAndThePlace) {
  EXPECT_THAT([] { parse_json("{\"a\": 1,", "config.json"); },
              ThrowsMessage<Error>(HasSubstr("config.json: not valid JSON at byte")));
  EXPECT_THAT([] { parse_json("{\"a\": 1, \"a\": 2}", "f"); }, ThrowsMessage<Error>(HasSubstr("\"a\" appears twice")));
  EXPECT_THAT([] { parse_json("\"\xff\"", "f"); }, ThrowsMessage<Error>(HasSubstr("f: not valid JSON")));
  EXPECT_THAT([] { read_json("/nonexistent/x.json"); }, ThrowsMessage<Error>(HasSubstr("/nonexistent/x.json")));
}

TEST(Json, NumbersThatNoDoubleHoldsAreRefused) {
  EXPECT_THAT([] { parse_json("[1e999]", "f"); }, ThrowsMessage<Error>(HasSubstr("f: not valid JSON at byte")));
}

TEST(Json, DeepNestingIsRefusedWithoutAStackOverflow) {
  EXPECT_THAT([] { parse_json(std::string(1000000, '['), "deep"); }, ThrowsMessage<Error>(HasSubstr("nested deeper")));
}

TEST(Json, PythonsInfinities) {
  const char* text = R"({"a": [0.0, Infinity], "b": "NaN \" Infinity", "c": -Infinity})";
  EXPECT_THROW(parse_json(text, "f"), Error);
  const nlohmann::json parsed = parse_json(text, "f", JsonFloats::python);
  EXPECT_EQ(parsed["a"][1]["__float__"], "Infinity");
  EXPECT_EQ(parsed["b"], "NaN \" Infinity");
  EXPECT_EQ(parsed["c"]["__float__"], "-Infinity");
}

TEST(Json, TheSameKeyInTwoObjectsIsFine) {
  EXPECT_EQ(parse_json(R"({"a": {"x": 1}, "b": {"x": 2}})", "f")["b"]["x"], 2);
}

}  // namespace
}  // namespace medley
