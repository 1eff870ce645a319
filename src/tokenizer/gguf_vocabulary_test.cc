#include "tokenizer/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace medley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// The tokens of a tokenizer.json as a GGUF file lists them; strings stay in `json`.
GgufVocabulary byte_level(const nlohmann::json& json) {
  GgufVocabulary vocabulary{.where = "m.gguf", .model = "gpt2", .pre = "llama-bpe"};
  const auto& model = json["model"];
  size_t count = model["vocab"].size();
  for (const auto& token : json["added_tokens"]) count = std::max(count, token["id"].get<size_t>() + 1);
  vocabulary.tokens.resize(count);
  vocabulary.types.assign(count, GgufTokenType::normal);
  for (const auto& [token, id] : model["vocab"].items())
    vocabulary.tokens[id.get<size_t>()] = token;  // items() gives references to the keys
  for (const auto& token : json["added_tokens"]) {
    vocabulary.tokens[token["id"].get<size_t>()] = token["content"].get_ref<const std::string&>();
    vocabulary.types[token["id"].get<size_t>()] = GgufTokenType::control;
  }
  return vocabulary;
}

TEST(GgufVocabulary, ByteLevelIsTheTokenizerItWasMadeFrom) {
  const std::string folder = MEDLEY_SOURCE_DIR "/models/demo-jamba";
  const nlohmann::json json = read_json(folder + "/tokenizer.json");
  GgufVocabulary vocabulary = byte_level(json);
  std::vector<std::string> merges;
  for (const auto& merge : json["model"]["merges"])
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  vocabulary.merges.assign(merges.begin(), merges.end());
  vocabulary.bos = 0;
  vocabulary.eos = 1;
  const Tokenizer original = Tokenizer::load(folder), made = make_gguf_tokenizer(vocabulary);
  for (const char* text : {"", "Once upon a time", "  it's 12345 o'clock\n\n\tx ", "<|im_start|>user\nhi<|im_end|>",
                           "na\xc3\xafve \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x99\x82", "\xff\xfe"}) {
    EXPECT_EQ(made.encode(text, true), original.encode(text, true)) << text;
    EXPECT_EQ(made.encode(text, false), original.encode(text, false)) << text;
    EXPECT_EQ(made.decode(made.encode(text, false), false), original.decode(original.encode(text, false), false));
  }
  EXPECT_TRUE(made.adds_bos()) << "llama-bpe does unless the file says otherwise";
  vocabulary.add_bos = false;
  EXPECT_FALSE(make_gguf_tokenizer(vocabulary).adds_bos());
  EXPECT_TRUE(made.is_special(3));
}

class SentencepieceTest : public testing::Test {
 protected:
  SentencepieceTest() {
    add("<unk>", 0, GgufTokenType::unknown);
    add("<s>", 0, GgufTokenType::control);
    for (int byte = 0; byte < 256; ++byte)
      add(bytes_[size_t(byte)] = fmt::format("<0x{:02X}>", byte), 0, GgufTokenType::byte);
    for (const char* letter : {"a", "b", "c", "\xe2\x96\x81"}) add(letter, -100, GgufTokenType::normal);
    add("ab", -1, GgufTokenType::normal);
    add("bc", -1, GgufTokenType::normal);
    add("abc", -5, GgufTokenType::normal);
    add("\xe2\x96\x81"
        "a",
        -3, GgufTokenType::normal);
    add("\n\n", -1000, GgufTokenType::user_defined);
    vocabulary_.bos = 1;
    vocabulary_.unknown = 0;
  }
  void add(std::string_view token, float score, GgufTokenType type) {
    vocabulary_.tokens.push_back(token);
    vocabulary_.scores.push_back(score);
    vocabulary_.types.push_back(type);
  }
  std::vector<std::string> pieces(std::string_view text, bool special = false) const {
    const Tokenizer tokenizer = make_gguf_tokenizer(vocabulary_);
    std::vector<std::string> found;
    for (const int32_t id : tokenizer.encode(text, special)) found.emplace_back(tokenizer.token(id).value());
    return found;
  }

  std::array<std::string, 256> bytes_;
  GgufVocabulary vocabulary_{.where = "m.gguf", .model = "llama"};
};

TEST_F(SentencepieceTest, TheHighestScoreJoinsFirstAndTiesGoLeft) {
  vocabulary_.add_space_prefix = false;
  EXPECT_THAT(pieces("ab"), ElementsAre("ab"));
  EXPECT_THAT(pieces("abc"), ElementsAre("abc")) << "ab and bc tie: the left one, then abc";
  EXPECT_THAT(pieces("abbc"), ElementsAre("ab", "bc"));
  EXPECT_THAT(pieces("a b"), ElementsAre("a", "\xe2\x96\x81", "b"));
  EXPECT_THAT(pieces("b a"), ElementsAre("b",
                                         "\xe2\x96\x81"
                                         "a"));
}

TEST_F(SentencepieceTest, BytesPrefixAndTokensOfTheUser) {
  EXPECT_THAT(pieces("a"), ElementsAre("\xe2\x96\x81"
                                       "a"))
      << "a space in front unless the file says otherwise";
  EXPECT_THAT(pieces("a", true), ElementsAre("<s>",
                                             "\xe2\x96\x81"
                                             "a"));
  vocabulary_.add_space_prefix = false;
  EXPECT_THAT(pieces("\xc3\xa9"), ElementsAre("<0xC3>", "<0xA9>"));
  EXPECT_THAT(pieces("a\n\n\n"), ElementsAre("a", "\n\n", "<0x0A>"));
  const Tokenizer tokenizer = make_gguf_tokenizer(vocabulary_);
  for (const char* text : {"a b\n\nc", "\xc3\xa9 abc", " a"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, true), true), text);
}

TEST_F(SentencepieceTest, WhatDoesNotFitIsRefused) {
  const auto refused = [&](const char* says) {
    EXPECT_THAT([&] { make_gguf_tokenizer(vocabulary_); }, ThrowsMessage<Error>(HasSubstr(says)));
  };
  vocabulary_.scores.pop_back();
  refused("tokenizer.ggml.scores has 266 numbers for 267 tokens");
  vocabulary_.model = "gpt2";
  vocabulary_.pre = "nobody's";
  refused("tokenizer.ggml.pre \"nobody's\" is not known; medley knows gpt-2");
  vocabulary_.pre = "gpt-2";
  vocabulary_.merges = {"a x"};
  refused("tokenizer.ggml.merges 0 is \"a x\"");
  vocabulary_.model = "bert";
  refused("tokenizer.ggml.model \"bert\" is not supported");
}

}  // namespace
}  // namespace medley
