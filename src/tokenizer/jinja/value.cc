#include "tokenizer/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

// Counts one more value inside another.
void nest(const Value& inner, int& depth, size_t& weight) {
  depth = std::max(depth, inner.depth() + 1);
  weight += inner.weight();
  if (depth > max_value_depth) raise("values nested deeper than {}", max_value_depth);
  if (weight > max_value_weight) raise("a value of more than {} bytes", max_value_weight);
}

// Equal keys have equal texts, also 1, 1.0 and true.
std::string key_text(const Value& key) {
  if (key.is_string()) return "s" + key.text();
  if (key.is_none()) return "n";
  if (key.is_number()) {
    const double number = key.real();
    if (std::floor(number) == number && std::abs(number) < 9e15) return "i" + std::to_string(int64_t(number));
    return key.is_float() ? "f" + float_repr(number) : "i" + std::to_string(key.integer());
  }
  if (key.is_list() && key.list().type == List::Type::tuple) {
    std::string text = "t";
    for (const Value& item : key.list().items) {
      const std::string part = key_text(item);
      text += std::to_string(part.size()) + ":" + part;
    }
    return text;
  }
  raise("unhashable type: '{}'", type_name(key));
}

}  // namespace

bool Value::same_as(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_string()) return std::get<String>(data_) == std::get<String>(other.data_) || text() == other.text();
  if (is_list()) return &list() == &other.list();
  if (is_dict()) return &dict() == &other.dict();
  if (is_object()) return object() == other.object();
  if (is_callable()) return &callable() == &other.callable();
  return equal(*this, other);
}

int Value::depth() const {
  if (is_list()) return list().depth;
  if (is_dict()) return dict().depth;
  if (is_callable()) return callable().depth;
  if (is_object()) return object()->depth();
  return 0;
}

size_t Value::weight() const {
  if (is_string()) return text().size() + 2;
  if (is_list()) return list().weight;
  if (is_dict()) return dict().weight;
  return 8;
}

Value make_list(std::vector<Value> items, List::Type type) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) nest(item, list->depth, list->weight);
  list->items = std::move(items);
  list->type = type;
  return Value(std::shared_ptr<const List>(std::move(list)));
}

Value make_dict(Dict dict) {
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Value make_callable(std::string name, std::function<Value(Interpreter&, Arguments&)> run, int depth) {
  if (depth > max_value_depth) raise("values nested deeper than {}", max_value_depth);
  return Value(std::make_shared<const Callable>(Callable{std::move(name), std::move(run), depth}));
}

const Value* Dict::find(const Value& key) const {
  const auto it = index_.find(key_text(key));
  return it == index_.end() ? nullptr : &items[it->second].second;
}

const Value* Dict::find_text(std::string_view key) const {
  const auto it = index_.find("s" + std::string(key));
  return it == index_.end() ? nullptr : &items[it->second].second;
}

void Dict::set(const Value& key, Value value) {
  nest(key, depth, weight);
  nest(value, depth, weight);
  const auto [it, added] = index_.try_emplace(key_text(key), items.size());
  if (added)
    items.emplace_back(key, std::move(value));
  else
    items[it->second].second = std::move(value);
}

Value undefined(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

Value undefined_name(std::string_view name) {
  return undefined(fmt::format("'{}' is undefined", name));
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_bool()) return value.flag();
  if (value.is_int()) return value.integer() != 0;
  if (value.is_float()) return value.real() != 0;
  if (value.is_string()) return !value.text().empty();
  if (value.is_list()) return value.list().type == List::Type::generator || !value.list().items.empty();
  if (value.is_dict()) return !value.dict().items.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? a.real() == b.real() : a.integer() == b.integer();
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_list() && b.is_list()) {
    const List &left = a.list(), &right = b.list();
    if (&left == &right) return true;
    if (left.type != right.type || left.type == List::Type::generator) return false;
    return std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(), equal);
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().items.size() != b.dict().items.size()) return false;
    return std::all_of(a.dict().items.begin(), a.dict().items.end(), [&](const auto& item) {
      const Value* other = b.dict().find(item.first);
      return other && equal(item.second, *other);
    });
  }
  if (a.is_object() && b.is_object()) return a.object() == b.object();
  if (a.is_callable() && b.is_callable()) return &a.callable() == &b.callable();
  return false;
}

int compare(const Value& a, const Value& b, const char* operation) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.is_number() && b.is_number())
    return a.is_float() || b.is_float() ? order(a.real(), b.real()) : order(a.integer(), b.integer());
  if (a.is_string() && b.is_string()) return order(a.text(), b.text());  // UTF-8 sorts as its characters do
  if (a.is_list() && b.is_list() && a.list().type == b.list().type) {
    const auto &left = a.list().items, &right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (!equal(left[i], right[i])) return compare(left[i], right[i], operation);
    return order(left.size(), right.size());
  }
  for (const Value* side : {&a, &b})
    if (side->is_undefined()) raise("{}", side->why());
  raise("'{}' not supported between instances of '{}' and '{}'", operation, type_name(a), type_name(b));
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.is_string()) return "str";
  if (value.is_dict()) return "dict";
  if (value.is_object()) return "object";
  if (value.is_callable()) return "function";
  switch (value.list().type) {
    case List::Type::tuple: return "tuple";
    case List::Type::generator: return "generator";
    case List::Type::view: return "dict view";
    case List::Type::list: break;
  }
  return "list";
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_list()) {
    const List& list = value.list();
    if (list.type != List::Type::generator) return list.items;
    std::vector<Value> rest(list.items.begin() + ptrdiff_t(list.taken), list.items.end());
    list.taken = list.items.size();
    return rest;
  }
  std::vector<Value> items;
  if (value.is_dict()) {
    for (const auto& item : value.dict().items) items.push_back(item.first);
    return items;
  }
  if (value.is_string()) {
    for (std::string_view rest = value.text(); !rest.empty();) {
      const size_t size = unicode::length_of(rest[0]);
      items.emplace_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
    return items;
  }
  raise("'{}' object is not iterable", type_name(value));
}

}  // namespace medley::jinja
