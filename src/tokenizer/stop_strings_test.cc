#include "tokenizer/stop_strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"

namespace medley {
namespace {

TEST(StopStrings, HoldsBackOnlyWhatMayStop) {
  StopStrings stops({"</s>", "<|end|>"}, false);
  EXPECT_EQ(stops.push("hello <").text, "hello ");
  EXPECT_EQ(stops.push("b").text, "<b");
  EXPECT_EQ(stops.push("</s").text, "");
  EXPECT_EQ(stops.held_bytes(), 3u);
  const auto last = stops.push("> more");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.which, 0);
}

TEST(StopStrings, TheStopStringMayBeKept) {
  StopStrings stops({"END"}, true);
  EXPECT_EQ(stops.push("a E").text, "a ");
  EXPECT_EQ(stops.push("NDb").text, "END");
}

TEST(StopStrings, TextThatEndsByItselfIsShownWhole) {
  StopStrings stops({"abc"}, false);
  EXPECT_EQ(stops.push("xab").text, "x");
  EXPECT_EQ(stops.finish(), "ab");
}

TEST(StopStrings, OfSeveralAtOnePlaceTheLongestCounts) {
  StopStrings stops({"c", "abc", "zbc"}, false);
  const auto result = stops.push("xabc");
  EXPECT_EQ(result.text, "x");
  EXPECT_EQ(result.which, 1);
}

TEST(StopStrings, AnEmptyOneIsRefused) {
  EXPECT_THROW(StopStrings({"a", ""}, false), Error);
}

TEST(StopStrings, NoneAtAllPassesEverything) {
  StopStrings stops({}, false);
  EXPECT_EQ(stops.push("abc").text, "abc");
  EXPECT_EQ(stops.finish(), "");
}

// By definition: the earliest end, of those the longest.
std::pair<std::string, int> expected_of(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int which = -1;
    for (size_t i = 0; i < stops.size(); ++i)
      if (std::string_view(text).substr(0, end).ends_with(stops[i]) &&
          (which < 0 || stops[i].size() > stops[size_t(which)].size()))
        which = int(i);
    if (which >= 0) return {text.substr(0, include ? end : end - stops[size_t(which)].size()), which};
  }
  return {text, -1};
}

RC_GTEST_PROP(StopStrings, CutsDoNotMatter, ()) {
  const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c'));
  const auto stops = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(letters)));
  const auto pieces = *rc::gen::container<std::vector<std::string>>(letters);
  const bool include = *rc::gen::arbitrary<bool>();
  std::string text, shown;
  for (const auto& piece : pieces) text += piece;
  StopStrings machine(stops, include);
  int which = -1;
  for (const auto& piece : pieces) {
    const auto result = machine.push(piece);
    shown += result.text;
    if (result.stopped) {
      which = result.which;
      break;
    }
  }
  if (which < 0) shown += machine.finish();
  const auto expected = expected_of(text, stops, include);
  RC_ASSERT(shown == expected.first);
  if (which >= 0)  // equal stop strings have two numbers
    RC_ASSERT(stops[size_t(which)] == stops[size_t(expected.second)]);
  else
    RC_ASSERT(expected.second == -1);
}

}  // namespace
}  // namespace medley
