// Arithmetic, `in` and slices.
#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

[[noreturn]] void unsupported(const std::string& op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right})
    if (side->is_undefined()) raise("{}", side->why());
  raise("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(left), type_name(right));
}

int64_t checked(bool overflow, int64_t value) {
  if (overflow) raise("an integer past 64 bits");
  return value;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) raise("division by zero");
  if (b == -1) {
    int64_t out = 0;
    return checked(__builtin_sub_overflow(int64_t(0), a, &out), out);
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) raise("0 cannot be raised to a negative power");
    return Value(std::pow(double(base), double(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t(1) : base);
  if (base == -1) return Value(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {  // overflows within 63 steps
    const bool overflow = __builtin_mul_overflow(result, base, &result);
    checked(overflow, result);
  }
  return Value(result);
}

Value integers(const std::string& op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+") {
    const bool overflow = __builtin_add_overflow(a, b, &out);
    return Value(checked(overflow, out));
  }
  if (op == "-") {
    const bool overflow = __builtin_sub_overflow(a, b, &out);
    return Value(checked(overflow, out));
  }
  if (op == "*") {
    const bool overflow = __builtin_mul_overflow(a, b, &out);
    return Value(checked(overflow, out));
  }
  if (op == "//") return Value(floor_divide(a, b));
  if (op == "%") return Value(b == -1 ? int64_t(0) : a - b * floor_divide(a, b));
  if (op == "**") return power(a, b);
  if (b == 0) raise("division by zero");
  return Value(double(a) / double(b));
}

Value reals(const std::string& op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) raise("division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

// 'ab' * 3, [0] * 3
Value repeated(Interpreter& interpreter, const Value& value, int64_t count) {
  const auto times = size_t(std::max<int64_t>(count, 0));
  const size_t size = value.is_string() ? value.text().size() : value.list().items.size() * sizeof(Value);
  if (size != 0 && times > interpreter.options().limits.value_bytes / size) raise("a repetition that is too long");
  interpreter.charge(size * times);
  if (value.is_string()) {
    std::string text;
    for (size_t i = 0; size != 0 && i < times; ++i) text += value.text();
    return Value(std::move(text));
  }
  std::vector<Value> items;
  for (size_t i = 0; size != 0 && i < times; ++i)
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  return make_list(std::move(items), value.list().type);
}

Value joined(Interpreter& interpreter, const List& left, const List& right) {
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  interpreter.charge(items.size() * sizeof(Value));
  return make_list(std::move(items), left.type);
}

// Python's rules for the bounds of a slice of `size` items.
struct Bounds {
  int64_t start, stop, step;
};

Bounds bounds_of(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const auto number = [](const Value& value, int64_t fallback) {
    return value.is_none() ? fallback : integer_of(value, "a slice");
  };
  const int64_t by = std::clamp(number(step, 1), -size - 1, size + 1);  // as far as any step goes
  if (by == 0) raise("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto clamp = [&](const Value& value, int64_t fallback) {
    int64_t at = number(value, fallback);
    if (value.is_none()) return at;
    if (at < 0) at = at < -size ? -size - 1 + size : at + size;
    return std::clamp(at, low, high);
  };
  return {clamp(start, by > 0 ? low : high), clamp(stop, by > 0 ? high : low), by};
}

}  // namespace

Value binary_operation(Interpreter& interpreter, const std::string& op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_float() || right.is_float()) return reals(op, left.real(), right.real());
    return integers(op, left.integer(), right.integer());
  }
  if (op == "+" && left.is_string() && right.is_string()) {
    if (left.is_markup() != right.is_markup()) {
      const std::string other = html_escaped((left.is_markup() ? right : left).text());
      interpreter.charge(left.text().size() + right.text().size() + other.size());
      return Value::markup(left.is_markup() ? left.text() + other : other + right.text());
    }
    interpreter.charge(left.text().size() + right.text().size());
    return left.is_markup() ? Value::markup(left.text() + right.text()) : Value(left.text() + right.text());
  }
  if (op == "+" && left.is_list() && right.is_list() && left.list().type == right.list().type &&
      left.list().indexable())
    return joined(interpreter, left.list(), right.list());
  const auto repeatable = [](const Value& value) {
    return value.is_string() || (value.is_list() && value.list().indexable());
  };
  const auto count = [](const Value& value) { return value.is_int() || value.is_bool(); };
  if (op == "*" && repeatable(left) && count(right)) return repeated(interpreter, left, right.integer());
  if (op == "*" && count(left) && repeatable(right)) return repeated(interpreter, right, left.integer());
  if (op == "%" && left.is_string()) return Value(percent_format(interpreter, left.text(), right));
  unsupported(op, left, right);
}

bool contains(Interpreter& interpreter, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    if (item.is_undefined()) raise("{}", item.why());
    if (!item.is_string()) raise("'in <string>' requires string as left operand, not {}", type_name(item));
    interpreter.step(int64_t(container.text().size() / 256));
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is_dict()) return !item.is_undefined() && container.dict().find(item) != nullptr;
  if (!container.is_list()) raise("argument of type '{}' is not iterable", type_name(container));
  const std::vector<Value> items = items_of(container);
  interpreter.step(int64_t(std::min(container.weight(), items.size() * item.weight()) / 64 + items.size()));
  return std::any_of(items.begin(), items.end(), [&](const Value& value) { return equal(value, item); });
}

Value slice(Interpreter& interpreter, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is_undefined()) raise("{}", value.why());
  if (value.is_string()) {
    const std::string& text = value.text();
    interpreter.charge(text.size());
    std::vector<uint32_t> at;  // where each character begins
    for (size_t i = 0; i < text.size(); i += unicode::length_of(text[i])) at.push_back(uint32_t(i));
    const Bounds b = bounds_of(int64_t(at.size()), start, stop, step);
    std::string out;
    for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step)
      out.append(text, at[size_t(i)], unicode::length_of(text[at[size_t(i)]]));
    return Value(std::move(out));
  }
  if (!value.is_list() || !value.list().indexable())
    return undefined(fmt::format("'{} object' cannot be sliced", type_name(value)));
  const auto& items = value.list().items;
  interpreter.charge(items.size() * sizeof(Value));
  const Bounds b = bounds_of(int64_t(items.size()), start, stop, step);
  std::vector<Value> out;
  for (int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step) out.push_back(items[size_t(i)]);
  return make_list(std::move(out), value.list().type);
}

}  // namespace medley::jinja
