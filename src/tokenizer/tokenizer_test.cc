#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/test_files.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Ids = std::vector<int32_t>;

const json& fixtures() {
  static const json all = read_json(MEDLEY_SOURCE_DIR "/tests/tokenizer/tokenizers.json");
  return all;
}

const json& fixture(const std::string& name) {
  for (const auto& entry : fixtures())
    if (entry["name"] == name) return entry;
  throw std::runtime_error("no fixture " + name);
}

Tokenizer load(const json& tokenizer, const json& config = nullptr) {
  const TestFolder folder;
  folder.write("tokenizer.json", tokenizer.dump());
  if (!config.is_null()) folder.write("tokenizer_config.json", config.dump());
  return Tokenizer::load(folder.path());
}

Tokenizer load_fixture(const std::string& name) {
  const json& entry = fixture(name);
  return load(entry["tokenizer"], entry["config"]);
}

std::string text_of(const json& text) {
  if (text.is_string()) return text.get<std::string>();
  std::string bytes;
  for (const int byte : text["bytes"]) bytes += char(byte);
  return bytes;
}

// What the tokenizers package gave, recorded by tools/make_tokenizer_fixtures.py.
class Recorded : public testing::TestWithParam<std::string> {};

TEST_P(Recorded, EncodesAndDecodesAsThePackage) {
  const json& entry = fixture(GetParam());
  const Tokenizer tokenizer = load(entry["tokenizer"], entry["config"]);
  for (const auto& record : entry["cases"]) {
    const Ids plain = record[1], special = record[2].is_array() ? record[2].get<Ids>() : plain;
    if (!record[0].is_null()) {
      EXPECT_EQ(tokenizer.encode(text_of(record[0]), false), plain) << record[0];
      EXPECT_EQ(tokenizer.encode(text_of(record[0]), true), special) << record[0];
    }
    const std::string decoded = record[3].is_string() ? record[3].get<std::string>() : text_of(record[0]);
    EXPECT_EQ(tokenizer.decode(special, true), decoded) << record[0];

    StreamDecoder stream(tokenizer, true);
    std::string pieces;
    for (const int32_t id : special) {
      const std::string piece = stream.push(id);
      EXPECT_TRUE(unicode::is_valid(piece)) << record[0];
      pieces += piece;
    }
    EXPECT_EQ(pieces + stream.finish(), decoded) << record[0];
  }
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fixtures()) names.push_back(entry["name"]);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, Recorded, testing::ValuesIn(fixture_names()),
                         [](const auto& entry) { return entry.param; });

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = load_fixture("llama3_like");
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_EQ(tokenizer.id_of("</s>"), 1);
  EXPECT_EQ(tokenizer.id_of("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.token(0), "<s>");
  EXPECT_EQ(tokenizer.token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.token(1 << 20), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(4));
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.end_id(), tokenizer.token_count());
  EXPECT_EQ(tokenizer.special_tokens().at("bos_token"), "<s>");
  EXPECT_EQ(load_fixture("gpt2_like").bos_id(), std::nullopt);
  EXPECT_EQ(load_fixture("deepseek_like").bos_id(), 0);  // a token written as an object
}

TEST(Tokenizer, TheConfigDecidesAboutBosAndEos) {
  const json& tokenizer = fixture("llama3_like")["tokenizer"];
  json config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const Ids plain = load(tokenizer, config).encode("the", false);
  const auto with = [&](std::vector<int32_t> before, std::vector<int32_t> after) {
    before.insert(before.end(), plain.begin(), plain.end());
    before.insert(before.end(), after.begin(), after.end());
    return before;
  };
  EXPECT_EQ(load(tokenizer, config).encode("the", true), with({0}, {}));  // the post-processor of tokenizer.json
  config["add_bos_token"] = false;
  EXPECT_EQ(load(tokenizer, config).encode("the", true), plain);
  EXPECT_FALSE(load(tokenizer, config).adds_bos());
  config["add_bos_token"] = true;
  config["add_eos_token"] = true;
  EXPECT_EQ(load(tokenizer, config).encode("the", true), with({0}, {1}));
}

TEST(Tokenizer, ATokenWithARoleIsSpecialThoughNotListed) {
  json tokenizer = fixture("llama3_like")["tokenizer"];
  tokenizer["added_tokens"] = json::array();
  tokenizer["post_processor"] = nullptr;
  EXPECT_FALSE(load(tokenizer).is_special(1));
  EXPECT_NE(load(tokenizer).encode("</s>", false), Ids{1});
  const Tokenizer with_role = load(tokenizer, {{"eos_token", "</s>"}});
  EXPECT_TRUE(with_role.is_special(1));
  EXPECT_EQ(with_role.encode("</s>", false), Ids{1});
}

