// What a template computes with: Python's values as far as chat templates see them. Values are immutable and cheap to
// copy; the only thing a template can change is the attributes of a namespace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace medley::jinja {

class Interpreter;
class Value;
struct List;
struct Dict;
struct Object;
struct Callable;

struct Undefined {
  std::shared_ptr<const std::string> why;  // "'x' is undefined": the error when it is used
};
struct None {};
using String = std::shared_ptr<const std::string>;

class Value {
 public:
  Value() : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool flag) : data_(flag) {}
  Value(int64_t number) : data_(number) {}
  Value(int number) : data_(int64_t(number)) {}
  Value(double number) : data_(number) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}

  // Text that `escape` and `safe` made: "+" with other text escapes that (markupsafe's Markup).
  static Value markup(std::string text) {
    Value value(std::move(text));
    value.is_markup_ = true;
    return value;
  }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }  // as in Python, where True + 1 is 2
  bool is_string() const { return std::holds_alternative<String>(data_); }
  bool is_markup() const { return is_markup_; }
  bool is_list() const {
    return std::holds_alternative<std::shared_ptr<const List>>(data_);
  }  // also tuples, generators
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_object() const { return std::holds_alternative<std::shared_ptr<Object>>(data_); }
  bool is_callable() const { return std::holds_alternative<std::shared_ptr<const Callable>>(data_); }

  // Each only after the test above.
  const std::string& why() const { return *std::get<Undefined>(data_).why; }
  bool flag() const { return std::get<bool>(data_); }
  int64_t integer() const { return is_bool() ? int64_t(flag()) : std::get<int64_t>(data_); }
  double real() const { return is_float() ? std::get<double>(data_) : double(integer()); }
  const std::string& text() const { return *std::get<String>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
  // The same object, not only equal: Python's "is".
  bool same_as(const Value& other) const;
  int depth() const;      // of values inside values
  size_t weight() const;  // about the bytes it prints as, counting shared values each time

 private:
  std::variant<None, Undefined, bool, int64_t, double, String, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>, std::shared_ptr<const Callable>>
      data_;
  bool is_markup_ = false;
};

// Values nested deeper than this are refused, so that nothing that follows them needs a deep stack.
constexpr int max_value_depth = 100;
// And heavier ones: [x, x] of [y, y] of ... doubles with each level, whatever is shared.
constexpr size_t max_value_weight = 64u << 20;

// A sequence. Generators, what map and select give, are true when empty and can be walked through once.
struct List {
  enum class Type { list, tuple, view, generator };
  std::vector<Value> items;
  Type type = Type::list;
  int depth = 1;
  size_t weight = 1;
  mutable size_t taken = 0;  // generators: items already given out

  bool indexable() const { return type == Type::list || type == Type::tuple; }
};
Value make_list(std::vector<Value> items, List::Type type = List::Type::list);

// In order of insertion. Keys are strings nearly always; other hashable values work too.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  size_t weight = 1;

  const Value* find(const Value& key) const;  // throws for a key that cannot be hashed
  const Value* find_text(std::string_view key) const;
  void set(const Value& key, Value value);

 private:
  std::unordered_map<std::string, size_t> index_;  // the key's type and text -> its place
};
Value make_dict(Dict dict);

// Something with attributes that are not items: a namespace, `loop`.
struct Object {
  virtual ~Object() = default;
  virtual Value attribute(const std::string& name) = 0;  // Undefined if there is none
  virtual std::string repr() const = 0;
  virtual const Callable* call() const { return nullptr; }  // what calling it does
  virtual int depth() const { return 0; }                   // of the values inside
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> run;
  int depth = 1;
  bool is_macro = false;
};
Value make_callable(std::string name, std::function<Value(Interpreter&, Arguments&)> run, int depth = 1);

Value undefined(std::string why);
Value undefined_name(std::string_view name);

bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// Negative, zero or positive; throws for values that have no order.
int compare(const Value& a, const Value& b, const char* operation);
std::string type_name(const Value& value);  // as Python calls it

std::string str(const Value& value);   // what {{ value }} prints
std::string repr(const Value& value);  // as inside a printed list
std::string float_repr(double value);

// The items one by one: of a sequence, a dict's keys, a string's characters. Throws for what cannot be iterated.
std::vector<Value> items_of(const Value& value);

}  // namespace medley::jinja
