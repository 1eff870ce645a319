// tokenizer.model against what the sentencepiece package gave (tools/make_sentencepiece_fixtures.py), and files that
// are broken.
#include "tokenizer/sentencepiece_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/base64.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/test_files.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Ids = std::vector<int32_t>;

const json& fixture() {
  static const json all = read_json(MEDLEY_SOURCE_DIR "/tests/tokenizer/sentencepiece.json");
  return all;
}

std::string model_named(const std::string& name) {
  for (const json& entry : fixture()["models"])
    if (entry["name"] == name) return from_base64(entry["model"].get<std::string>()).value();
  throw std::runtime_error("no fixture " + name);
}

Tokenizer load(const std::string& model, const std::string& config = "{}") {
  const TestFolder folder;
  folder.write("tokenizer.model", model);
  folder.write("tokenizer_config.json", config);
  return Tokenizer::load(folder.path());
}

TEST(SentencePiece, EncodesAndDecodesAsThePackage) {
  int cases = 0;
  for (const json& entry : fixture()["models"]) {
    const Tokenizer tokenizer = load(from_base64(entry["model"].get<std::string>()).value());
    for (const json& record : entry["cases"]) {
      const std::string text = record[0].is_string() ? record[0].get<std::string>() : "";
      const std::string decoded = record[2].is_string() ? record[2].get<std::string>() : text;
      const Ids ids = record[1];
      if (record[0].is_string()) {
        ASSERT_EQ(tokenizer.encode(text, false), ids) << entry["name"] << " " << record[0];
      }
      EXPECT_EQ(tokenizer.decode(ids, true), decoded) << entry["name"] << " " << record[0];
      StreamDecoder stream(tokenizer, true);
      std::string pieces;
      for (const int32_t id : ids) pieces += stream.push(id);
      ASSERT_EQ(pieces + stream.finish(), decoded);
      ++cases;
    }
  }
  EXPECT_GT(cases, 500);
}

TEST(SentencePiece, PrecompiledOfTokenizerJsonIsThePackages) {
  const TestFolder folder;
  folder.write("tokenizer.json", fixture()["precompiled"]["tokenizer"].dump());
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  for (const json& record : fixture()["precompiled"]["cases"])
    ASSERT_EQ(tokenizer.encode(record[0].get<std::string>(), false), record[1].get<Ids>()) << record[0];
}

TEST(SentencePiece, TokenizerJsonGoesFirst) {
  const TestFolder folder;
  folder.write("tokenizer.model", "no such thing");
  folder.write("tokenizer.json", fixture()["precompiled"]["tokenizer"].dump());
  EXPECT_GT(Tokenizer::load(folder.path()).token_count(), 0);
}

TEST(SentencePiece, BosAndControlPieces) {
  const std::string model = model_named("bpe_bytes");
  const Tokenizer tokenizer = load(model);
  const int32_t bos = tokenizer.bos_id().value();
  EXPECT_EQ(tokenizer.token(bos), "<s>");
  EXPECT_EQ(tokenizer.token(tokenizer.eos_id().value()), "</s>");
  EXPECT_TRUE(tokenizer.adds_bos());
  const Ids the = tokenizer.encode("the", false);
  Ids with_bos = the;
  with_bos.insert(with_bos.begin(), bos);
  EXPECT_EQ(tokenizer.encode("the", true), with_bos);
  EXPECT_EQ(load(model, R"({"add_bos_token": false})").encode("the", true), the);
  // A control piece is a token; what follows gets no space of its own unless the tokenizer is a legacy one.
  const Ids ids = tokenizer.encode("<s>the", false);
  ASSERT_EQ(ids.at(0), bos);
  EXPECT_EQ(tokenizer.decode(ids, true), "the");
  EXPECT_NE(ids, with_bos);
  EXPECT_EQ(load(model, R"({"legacy": true})").encode("<s>the", false), with_bos);
  EXPECT_EQ(tokenizer.special_tokens().at("bos_token"), "<s>");
}

