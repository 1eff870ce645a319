// Values as Python prints them.
#include <utf8proc.h>

#include <charconv>
#include <cmath>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/value.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

bool is_printable(char32_t code) {
  if (code < 0x7f) return code >= 0x20;
  switch (utf8proc_category(utf8proc_int32_t(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

std::string string_repr(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    if (c.code == '\\' || c.code == char32_t(quote))
      out.append({'\\', char(c.code)});
    else if (c.code == '\n')
      out += "\\n";
    else if (c.code == '\r')
      out += "\\r";
    else if (c.code == '\t')
      out += "\\t";
    else if (is_printable(c.code))
      out += text.substr(0, c.bytes);
    else if (c.code < 0x100)
      out += fmt::format("\\x{:02x}", uint32_t(c.code));
    else
      out += c.code < 0x10000 ? fmt::format("\\u{:04x}", uint32_t(c.code)) : fmt::format("\\U{:08x}", uint32_t(c.code));
    text.remove_prefix(c.bytes);
  }
  return out + quote;
}

std::string list_repr(const List& list) {
  const bool tuple = list.type == List::Type::tuple;
  if (list.type == List::Type::generator) return "<generator object>";
  std::string out = tuple ? "(" : "[";
  for (size_t i = 0; i < list.items.size(); ++i) out += (i ? ", " : "") + repr(list.items[i]);
  if (tuple && list.items.size() == 1) out += ",";
  return out + (tuple ? ")" : "]");
}

std::string dict_repr(const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.items) {
    if (out.size() > 1) out += ", ";
    out += repr(key) + ": " + repr(value);
  }
  return out + "}";
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0.0" : "0.0";
  char buffer[40];
  // The shortest text that reads back as the value. Python writes an exponent below 1e-4 and from 1e16 on.
  const bool scientific = std::abs(value) < 1e-4 || std::abs(value) >= 1e16;
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, format).ptr;
  std::string text(buffer, end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string str(const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_string()) return value.text();
  return repr(value);
}

std::string repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.flag() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_float()) return float_repr(value.real());
  if (value.is_string()) return string_repr(value.text());
  if (value.is_list()) return list_repr(value.list());
  if (value.is_dict()) return dict_repr(value.dict());
  if (value.is_object()) return value.object()->repr();
  return "<function " + value.callable().name + ">";
}

}  // namespace medley::jinja
