#include "tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace medley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  RegexMatches found(regex, text);
  std::vector<std::string> out;
  for (Regex::Match match; found.next(match);) out.emplace_back(text.substr(match.begin, match.end - match.begin));
  return out;
}

TEST(Regex, ReadsRubysSyntax) {
  EXPECT_THAT(matches("\\h+", "xyz12afG"), ElementsAre("12af"));        // hexadecimal, not horizontal space
  EXPECT_THAT(matches("^b$", "a\nb\nc"), ElementsAre("b"));             // every line
  EXPECT_THAT(matches("\\s", "a\u180e\u3000"), ElementsAre("\u3000"));  // U+180E is no white space any more
  EXPECT_THAT(matches("[^\\s]+", "a\u180e b"), ElementsAre("a\u180e", "b"));
  EXPECT_THAT(matches("\\S+", "a\u180e b"), ElementsAre("a\u180e", "b"));
  EXPECT_THAT(matches("\\w+", "a_\u0301-\u203f"), ElementsAre("a_\u0301", "\u203f"));
  EXPECT_THAT(matches("\\u0041+", "AAB"), ElementsAre("AA"));
  EXPECT_THAT(matches("\\p{Letter}+\\p{^L}", "ab1"), ElementsAre("ab1"));
  EXPECT_THAT(matches("\\p{Han}+", "\u4f60\u3002"), ElementsAre("\u4f60"));  // scripts, not their extensions
  EXPECT_THAT(matches("[]a]+", "]a"), ElementsAre("]a"));
}

TEST(Regex, ClassesInClasses) {
  EXPECT_THAT(matches("[\\p{L}&&[^\\p{Han}]]+", "ab\u4f60c"), ElementsAre("ab", "c"));
  EXPECT_THAT(matches("[a-c[x-z]]+", "abz-m"), ElementsAre("abz"));
  EXPECT_THAT(matches("[^a[bc]]+", "abcdef"), ElementsAre("def"));
  EXPECT_THAT(matches("[[:alpha:]]+", "ab1"), ElementsAre("ab"));
  EXPECT_THAT(matches("[a-z&&b-y&&[^m]]+", "abmz"), ElementsAre("b"));
}

TEST(Regex, EmptyMatchesAfterAMatchAreSkipped) {
  EXPECT_THAT(matches("x*", "xxa"), ElementsAre("xx", ""));  // after "a", not right after "xx"
  EXPECT_THAT(matches("(?=b)", "ab"), ElementsAre(""));
  EXPECT_THAT(matches("", "\u4f60"), ElementsAre("", ""));
}

TEST(Regex, LiteralsHaveNoSyntax) {
  Regex::Match match;
  EXPECT_TRUE(Regex::literal(".+", "test").find("a.+b", 0, match));
  EXPECT_EQ(match.begin, 1u);
  EXPECT_FALSE(Regex::literal("a.b", "test").find("axb", 0, match));
}

TEST(Regex, WhatExplodesIsGivenUp) {
  const Regex regex("(a+)+$", "tokenizer.json: pre_tokenizer.Split");
  Regex::Match match;
  EXPECT_THAT([&] { regex.find(std::string(60, 'a') + "b", 0, match); },
              ThrowsMessage<Error>(HasSubstr("pre_tokenizer.Split: the regex (a+)+$ gave up")));
  EXPECT_TRUE(Regex("(?:a|b)+", "test").find(std::string(1'000'000, 'a'), 0, match));  // deep, but not exploding
  EXPECT_EQ(match.end, 1'000'000u);
}

TEST(Regex, ErrorsNameTheComponent) {
  for (const char* bad : {"(", "[a", "\\", "[a-", "\\p{Nothing}", "[[[", "a{2", "(?<n>"}) {
    if (std::string_view(bad) == "a{2") continue;  // literal braces
    EXPECT_THAT([&] { Regex(bad, "the file: Split"); }, ThrowsMessage<Error>(HasSubstr("the file: Split"))) << bad;
  }
}

}  // namespace
}  // namespace medley
