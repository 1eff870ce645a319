// Filters over sequences and mappings as a whole.
#include <algorithm>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

std::vector<Value> charged_items(Interpreter& interpreter, const Value& value) {
  std::vector<Value> items = items_of(value);
  interpreter.charge(items.size() * sizeof(Value));
  return items;
}

// What sort, unique, min, max and groupby order by.
struct Key {
  Interpreter& interpreter;
  const Value* attribute;  // null or none: the item itself
  bool case_sensitive;

  Value operator()(const Value& item) const {
    Value key = attribute && !attribute->is_none() ? attribute_path(interpreter, item, *attribute) : item;
    return !case_sensitive && key.is_string() ? Value(to_lower(key.text())) : key;
  }
};

const Value* pointer(const ArgReader& args, size_t i) {
  return args.has(i) ? &args.at(i) : nullptr;
}

Value default_value(Interpreter&, Arguments& arguments) {
  const ArgReader args("default", arguments, {"value", "default_value", "boolean"}, 1);
  const bool missing = args.at(0).is_undefined() || (args.flag(2) && !truth(args.at(0)));
  return missing ? args.value(1, Value("")) : args.at(0);
}

Value first(Interpreter&, Arguments& arguments) {
  const ArgReader args("first", arguments, {"seq"}, 1);
  const Value& value = args.at(0);
  if (value.is_list() && value.list().type == List::Type::generator) {
    const List& list = value.list();
    return list.taken < list.items.size() ? list.items[list.taken++] : undefined("No first item, sequence was empty.");
  }
  const std::vector<Value> items = items_of(value);
  return items.empty() ? undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter&, Arguments& arguments) {
  const ArgReader args("last", arguments, {"seq"}, 1);
  if (args.at(0).is_list() && args.at(0).list().type == List::Type::generator)
    raise("'generator' object is not reversible");
  const std::vector<Value> items = items_of(args.at(0));
  return items.empty() ? undefined("No last item, sequence was empty.") : items.back();
}

Value join(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("join", arguments, {"value", "d", "attribute"}, 1);
  const std::string separator = args.has(1) ? str(args.at(1)) : "";
  std::string out;
  bool is_first = true;
  for (const Value& item : charged_items(interpreter, args.at(0))) {
    const Value part = args.given(2) ? attribute_path(interpreter, item, args.at(2)) : item;
    interpreter.charge(part.weight() + separator.size());
    if (!std::exchange(is_first, false)) out += separator;
    out += str(part);
  }
  return Value(std::move(out));
}

Value list(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("list", arguments, {"value"}, 1);
  return make_list(charged_items(interpreter, args.at(0)));
}

Value reverse(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("reverse", arguments, {"value"}, 1);
  std::vector<Value> items = charged_items(interpreter, args.at(0));
  std::reverse(items.begin(), items.end());
  if (!args.at(0).is_string()) return make_list(std::move(items), List::Type::generator);
  std::string text;
  for (const Value& item : items) text += item.text();
  return Value(std::move(text));
}

std::vector<Value> sorted(Interpreter& interpreter, std::vector<Value> items, const Key& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(key(item), std::move(item));
  interpreter.step(int64_t(keyed.size()));
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    interpreter.step();
    return reverse ? compare(b.first, a.first, "<") < 0 : compare(a.first, b.first, "<") < 0;
  });
  items.clear();
  for (auto& [by, item] : keyed) items.push_back(std::move(item));
  return items;
}

Value sort(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("sort", arguments, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  const Key key{interpreter, pointer(args, 3), args.flag(2)};
  return make_list(sorted(interpreter, charged_items(interpreter, args.at(0)), key, args.flag(1)));
}

Value dict_sort(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("dictsort", arguments, {"value", "case_sensitive", "by", "reverse"}, 1);
  if (!args.at(0).is_dict()) raise("dictsort: expected a mapping, found {}", type_name(args.at(0)));
  const std::string by = args.text(2, "key");
  if (by != "key" && by != "value") raise("dictsort: You can only sort by either \"key\" or \"value\"");
  std::vector<Value> pairs;
  for (const auto& [key, value] : args.at(0).dict().items) pairs.push_back(make_list({key, value}, List::Type::tuple));
  const Value place(by == "key" ? 0 : 1);
  return make_list(sorted(interpreter, std::move(pairs), {interpreter, &place, args.flag(1)}, args.flag(3)));
}

Value unique(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("unique", arguments, {"value", "case_sensitive", "attribute"}, 1);
  const Key key{interpreter, pointer(args, 2), args.flag(1)};
  Dict seen;
  std::vector<Value> kept;
  for (const Value& item : charged_items(interpreter, args.at(0))) {
    const Value by = key(item);
    if (seen.find(by)) continue;
    seen.set(by, Value(true));
    kept.push_back(item);
  }
  return make_list(std::move(kept), List::Type::generator);
}

template <bool largest>
Value extreme(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args(largest ? "max" : "min", arguments, {"value", "case_sensitive", "attribute"}, 1);
  const Key key{interpreter, pointer(args, 2), args.flag(1)};
  const std::vector<Value> items = charged_items(interpreter, args.at(0));
  if (items.empty()) return undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int order = compare(key(items[i]), key(items[best]), "<");
    if (largest ? order > 0 : order < 0) best = i;
  }
  return items[best];
}

