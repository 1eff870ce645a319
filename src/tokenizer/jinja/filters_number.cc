// Filters that make numbers.
#include <charconv>
#include <cmath>
#include <optional>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

std::optional<double> parsed_real(std::string_view text) {
  text = stripped(text, Side::both);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<int64_t> parsed_integer(std::string_view text, int base) {
  text = stripped(text, Side::both);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string_view prefix = text.substr(0, 2);
  if ((base == 16 && (prefix == "0x" || prefix == "0X")) || (base == 8 && (prefix == "0o" || prefix == "0O")) ||
      (base == 2 && (prefix == "0b" || prefix == "0B")))
    text.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.starts_with('-') || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<int64_t> truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return int64_t(value);
}

Value to_int(Interpreter&, Arguments& arguments) {
  const ArgReader args("int", arguments, {"value", "default", "base"}, 1);
  const Value& value = args.at(0);
  const int64_t base = args.integer(2, 10);
  if (base < 2 || base > 36) raise("int: the base must be 2 to 36");
  std::optional<int64_t> made;
  if (value.is_int() || value.is_bool()) made = value.integer();
  if (value.is_float()) made = truncated(value.real());
  if (value.is_string()) {
    made = parsed_integer(value.text(), int(base));
    if (const auto real = made ? std::nullopt : parsed_real(value.text())) made = truncated(*real);
  }
  return made ? Value(*made) : args.value(1, Value(0));
}

Value to_float(Interpreter&, Arguments& arguments) {
  const ArgReader args("float", arguments, {"value", "default"}, 1);
  const Value& value = args.at(0);
  if (value.is_number()) return Value(value.real());
  const auto made = value.is_string() ? parsed_real(value.text()) : std::nullopt;
  return made ? Value(*made) : args.value(1, Value(0.0));
}

Value absolute(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("abs", arguments, {"x"}, 1);
  const Value& value = args.at(0);
  if (value.is_float()) return Value(std::abs(value.real()));
  const int64_t number = integer_of(value, "abs");
  return number < 0 ? binary_operation(interpreter, "-", Value(0), Value(number)) : Value(number);
}

Value round(Interpreter&, Arguments& arguments) {
  const ArgReader args("round", arguments, {"value", "precision", "method"}, 1);
  if (!args.at(0).is_number()) raise("round: expected a number, found {}", type_name(args.at(0)));
  const int64_t precision = args.integer(1);
  const std::string method = args.text(2, "common");
  if (precision < -300 || precision > 300) raise("round: the precision must be -300 to 300");
  const double value = args.at(0).real(), scale = std::pow(10.0, double(precision));
  if (method == "ceil") return Value(std::ceil(value * scale) / scale);
  if (method == "floor") return Value(std::floor(value * scale) / scale);
  if (method != "common") raise("round: the method must be common, ceil or floor");
  if (args.at(0).is_int() && precision >= 0) return args.at(0);
  if (precision < 0) return Value(std::nearbyint(value * scale) / scale);
  // As Python rounds: to the nearest decimal, halves of the exact value to even. printf does just that.
  return Value(*parsed_real(fmt::format("{:.{}f}", value, precision)));
}

std::string file_size(double bytes, bool binary) {
  const double base = binary ? 1024 : 1000;
  static constexpr const char* units[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  if (bytes == 1) return "1 Byte";
  if (bytes < base) return fmt::format("{} Bytes", int64_t(bytes));
  double unit = base;
  size_t i = 0;
  for (; i < 7 && bytes >= unit * base; ++i) unit *= base;
  std::string name = units[i];
  if (binary) name = std::string(i == 0 ? "K" : units[i]) + "i";
  return fmt::format("{:.1f} {}B", bytes / unit, name);
}

Value file_size_format(Interpreter&, Arguments& arguments) {
  const ArgReader args("filesizeformat", arguments, {"value", "binary"}, 1);
  const auto bytes = args.at(0).is_number() ? std::optional(args.at(0).real()) : parsed_real(str(args.at(0)));
  if (!bytes) raise("filesizeformat: expected a number, found {}", type_name(args.at(0)));
  return Value(file_size(*bytes, args.flag(1)));
}

Value length(Interpreter&, Arguments& arguments) {
  const ArgReader args("length", arguments, {"value"}, 1);
  const Value& value = args.at(0);
  if (value.is_undefined()) return Value(0);
  if (value.is_string()) return Value(int64_t(unicode::count(value.text())));
  if (value.is_dict()) return Value(int64_t(value.dict().items.size()));
  if (value.is_list() && value.list().type != List::Type::generator) return Value(int64_t(value.list().items.size()));
  raise("object of type '{}' has no len()", type_name(value));
}

}  // namespace

void add_number_filters(Filters& filters) {
  filters["int"] = to_int;
  filters["float"] = to_float;
  filters["abs"] = absolute;
  filters["round"] = round;
  filters["filesizeformat"] = file_size_format;
  filters["length"] = filters["count"] = length;
}

}  // namespace medley::jinja
