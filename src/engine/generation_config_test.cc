#include "engine/generation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace medley {
namespace {

class GenerationConfigTest : public testing::Test {
 protected:
  SamplingParams read(const std::string& text) {
    return read_generation_config(nlohmann::json::parse(text), "generation_config.json");
  }
  std::string error(const std::string& text) {
    try {
      read(text);
    } catch (const Error& problem) {
      return problem.what();
    }
    return "";
  }
};

TEST_F(GenerationConfigTest, TakesWhatItSays) {
  const SamplingParams params = read(
      R"({"do_sample": true, "temperature": 0.5, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2})");
  EXPECT_FLOAT_EQ(params.temperature, 0.5f);
  EXPECT_EQ(params.top_k, 40);
  EXPECT_FLOAT_EQ(params.top_p, 0.9f);
  EXPECT_FLOAT_EQ(params.min_p, 0.1f);
  EXPECT_FLOAT_EQ(params.repetition_penalty, 1.2f);
}

TEST_F(GenerationConfigTest, GreedyUnlessItMeansSampling) {
  EXPECT_EQ(read(R"({"do_sample": false, "temperature": 0.5})").temperature, 0);
  EXPECT_EQ(read(R"({"eos_token_id": 1})").temperature, 0);
  EXPECT_FLOAT_EQ(read(R"({"temperature": 0.5})").temperature, 0.5f);
  EXPECT_FLOAT_EQ(read(R"({"do_sample": true})").temperature, 1);
  EXPECT_FLOAT_EQ(read_generation_config(nullptr, "none").temperature, 1);
}

TEST_F(GenerationConfigTest, NamesFileAndField) {
  EXPECT_THAT(error(R"({"temperature": "hot"})"),
              testing::AllOf(testing::HasSubstr("generation_config.json"), testing::HasSubstr("temperature")));
  EXPECT_THAT(error(R"({"top_p": 2})"), testing::HasSubstr("top_p is 2"));
  EXPECT_THAT(error("[]"), testing::HasSubstr("not a JSON object"));
}

}  // namespace
}  // namespace medley
