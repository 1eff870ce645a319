// utf8proc knows the decompositions and compositions; this file keeps it to the stretches that need it. A character is
// inert in a form if it is a starter, normalises to itself and composes with nothing before it: text may be cut before
// it. All-inert text, nearly every text, is only scanned.
#include "tokenizer/unicode_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <vector>

#include "base/error.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unicode_versions.h"

namespace medley::unicode {
namespace {

constexpr utf8proc_int32_t code_end = 0x110000;
using Codes = std::vector<utf8proc_int32_t>;

bool composes(Form form) {
  return form == Form::nfc || form == Form::nfkc;
}

utf8proc_option_t options_of(Form form) {
  int options = UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  return utf8proc_option_t(options);
}

int combining_class(utf8proc_int32_t code) {
  const int found = utf8proc_get_property(code)->combining_class;
  return found != 0 && has_no_normal_form(char32_t(code)) ? 0 : found;
}

void append_decomposed(utf8proc_int32_t code, Form form, Codes& out) {
  if (has_no_normal_form(char32_t(code))) return out.push_back(code);
  std::array<utf8proc_int32_t, 32> buffer;  // the longest decomposition in Unicode has 18 characters
  int last_boundclass = 0;
  const utf8proc_option_t options = utf8proc_option_t((options_of(form) & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
  const auto n = utf8proc_decompose_char(code, buffer.data(), buffer.size(), options, &last_boundclass);
  MEDLEY_CHECK(n >= 0 && size_t(n) <= buffer.size());
  out.insert(out.end(), buffer.begin(), buffer.begin() + n);
}

// Canonical order: runs of non-starters, stably by class. Not utf8proc's own, which is quadratic in the run's length.
void sort_marks(Codes& codes) {
  for (size_t i = 0; i < codes.size();) {
    if (combining_class(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + ptrdiff_t(i), codes.begin() + ptrdiff_t(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

void compose(Codes& codes, Form form) {
  const auto n = utf8proc_normalize_utf32(codes.data(), utf8proc_ssize_t(codes.size()), options_of(form));
  MEDLEY_CHECK(n >= 0);
  codes.resize(size_t(n));
}

struct Inert {
  std::bitset<code_end> bits;

  explicit Inert(Form form) {
    bits.set();
    Codes codes;
    for (utf8proc_int32_t code = 0x80; code < code_end; ++code) {
      if (code >= 0xd800 && code < 0xe000) continue;  // surrogates are not in valid UTF-8
      codes.clear();
      append_decomposed(code, form, codes);
      const bool starter = combining_class(code) == 0;
      if (codes.size() == 1 && codes[0] == code) {
        if (!starter) bits.reset(size_t(code));
        continue;
      }
      const utf8proc_int32_t last = codes.back();
      const bool several = codes.size() > 1;
      if (composes(form)) compose(codes, form);
      const bool same = codes.size() == 1 && codes[0] == code;
      if (!same || !starter) bits.reset(size_t(code));
      if (same && several) bits.reset(size_t(last));  // something composes with it
    }
  }
};

const Inert& inert_in(Form form) {
  static const auto make = [](Form f) { return std::make_unique<const Inert>(f); };
  switch (form) {  // built on first use: about 20 ms and 136 KB each
    case Form::nfc: {
      static const auto table = make(Form::nfc);
      return *table;
    }
    case Form::nfd: {
      static const auto table = make(Form::nfd);
      return *table;
    }
    case Form::nfkc: {
      static const auto table = make(Form::nfkc);
      return *table;
    }
    case Form::nfkd: break;
  }
  static const auto table = make(Form::nfkd);
  return *table;
}

// Normalises [begin, end) of `text` onto `out`.
void normalize_stretch(std::string_view stretch, Form form, Codes& codes, std::string& out) {
  codes.clear();
  while (!stretch.empty()) {
    const Char c = next(stretch);
    append_decomposed(utf8proc_int32_t(c.code), form, codes);
    stretch.remove_prefix(c.bytes);
  }
  sort_marks(codes);
  if (composes(form)) compose(codes, form);
  for (const auto code : codes) append(out, char32_t(code));
}

}  // namespace

void normalize(std::string& text, Form form) {
  if (is_ascii(text)) return;
  const auto& inert = inert_in(form).bits;
  const std::string_view all = text;
  std::string out;
  Codes codes;
  size_t copied = 0;      // text before this is in `out`
  size_t last_inert = 0;  // start of the last character text may be cut before
  for (size_t at = 0; at < all.size();) {
    const Char c = next(all.substr(at));
    if (inert[c.code]) {
      last_inert = at;
      at += c.bytes;
      continue;
    }
    size_t end = at + c.bytes;
    while (end < all.size()) {
      const Char following = next(all.substr(end));
      if (inert[following.code]) break;
      end += following.bytes;
    }
    if (out.empty()) out.reserve(all.size() + all.size() / 8);
    const size_t begin = std::max(last_inert, copied);
    out.append(all, copied, begin - copied);
    normalize_stretch(all.substr(begin, end - begin), form, codes, out);
    copied = last_inert = at = end;
  }
  if (copied == 0) return;
  out.append(all, copied);
  text = std::move(out);
}

}  // namespace medley::unicode
