// map, select, reject and their attribute forms: filters that take the name of a filter or a test.
#include <charconv>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/text_ops.h"

namespace medley::jinja {

Value attribute_path(Interpreter& interpreter, const Value& value, const Value& path, const Value* fallback) {
  const auto found_or = [&](const Value& found) { return fallback && found.is_undefined() ? *fallback : found; };
  if (!path.is_string()) return found_or(interpreter.item(value, path));
  Value at = value;
  for (const std::string& part : split_on(path.text(), ".", -1)) {
    interpreter.step();
    at = found_or(interpreter.item(at, all_digits(part) && part.size() < 10 ? Value(std::stoi(part)) : Value(part)));
  }
  return at;
}

namespace {

// Takes the first argument off the front.
Value take(std::vector<Value>& values, const char* what) {
  if (values.empty()) raise("{}", what);
  Value value = std::move(values.front());
  values.erase(values.begin());
  return value;
}

// Nothing at all for what is false: none | select is empty, not an error.
std::vector<Value> items_or_none(const Value& value) {
  return truth(value) ? items_of(value) : std::vector<Value>();
}

std::string name_of(const Value& value) {
  if (!value.is_string()) raise("expected the name of a filter or a test, found {}", type_name(value));
  return value.text();
}

Value map(Interpreter& interpreter, Arguments& arguments) {
  std::vector<Value> rest = arguments.positional;
  const Value value = take(rest, "map needs a value");
  std::vector<Value> made;
  if (rest.empty()) {
    const ArgReader args("map", arguments, {"value", "attribute", "default"}, 2);
    for (const Value& item : items_or_none(value))
      made.push_back(attribute_path(interpreter, item, args.at(1), args.has(2) ? &args.at(2) : nullptr));
  } else {
    const std::string filter = name_of(take(rest, ""));
    for (const Value& item : items_or_none(value)) {
      Arguments call{{item}, arguments.named};
      call.positional.insert(call.positional.end(), rest.begin(), rest.end());
      made.push_back(interpreter.apply_filter(filter, std::move(call)));
    }
  }
  interpreter.charge(made.size() * sizeof(Value));
  return make_list(std::move(made), List::Type::generator);
}

template <bool keep, bool by_attribute>
Value choose(Interpreter& interpreter, Arguments& arguments) {
  std::vector<Value> rest = arguments.positional;
  const Value value = take(rest, "select needs a value");
  const Value attribute = by_attribute ? take(rest, "missing the name of the attribute") : Value();
  const bool has_test = !rest.empty();
  const std::string test = has_test ? name_of(take(rest, "")) : "";
  std::vector<Value> kept;
  for (const Value& item : items_or_none(value)) {
    interpreter.step();
    const Value seen = by_attribute ? attribute_path(interpreter, item, attribute) : item;
    const bool holds = has_test ? interpreter.apply_test(test, seen, Arguments{rest, arguments.named}) : truth(seen);
    if (holds == keep) kept.push_back(item);
  }
  interpreter.charge(kept.size() * sizeof(Value));
  return make_list(std::move(kept), List::Type::generator);
}

Value attr(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("attr", arguments, {"obj", "name"}, 2);
  // Attributes only, never a mapping's items.
  if (args.at(0).is_dict()) {
    const Value method = find_method(args.at(0), args.text(1));
    return method.is_none() ? undefined(fmt::format("'dict object' has no attribute '{}'", args.text(1))) : method;
  }
  return interpreter.attribute(args.at(0), args.text(1));
}

}  // namespace

void add_selection_filters(Filters& filters) {
  filters["map"] = map;
  filters["select"] = choose<true, false>;
  filters["reject"] = choose<false, false>;
  filters["selectattr"] = choose<true, true>;
  filters["rejectattr"] = choose<false, true>;
  filters["attr"] = attr;
}

}  // namespace medley::jinja
