#include "tokenizer/byte_trie.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

namespace medley {
namespace {

std::map<size_t, int32_t> found(const ByteTrie& trie, std::string_view text) {
  std::map<size_t, int32_t> all;
  int32_t node = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    node = trie.step(node, static_cast<unsigned char>(text[at]));
    if (node < 0) break;
    if (trie.value(node) >= 0) all[at + 1] = trie.value(node);
  }
  return all;
}

TEST(ByteTrie, FindsAllStringsThatBeginAText) {
  std::mt19937 random(1);
  const auto below = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  for (const int letters : {1, 2, 5, 256}) {
    const auto text = [&] {
      std::string made;
      for (int i = below(12); i > 0; --i) made += char(below(letters) * (letters == 256 ? 1 : 51));
      return made;
    };
    std::map<std::string, int32_t> strings;
    for (int i = 0; i < 3000; ++i) strings.emplace(text(), int32_t(strings.size()));
    std::vector<ByteTrie::Entry> entries;
    for (const auto& [string, value] : strings) entries.push_back({string, value});
    std::shuffle(entries.begin(), entries.end(), random);
    const ByteTrie trie(entries);
    for (int i = 0; i < 3000; ++i) {
      const std::string any = text() + text();
      std::map<size_t, int32_t> expected;
      for (size_t size = 1; size <= any.size(); ++size)
        if (const auto at = strings.find(any.substr(0, size)); at != strings.end()) expected[size] = at->second;
      ASSERT_EQ(found(trie, any), expected);
    }
  }
}

TEST(ByteTrie, OfNothingFindsNothing) {
  using Entries = std::vector<ByteTrie::Entry>;
  EXPECT_TRUE(found(ByteTrie(Entries{}), std::string("\0\xff", 2)).empty());
  EXPECT_TRUE(found(ByteTrie(Entries{{"", 1}}), "a").empty());
}

}  // namespace
}  // namespace medley