Value sum(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("sum", arguments, {"iterable", "attribute", "start"}, 1);
  Value total = args.value(2, Value(0));
  for (const Value& item : charged_items(interpreter, args.at(0)))
    total =
        binary_operation(interpreter, "+", total, args.given(1) ? attribute_path(interpreter, item, args.at(1)) : item);
  return total;
}

Value batch(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("batch", arguments, {"value", "linecount", "fill_with"}, 2);
  const int64_t count = args.integer(1);
  if (count < 1) raise("batch: the count must be at least 1");
  std::vector<Value> rows, row;
  for (Value& item : charged_items(interpreter, args.at(0))) {
    row.push_back(std::move(item));
    if (int64_t(row.size()) == count) rows.push_back(make_list(std::exchange(row, {})));
  }
  if (!row.empty()) {
    if (args.given(2)) interpreter.charge(size_t(count) * sizeof(Value));
    while (args.given(2) && int64_t(row.size()) < count) row.push_back(args.at(2));
    rows.push_back(make_list(std::move(row)));
  }
  return make_list(std::move(rows), List::Type::generator);
}

Value slices(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("slice", arguments, {"value", "slices", "fill_with"}, 2);
  const std::vector<Value> items = charged_items(interpreter, args.at(0));
  const int64_t count = args.integer(1), size = int64_t(items.size());
  if (count < 1) raise("slice: the count must be at least 1");
  interpreter.charge(size_t(count) * sizeof(Value));
  std::vector<Value> rows;
  for (int64_t i = 0, begin = 0; i < count; ++i) {
    const int64_t end = begin + size / count + (i < size % count ? 1 : 0);
    std::vector<Value> row(items.begin() + begin, items.begin() + end);
    if (args.given(2) && i >= size % count && size % count != 0) row.push_back(args.at(2));
    rows.push_back(make_list(std::move(row)));
    begin = end;
  }
  return make_list(std::move(rows), List::Type::generator);
}

Value group_by(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("groupby", arguments, {"value", "attribute", "default", "case_sensitive"}, 2);
  const Key key{interpreter, &args.at(1), args.flag(3)};
  const auto of = [&](const Value& item) {
    const Value found = key(item);
    return found.is_undefined() && args.has(2) ? args.at(2) : found;
  };
  const std::vector<Value> items = sorted(interpreter, charged_items(interpreter, args.at(0)), key, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    const Value by = of(items[begin]);
    size_t end = begin;
    std::vector<Value> members;
    while (end < items.size() && equal(of(items[end]), by)) members.push_back(items[end++]);
    groups.push_back(make_list({by, make_list(std::move(members))}, List::Type::tuple));
    begin = end;
  }
  return make_list(std::move(groups));
}

Value items(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("items", arguments, {"value"}, 1);
  if (args.at(0).is_undefined()) return make_list({}, List::Type::generator);
  if (!args.at(0).is_dict()) raise("Can only get item pairs from a mapping.");
  interpreter.charge(args.at(0).dict().items.size() * 3 * sizeof(Value));
  std::vector<Value> pairs;
  for (const auto& [key, value] : args.at(0).dict().items) pairs.push_back(make_list({key, value}, List::Type::tuple));
  return make_list(std::move(pairs), List::Type::generator);
}

}  // namespace

void add_sequence_filters(Filters& filters) {
  filters["default"] = filters["d"] = default_value;
  filters["first"] = first;
  filters["last"] = last;
  filters["join"] = join;
  filters["list"] = list;
  filters["reverse"] = reverse;
  filters["sort"] = sort;
  filters["dictsort"] = dict_sort;
  filters["unique"] = unique;
  filters["min"] = extreme<false>;
  filters["max"] = extreme<true>;
  filters["sum"] = sum;
  filters["batch"] = batch;
  filters["slice"] = slices;
  filters["groupby"] = group_by;
  filters["items"] = items;
}

}  // namespace medley::jinja