TEST(Tokenizer, MergesAreReadInBothSpellings) {
  json tokenizer = fixture("llama3_like")["tokenizer"];
  const Tokenizer pairs = load(tokenizer);
  for (auto& merge : tokenizer["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const Tokenizer strings = load(tokenizer);
  for (const std::string text : {"the number of people", "don't stop"})
    EXPECT_EQ(strings.encode(text, false), pairs.encode(text, false));
}

TEST(Tokenizer, IdsWithoutATokenAreLeftOut) {
  const Tokenizer tokenizer = load_fixture("llama3_like");
  Ids ids = tokenizer.encode("the people", false);
  ids.insert(ids.begin() + 1, {-5, 1 << 28, 99999});
  EXPECT_EQ(tokenizer.decode(ids, false), "the people");
}

// A word of any length takes n log n: a million letters, and the same through a regex, well under what n^2 would take.
TEST(Tokenizer, LongRunsAreNotQuadratic) {
  for (const char* name : {"llama3_like", "deepseek_like", "llama2_like", "metaspace_fuse", "gpt2_like"}) {
    const Tokenizer tokenizer = load_fixture(name);
    for (const char* unit : {"a", " ", "\n", "1", "\xe4\xba\xba", "\xcc\x81", "th", "\xff"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      const Ids ids = tokenizer.encode(text, false);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_LE(ids.size(), 4 * text.size());
      EXPECT_LT(took.count(), 10.0) << name << " " << unit;  // about 0.1 s in release; n^2 would take hours
    }
  }
}

TEST(Tokenizer, ThreadsShareOneTokenizer) {
  const Tokenizer tokenizer = load_fixture("llama3_like");
  const std::string text = "the number of people who could find water 123 \xe4\xbd\xa0\xe5\xa5\xbd";
  const Ids expected = tokenizer.encode(text, true);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string more = text + std::to_string(t * 100 + i);
        if (tokenizer.encode(text, true) != expected || tokenizer.decode(tokenizer.encode(more, false), true) != more)
          ++wrong;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A warm word cache gives what a cold one does, also after it was full and emptied.
TEST(Tokenizer, TheWordCacheChangesNothing) {
  const json& entry = fixture("llama3_like");
  const Tokenizer warm = load(entry["tokenizer"]);
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += " w" + std::to_string(i * 7919 % 99991) + "abcdefghijklmnopqrstuvw";
  const Ids first = warm.encode(text, false);
  EXPECT_EQ(warm.encode(text, false), first);
  EXPECT_EQ(warm.decode(first, false), text);
  for (const std::string word : {" the", " water", "people"})
    EXPECT_EQ(warm.encode(word, false), load(entry["tokenizer"]).encode(word, false));
}

struct Refusal {
  const char* pointer;  // where tokenizer.json is changed
  json value;
  const char* message;
};

TEST(Tokenizer, WhatIsNotSupportedIsRefusedByName) {
  const Refusal refusals[] = {
      {"/normalizer", {{"type", "Bert"}}, "tokenizer.json: normalizer: the normalizer \"Bert\""},
      {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "***"}}, "is not base64"},
      {"/normalizer", {{"type", "NFC"}, {"new", 1}}, "the field \"new\" is not known"},
      {"/pre_tokenizer", {{"type", "UnicodeScripts"}}, "pre_tokenizer: the pre-tokenizer \"UnicodeScripts\""},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}},
       "does not compile"},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Odd"}},
       "\"Odd\" is not known"},
      {"/pre_tokenizer", {{"type", "Split"}, {"pattern", 5}, {"behavior", "Isolated"}}, "expected a pattern"},
      {"/post_processor", {{"type", "Other"}}, "post_processor: the post-processor \"Other\""},
      {"/decoder", {{"type", "CTC"}}, "decoder: the decoder \"CTC\""},
      {"/model/type", "WordLevel", "model: the model \"WordLevel\" is not supported"},
      {"/model/dropout", 0.1, "\"dropout\""},
      {"/model/end_of_word_suffix", "</w>", "\"end_of_word_suffix\" is not supported"},
      {"/model/unk_token", "<none>", "which is not in the vocabulary"},
      {"/model/merges/3", "abc", "merge 3 is \"abc\""},
      {"/model/merges/3", json::array({"a", "qqq"}), "needs \"aqqq\""},
      {"/model/vocab/x", -1, "has the id -1"},
      {"/model/vocab/x", 1 << 30, "has the id"},
      {"/model/vocab/x", 1, "have the same id 1"},
      {"/model/vocab/x", "1", "not an integer"},
      {"/added_tokens/0/id", "0", "\"id\" must be an integer"},
      {"/added_tokens/0/later", true, "\"later\" is not known"},
      {"/future", 1, "the field \"future\" is not known"},
  };
  for (const Refusal& refusal : refusals) {
    json tokenizer = fixture("llama3_like")["tokenizer"];
    tokenizer[json::json_pointer(refusal.pointer)] = refusal.value;
    EXPECT_THAT([&] { load(tokenizer); }, ThrowsMessage<Error>(HasSubstr(refusal.message))) << refusal.pointer;
  }
  EXPECT_THAT([] { Tokenizer::load("/nonexistent"); },
              ThrowsMessage<Error>(HasSubstr("/nonexistent: there is no tokenizer.json")));
}

TEST(Tokenizer, EveryCutOfTheFileIsRefused) {
  const std::string whole = fixture("digits")["tokenizer"].dump();
  const TestFolder folder;
  for (size_t size = 0; size < whole.size(); size += 97) {
    folder.write("tokenizer.json", std::string_view(whole).substr(0, size));
    EXPECT_THROW(Tokenizer::load(folder.path()), Error) << size;
  }
}

}  // namespace
}  // namespace medley