// The fields of protobuf that a broken or hostile file may be made of.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += char(value | 0x80);
  return out + char(value);
}
std::string field(uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string field(uint64_t number, uint64_t value) {
  return varint(number << 3) + varint(value);
}
std::string piece(const std::string& text, uint64_t type = 1) {
  return field(1, field(1, text) + field(3, type));
}

TEST(SentencePiece, BrokenFilesAreRefusedWithWhatIsWrong) {
  const std::string good = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece("a");
  EXPECT_EQ(parse_sentencepieces(good, "x").pieces.size(), 4u);
  const std::pair<std::string, const char*> broken[] = {
      {"", "no pieces"},
      {piece("a"), "exactly one piece must be of type 2"},
      {good + piece("<unk>", 2), "exactly one piece must be of type 2"},
      {good + piece("b", 9), "has the type 9"},
      {good + piece(""), "piece 4 is empty"},
      {good + piece("\xff"), "piece 4 is not UTF-8"},
      {good + field(1, field(1, "b") + varint(2 << 3 | 5) + std::string("\x00\x00\x80\x7f", 4)), "has the score inf"},
      {good + field(1, field(1, uint64_t(5))), "field 1 is no text"},
      {good + field(1, uint64_t(5)), "field 1 is no message"},
      {good + "\x0a", "1 bytes are wanted and 0 are left"},
      {good + "\x0a" + varint(uint64_t(1) << 62), "bytes are wanted and 0 are left"},
      {good + "\x0b", "a field of type 3"},
      {good + std::string(11, '\xff'), "more than 64 bits"},
      {good + field(2, field(3, uint64_t(4))), "model_type is 4"},
      {good + field(2, field(41, uint64_t(100))), "id 100 of BOS"},
      {good + field(2, field(24, uint64_t(1))), "treat_whitespace_as_suffix"},
      {good + field(3, field(5, uint64_t(0))), "escape_whitespaces"},
  };
  for (const auto& [data, message] : broken)
    EXPECT_THAT([&] { parse_sentencepieces(data, "x.model"); }, ThrowsMessage<Error>(HasSubstr(message)));
  EXPECT_THAT([&] { load(good + piece("a")); }, ThrowsMessage<Error>(HasSubstr("tokenizer.model")));
  EXPECT_THAT([&] { load(good + field(3, field(2, "abc"))); }, ThrowsMessage<Error>(HasSubstr("no character map")));
  EXPECT_THAT([&] { load(good + field(3, field(2, std::string("\x10\0\0\0ab", 6)))); },
              ThrowsMessage<Error>(HasSubstr("trie has 16 bytes, of 2")));
}

// Any change of any byte gives another tokenizer or an Error, never a fault, and text that is UTF-8.
TEST(SentencePiece, DamagedFilesDoNoHarm) {
  std::mt19937 random(3);
  for (const char* name : {"bpe_rules", "unigram_rules"}) {
    const std::string model = model_named(name);
    for (int round = 0; round < 150; ++round) {
      std::string damaged = model;
      for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = char(random());
      if (round % 5 == 0) damaged.resize(random() % damaged.size());
      try {
        const Tokenizer tokenizer = load(damaged);
        EXPECT_TRUE(
            unicode::is_valid(tokenizer.decode(tokenizer.encode("e\xcc\x81 ... \xef\xbd\xa1 the\r\n", true), true)));
      } catch (const Error&) {
      }
    }
  }
}

// A trie of random units: whatever it says, matches end at characters and lie inside.
TEST(Charsmap, RandomTriesDoNoHarm) {
  std::mt19937 random(4);
  const std::string text = "a\xcc\x81\xe4\xbd\xa0 b\xf0\x9f\x98\x80";
  for (int round = 0; round < 2000; ++round) {
    std::string data(4 + 4 * 64, '\0');
    data[1] = 1;
    for (size_t i = 4; i < data.size(); i += 4) {
      uint32_t unit = random();
      if (round % 2 == 0) unit = (unit & 0x1ff) | (unit % 64) << 10;
      for (int byte = 0; byte < 4; ++byte) data[i + size_t(byte)] = char(unit >> 8 * byte);
    }
    const Charsmap charsmap(data + "x\xc3\xa9" + std::string(1, '\0') + "y", "x");
    for (size_t at = 0; at < text.size(); ++at) {
      if ((text[at] & 0xc0) == 0x80) continue;
      const auto match = charsmap.longest(std::string_view(text).substr(at));
      EXPECT_TRUE(unicode::is_valid(text.substr(at, match.bytes)));
      EXPECT_TRUE(unicode::is_valid(match.becomes));
    }
    std::string copy = text;
    apply_by_grapheme(charsmap, copy);
    EXPECT_TRUE(unicode::is_valid(copy));
  }
}

TEST(Base64, ReadsAndRefuses) {
  EXPECT_EQ(from_base64(""), "");
  EXPECT_EQ(from_base64("Zg=="), "f");
  EXPECT_EQ(from_base64("Zm9v"), "foo");
  EXPECT_EQ(from_base64("+/8="), "\xfb\xff");
  EXPECT_EQ(from_base64("Zm9v\n"), std::nullopt);
}

}  // namespace
}  // namespace medley
