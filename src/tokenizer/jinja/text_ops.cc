#include "tokenizer/jinja/text_ops.h"

#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

template <class Each>
void each_char(std::string_view text, Each each) {
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    each(c.code, text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
}

void append_upper(std::string& out, char32_t code) {
  // The one common letter whose capital is two.
  code == 0xdf ? void(out += "SS") : unicode::append(out, unicode::upper(code));
}

void append_title(std::string& out, char32_t code) {
  code == 0xdf ? void(out += "Ss") : unicode::append(out, char32_t(utf8proc_totitle(utf8proc_int32_t(code))));
}

void append_lower(std::string& out, char32_t code) {
  code == 0x130 ? void(out += "i\xcc\x87") : unicode::append(out, unicode::lower(code));
}

bool is_cased(char32_t code) {
  return unicode::lower(code) != code || unicode::upper(code) != code;
}

size_t last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return at;
}

template <class Drop>
std::string_view strip_while(std::string_view text, Side side, Drop drop) {
  while (int(side) & int(Side::left) && !text.empty() && drop(text.substr(0, unicode::length_of(text[0]))))
    text.remove_prefix(unicode::length_of(text[0]));
  while (int(side) & int(Side::right) && !text.empty() && drop(text.substr(last_char(text))))
    text = text.substr(0, last_char(text));
  return text;
}

}  // namespace

bool is_python_space(char32_t code) {
  return unicode::is_white_space(code) || (code >= 0x1c && code <= 0x1f);
}

std::string to_lower(std::string_view text) {
  std::string out;
  each_char(text, [&](char32_t code, std::string_view) { append_lower(out, code); });
  return out;
}

std::string to_upper(std::string_view text) {
  std::string out;
  each_char(text, [&](char32_t code, std::string_view) { append_upper(out, code); });
  return out;
}

std::string capitalized(std::string_view text) {
  std::string out;
  each_char(text,
            [&](char32_t code, std::string_view) { out.empty() ? append_title(out, code) : append_lower(out, code); });
  return out;
}

std::string titled(std::string_view text) {
  std::string out;
  bool after_cased = false;
  each_char(text, [&](char32_t code, std::string_view) {
    after_cased ? append_lower(out, code) : append_title(out, code);
    after_cased = is_cased(code);
  });
  return out;
}

std::string_view stripped(std::string_view text, Side side) {
  return strip_while(text, side, [](std::string_view c) { return is_python_space(unicode::next(c).code); });
}

std::string_view stripped(std::string_view text, Side side, std::string_view chars) {
  return strip_while(text, side, [&](std::string_view c) { return chars.find(c) != std::string_view::npos; });
}

std::vector<std::string> split_on_space(std::string_view text, int64_t max_splits) {
  std::vector<std::string> parts;
  for (text = stripped(text, Side::left); !text.empty(); text = stripped(text, Side::left)) {
    size_t end = 0;
    while (end < text.size() && !is_python_space(unicode::next(text.substr(end)).code))
      end += unicode::length_of(text[end]);
    if (max_splits >= 0 && int64_t(parts.size()) == max_splits) {  // the rest, as it is up to its last white space
      parts.emplace_back(stripped(text, Side::right));
      break;
    }
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string> rsplit_on_space(std::string_view text, int64_t max_splits) {
  std::vector<std::string> parts;
  for (text = stripped(text, Side::right); !text.empty(); text = stripped(text, Side::right)) {
    size_t begin = text.size();
    while (begin > 0 && !is_python_space(unicode::next(text.substr(last_char(text.substr(0, begin)))).code))
      begin = last_char(text.substr(0, begin));
    if (max_splits >= 0 && int64_t(parts.size()) == max_splits) {
      parts.emplace_back(stripped(text, Side::left));
      break;
    }
    parts.emplace_back(text.substr(begin));
    text = text.substr(0, begin);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_on(std::string_view text, std::string_view separator, int64_t max_splits) {
  if (separator.empty()) raise("empty separator");
  std::vector<std::string> parts;
  for (size_t at; (max_splits < 0 || int64_t(parts.size()) < max_splits) &&
                  (at = text.find(separator)) != std::string_view::npos;) {
    parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.emplace_back(text);
  return parts;
}

std::vector<std::string> rsplit_on(std::string_view text, std::string_view separator, int64_t max_splits) {
  if (separator.empty()) raise("empty separator");
  std::vector<std::string> parts;
  for (size_t at; (max_splits < 0 || int64_t(parts.size()) < max_splits) &&
                  (at = text.rfind(separator)) != std::string_view::npos;) {
    parts.emplace_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const unicode::Char c = unicode::next(text.substr(at));
    const bool ends = (c.code >= 0x0a && c.code <= 0x0d) || (c.code >= 0x1c && c.code <= 0x1e) || c.code == 0x85 ||
                      c.code == 0x2028 || c.code == 0x2029;
    size_t next = at + c.bytes;
    if (ends) {
      if (c.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.emplace_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  int64_t done = 0;
  if (from.empty()) {  // before each character and at the end
    each_char(text, [&](char32_t, std::string_view c) {
      if (count < 0 || done++ < count) out += to;
      out += c;
    });
    if (count < 0 || done < count) out += to;
    return out;
  }
  for (size_t at; (count < 0 || done < count) && (at = text.find(from)) != std::string_view::npos; ++done) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string padded(std::string_view text, int64_t width, Side where, std::string_view fill) {
  const int64_t missing = width - int64_t(unicode::count(text));
  if (missing <= 0) return std::string(text);
  // Python's center puts the odd one on the left only if the width is odd too.
  int64_t left = where == Side::left ? missing : where == Side::right ? 0 : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace medley::jinja
