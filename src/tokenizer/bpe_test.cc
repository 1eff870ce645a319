#include "tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "tokenizer/plain_merge.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

using Ids = std::vector<int32_t>;

// Small vocabularies in which some characters have no token, and what becomes of those: their bytes, <unk>, one <unk>
// for several, nothing. The model cuts texts where no token joins two characters; the definition does not.
class SmallVocabulary {
 public:
  SmallVocabulary(std::mt19937& random, bool bytes, bool unk, bool fuse) : random_(random) {
    tables_.byte_fallback = bytes;
    tables_.fuse_unk = fuse;
    if (unk) tables_.unk = add("<unk>");
    for (int byte = 0; bytes && byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte));
    first_ = tables_.vocabulary.end_id();
    for (const char* c : characters) add(c);
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (int i = 0; i < 25; ++i) {
      const int32_t left = any_token(), right = any_token();
      const std::string text = text_of(left) + text_of(right);
      if (tables_.vocabulary.find(text)) continue;
      add(text);
      pairs.emplace_back(left, right);
    }
    std::shuffle(pairs.begin(), pairs.end(), random_);
    tables_.merges = MergeTable(pairs.size());
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto [left, right] = pairs[i];
      tables_.merges.set(left, right, {uint32_t(i / 2), *tables_.vocabulary.find(text_of(left) + text_of(right))});
    }
  }

  std::string any_text() {
    std::string text;
    for (int i = below(40); i > 0; --i)
      text += below(12) == 0 ? unknown[size_t(below(2))] : characters[size_t(below(6))];
    return text;
  }

  Ids plainly(std::string_view text) const {
    Ids ids;
    for (bool after_unknown = false; !text.empty();) {
      const std::string_view c = text.substr(0, unicode::length_of(text[0]));
      text.remove_prefix(c.size());
      const auto id = tables_.vocabulary.find(c);
      if (id) {
        ids.push_back(*id);
      } else if (tables_.byte_fallback) {
        for (const char byte : c)
          ids.push_back(*tables_.vocabulary.find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte))));
      } else if (tables_.unk && !(tables_.fuse_unk && after_unknown)) {
        ids.push_back(*tables_.unk);
      }
      after_unknown = !id;
    }
    return merged_plainly(tables_.merges, ids);
  }

  BpeModel model() const { return {tables_, false}; }

 private:
  static constexpr const char* characters[] = {"a", "b", "(", "\xe2\x96\x81", "\xc3\xa9", "\xe4\xba\xba"};
  static constexpr const char* unknown[] = {"z", "\xf0\x9f\x98\x80"};

  int below(int end) { return std::uniform_int_distribution<int>(0, end - 1)(random_); }
  int32_t any_token() { return first_ + below(tables_.vocabulary.end_id() - first_); }
  int32_t add(const std::string& text) {
    const int32_t id = tables_.vocabulary.end_id();
    tables_.vocabulary.add(text, id, "test");
    return id;
  }
  std::string text_of(int32_t id) const { return std::string(*tables_.vocabulary.token(id)); }

  std::mt19937& random_;
  BpeTables tables_;
  int32_t first_ = 0;
};

TEST(Bpe, CutsChangeNothing) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const bool bytes = round % 2, unk = round / 2 % 2, fuse = round / 4 % 2;
    SmallVocabulary vocabulary(random, bytes, unk, fuse);
    const BpeModel model = vocabulary.model();
    ModelScratch scratch;
    for (int i = 0; i < 40; ++i) {
      const std::string text = vocabulary.any_text();
      Ids ids;
      model.encode(text, scratch, ids);
      ASSERT_EQ(ids, vocabulary.plainly(text)) << text << " bytes " << bytes << " unk " << unk << " fuse " << fuse;
    }
  }
}

// A token that spells a byte's token and more: its merge joins what are other characters in the text.
TEST(Bpe, MergesOfByteTokensAreKept) {
  BpeTables tables;
  for (int byte = 0; byte < 256; ++byte) tables.vocabulary.add(fmt::format("<0x{:02X}>", byte), byte, "test");
  tables.vocabulary.add("a", 256, "test");
  tables.vocabulary.add("<0x7A>a", 257, "test");
  tables.byte_fallback = true;
  tables.merges = MergeTable(1);
  tables.merges.set(0x7a, 256, {0, 257});
  ModelScratch scratch;
  Ids ids;
  BpeModel(tables, false).encode("aza", scratch, ids);
  EXPECT_EQ(ids, (Ids{256, 257}));
}

}  // namespace
}  // namespace medley
