#include "tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tokenizer/unicode_forms.h"
#include "tokenizer/unicode_versions.h"

namespace medley::unicode {
namespace {

// Expected texts are what Python's bytes.decode(errors="replace") gives.
TEST(Unicode, RepairReplacesTheLongestPrefixes) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(repaired("plain \xc3\xa9"), "plain \xc3\xa9");
  EXPECT_EQ(repaired("\xff"), r);
  EXPECT_EQ(repaired("a\xe4\xbd"), "a" + r);  // cut short: one for all of it
  EXPECT_EQ(repaired("\xf0\x9f\x98"
                     "a"),
            r + "a");
  EXPECT_EQ(repaired("\xe4\xbd\xe4\xbd\xa0"), r + "\xe4\xbd\xa0");
  EXPECT_EQ(repaired("\xed\xa0\x80"), r + r + r);          // a surrogate: no prefix of anything
  EXPECT_EQ(repaired("\xc0\x80"), r + r);                  // overlong
  EXPECT_EQ(repaired("\xf4\x90\x80\x80"), r + r + r + r);  // past U+10FFFF
  EXPECT_EQ(repaired("\x80\xbf"), r + r);
}

RC_GTEST_PROP(Unicode, RepairedTextIsValidAndValidTextStays, (const std::string& bytes)) {
  const std::string once = repaired(bytes);
  RC_ASSERT(is_valid(once));
  RC_ASSERT(repaired(once) == once);
  RC_ASSERT(is_valid(bytes) == (once == bytes));
}

// Cutting where incomplete_tail says changes nothing about how the bytes are read.
RC_GTEST_PROP(Unicode, TheTailIsAllThatIsUndecided, (const std::string& head, const std::string& rest)) {
  const size_t tail = incomplete_tail(head);
  RC_ASSERT(tail <= 3);
  const std::string sure = head.substr(0, head.size() - tail);
  RC_ASSERT(repaired(sure) + repaired(head.substr(sure.size()) + rest) == repaired(head + rest));
}

TEST(Unicode, TailOfEachPrefix) {
  EXPECT_EQ(incomplete_tail("\xf0\x9f\x98\x80"), 0u);
  EXPECT_EQ(incomplete_tail("\xf0\x9f\x98"), 3u);
  EXPECT_EQ(incomplete_tail("\xf0\x9f"), 2u);
  EXPECT_EQ(incomplete_tail("a\xf0"), 1u);
  EXPECT_EQ(incomplete_tail("\xf0\x20"), 0u);
  EXPECT_EQ(incomplete_tail("\xff"), 0u);
  EXPECT_EQ(incomplete_tail("\xed\xa0"), 0u);  // would be a surrogate
  EXPECT_EQ(incomplete_tail(""), 0u);
}

std::string form_of(std::string text, Form form) {
  normalize(text, form);
  return text;
}

TEST(Unicode, Forms) {
  EXPECT_EQ(form_of("e\xcc\x81", Form::nfc), "\xc3\xa9");
  EXPECT_EQ(form_of("\xc3\xa9x", Form::nfd), "e\xcc\x81x");
  EXPECT_EQ(form_of("\xef\xac\x81", Form::nfc), "\xef\xac\x81");  // a ligature stays
  EXPECT_EQ(form_of("\xef\xac\x81", Form::nfkc), "fi");
  EXPECT_EQ(form_of("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", Form::nfc), "\xea\xb0\x81");  // Hangul
  EXPECT_EQ(form_of("\xea\xb0\x81", Form::nfd), "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8");
  EXPECT_EQ(form_of("a\xcc\x81\xcc\xa7", Form::nfd), "a\xcc\xa7\xcc\x81");    // sorted by class
  EXPECT_EQ(form_of("\xe2\x84\xab", Form::nfc), "\xc3\x85");                  // the sign becomes the letter
  EXPECT_EQ(form_of("\xe0\xa5\x98", Form::nfc), "\xe0\xa4\x95\xe0\xa4\xbc");  // excluded from composition
}

RC_GTEST_PROP(Unicode, FormsAreStable, (const std::vector<uint16_t>& codes)) {
  std::string text;
  for (const uint16_t code : codes) {
    const char32_t c = code % 3 == 0 ? 0x300 + code % 0x70 : code;  // plenty of marks
    if (c < 0xd800 || c > 0xdfff) append(text, c);
  }
  for (const Form form : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd}) {
    const std::string once = form_of(text, form);
    RC_ASSERT(is_valid(once));
    RC_ASSERT(form_of(once, form) == once);
  }
  RC_ASSERT(form_of(form_of(text, Form::nfd), Form::nfc) == form_of(text, Form::nfc));
}

TEST(Unicode, StandInsKeepTheLength) {
  const std::string text = "a\xf0\x90\xb5\x8a\xe1\xb2\x89z";  // U+10D4A, U+1C89: of Unicode 16
  ASSERT_TRUE(needs_stand_ins(text));
  EXPECT_FALSE(needs_stand_ins("plain \xe4\xbd\xa0"));
  EXPECT_EQ(with_stand_ins(text).size(), text.size());
  EXPECT_FALSE(needs_stand_ins(with_stand_ins(text)));
}

}  // namespace
}  // namespace medley::unicode
