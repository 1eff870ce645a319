// Python's two ways of putting values into text: "%s" % x and "{}".format(x), as far as templates use them.
#include <algorithm>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

struct Spec {
  bool left = false, zero = false, sign = false;
  int width = 0, precision = -1;
  char type = 's';
};

// Digits at `at`, at most 4 of them.
int take_number(std::string_view text, size_t& at) {
  int number = 0;
  for (int count = 0; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number * 10 + (text[at] - '0');
    if (++count > 4) raise("a width or precision of more than 4 digits");
  }
  return number;
}

std::string number_text(const Value& value, const Spec& spec) {
  const bool integral =
      spec.type == 'd' || spec.type == 'i' || spec.type == 'x' || spec.type == 'X' || spec.type == 'o';
  if (!value.is_number()) raise("%{} format: a number is required, not {}", spec.type, type_name(value));
  if (integral) {
    const int64_t number = value.is_float() ? int64_t(std::clamp(value.real(), -9e18, 9e18)) : value.integer();
    const uint64_t size = number < 0 ? uint64_t(0) - uint64_t(number) : uint64_t(number);
    const std::string digits = spec.type == 'x'   ? fmt::format("{:x}", size)
                               : spec.type == 'X' ? fmt::format("{:X}", size)
                               : spec.type == 'o' ? fmt::format("{:o}", size)
                                                  : fmt::format("{}", size);
    return (number < 0 ? "-" : spec.sign ? "+" : "") + digits;
  }
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  const double real = value.real();
  const std::string sign = spec.sign && !(real < 0) ? "+" : "";
  if (spec.type == 'e') return sign + fmt::format("{:.{}e}", real, precision);
  if (spec.type == 'g') return sign + fmt::format("{:.{}g}", real, precision);
  if (spec.type == '%') return sign + fmt::format("{:.{}f}%", real * 100, precision);
  return sign + fmt::format("{:.{}f}", real, precision);
}

std::string placed(std::string text, const Spec& spec, bool number) {
  if (!spec.zero || !number || spec.left) return padded(text, spec.width, spec.left ? Side::right : Side::left, " ");
  const bool sign = text.starts_with('-') || text.starts_with('+');
  return text.substr(0, sign) + padded(text.substr(sign), spec.width - int(sign), Side::left, "0");
}

std::string formatted(const Value& value, const Spec& spec) {
  if (spec.type != 's' && spec.type != 'r') return placed(number_text(value, spec), spec, true);
  std::string text = spec.type == 'r' ? repr(value) : str(value);
  if (spec.precision >= 0) {
    size_t end = 0;
    for (int i = 0; i < spec.precision && end < text.size(); ++i) end += unicode::length_of(text[end]);
    text.resize(end);
  }
  return placed(std::move(text), spec, false);
}

}  // namespace

std::string percent_format(Interpreter& interpreter, const std::string& format, const Value& arguments) {
  const bool tuple = arguments.is_list() && arguments.list().type == List::Type::tuple;
  std::vector<Value> values = tuple ? arguments.list().items : std::vector<Value>{arguments};
  size_t used = 0;
  std::string out;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    if (++at == format.size()) raise("incomplete format");
    if (format[at] == '%') {
      out += format[at++];
      continue;
    }
    const Value* value = nullptr;
    if (format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == std::string::npos || !arguments.is_dict()) raise("format requires a mapping");
      value = arguments.dict().find_text(std::string_view(format).substr(at + 1, close - at - 1));
      if (!value) raise("format: the key '{}' is missing", format.substr(at + 1, close - at - 1));
      at = close + 1;
    }
    Spec spec;
    for (; at < format.size() && std::string_view("-0+ #").find(format[at]) != std::string_view::npos; ++at) {
      spec.left |= format[at] == '-';
      spec.zero |= format[at] == '0';
      spec.sign |= format[at] == '+';
    }
    spec.width = take_number(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = take_number(format, ++at);
    if (at == format.size()) raise("incomplete format");
    spec.type = format[at++];
    if (std::string_view("sdifxXorge").find(spec.type) == std::string_view::npos)
      raise("the format character '{}' is not supported", spec.type);
    if (!value) {
      if (used == values.size()) raise("not enough arguments for format string");
      value = &values[used++];
    }
    interpreter.charge(value->weight() + size_t(spec.width));
    out += formatted(*value, spec);
  }
  if (used < values.size() && !arguments.is_dict() && (tuple || used == 0))
    raise("not all arguments converted during string formatting");
  return out;
}

namespace {

Spec brace_spec(std::string_view text, const Value& value) {
  Spec spec;
  spec.type = value.is_number() && !value.is_bool() ? (value.is_float() ? 'g' : 'd') : 's';
  size_t at = 0;
  spec.left = spec.type == 's';
  if (at < text.size() && (text[at] == '<' || text[at] == '>')) spec.left = text[at++] == '<';
  if (at < text.size() && text[at] == '+') spec.sign = true, ++at;
  if (at < text.size() && text[at] == '0') spec.zero = true, ++at;
  spec.width = take_number(text, at);
  if (at < text.size() && text[at] == '.') spec.precision = take_number(text, ++at);
  if (at < text.size() && std::string_view("sdfegxXo%").find(text[at]) != std::string_view::npos)
    spec.type = text[at++];
  if (at != text.size()) raise("the format specification '{}' is not supported", text);
  return spec;
}

}  // namespace

std::string brace_format(Interpreter& interpreter, const std::string& format, Arguments& arguments) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out += format[at++];
      continue;
    }
    const size_t close = format.find('}', at);
    if (c == '}' || close == std::string::npos) raise("a single '{}' in a format string", c);
    std::string_view field = std::string_view(format).substr(at + 1, close - at - 1);
    const size_t colon = field.find(':');
    const std::string_view spec = colon == std::string_view::npos ? "" : field.substr(colon + 1);
    const std::string name(field.substr(0, colon));
    Value value;
    if (name.empty() || all_digits(name)) {
      const size_t index = name.empty()      ? next++
                           : name.size() < 5 ? size_t(std::stoi(name))
                                             : arguments.positional.size();
      if (index >= arguments.positional.size()) raise("format: there is no argument {}", index);
      value = arguments.positional[index];
    } else {
      const auto it = std::find_if(arguments.named.begin(), arguments.named.end(),
                                   [&](const auto& argument) { return argument.first == name; });
      if (it == arguments.named.end()) raise("format: there is no argument '{}'", name);
      value = it->second;
    }
    interpreter.charge(value.weight() + 10'000 * spec.size() / 8);
    out += spec.empty() ? str(value) : formatted(value, brace_spec(spec, value));
    at = close;
  }
  return out;
}

}  // namespace medley::jinja
