// Methods of strings, lists and dicts.
#include <algorithm>
#include <unordered_map>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

using Method = Value (*)(Interpreter&, const Value& self, Arguments&);
using Methods = std::unordered_map<std::string_view, Method>;

Value strings(Interpreter& interpreter, std::vector<std::string> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string& part : parts) items.emplace_back(std::move(part));
  interpreter.charge(items.size() * (sizeof(Value) + sizeof(std::string)));
  return make_list(std::move(items));
}

template <Side side>
Value strip(Interpreter&, const Value& self, Arguments& arguments) {
  const ArgReader args("strip", arguments, {"chars"});
  return Value(args.given(0) ? stripped(self.text(), side, args.text(0)) : stripped(self.text(), side));
}

template <bool from_right>
Value split(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("split", arguments, {"sep", "maxsplit"});
  const int64_t most = args.integer(1, -1);
  if (!args.given(0)) return strings(interpreter, (from_right ? rsplit_on_space : split_on_space)(self.text(), most));
  return strings(interpreter, (from_right ? rsplit_on : split_on)(self.text(), args.text(0), most));
}

Value split_lines_method(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("splitlines", arguments, {"keepends"});
  return strings(interpreter, split_lines(self.text(), args.flag(0)));
}

template <bool at_end>
Value starts_or_ends(Interpreter&, const Value& self, Arguments& arguments) {
  const char* name = at_end ? "endswith" : "startswith";
  const ArgReader args(name, arguments, {"affix"}, 1);
  const auto matches = [&](const Value& affix) {
    if (affix.is_undefined()) raise("{}", affix.why());
    if (!affix.is_string()) raise("{} needs a string or a tuple of strings, not {}", name, type_name(affix));
    return at_end ? self.text().ends_with(affix.text()) : self.text().starts_with(affix.text());
  };
  if (!args.at(0).is_list()) return Value(matches(args.at(0)));
  const auto& affixes = args.at(0).list().items;
  return Value(std::any_of(affixes.begin(), affixes.end(), matches));
}

Value replace(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("replace", arguments, {"old", "new", "count"}, 2);
  return replace_charged(interpreter, self.text(), args.text(0), args.text(1), args.integer(2, -1));
}

template <bool from_right, bool must_find>
Value find(Interpreter&, const Value& self, Arguments& arguments) {
  const ArgReader args("find", arguments, {"sub"}, 1);
  const std::string sub = args.text(0);
  const size_t at = from_right ? self.text().rfind(sub) : self.text().find(sub);
  if (at == std::string::npos) {
    if (must_find) raise("substring not found");
    return Value(-1);
  }
  return Value(int64_t(unicode::count(std::string_view(self.text()).substr(0, at))));
}

Value count(Interpreter&, const Value& self, Arguments& arguments) {
  const ArgReader args("count", arguments, {"sub"}, 1);
  const std::string sub = args.text(0);
  if (sub.empty()) return Value(int64_t(unicode::count(self.text()) + 1));
  return Value(int64_t(split_on(self.text(), sub, -1).size()) - 1);
}

Value join(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("join", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(args.at(0))) {
    if (!item.is_string()) raise("join: expected strings, found {}", type_name(item));
    interpreter.charge(item.text().size() + self.text().size());
    if (!std::exchange(first, false)) out += self.text();
    out += item.text();
  }
  return Value(std::move(out));
}

template <std::string (*change)(std::string_view)>
Value changed(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("this method", arguments, {});
  interpreter.charge(self.text().size());
  return Value(change(self.text()));
}

std::string swapped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    unicode::append(out, unicode::lower(c.code) != c.code ? unicode::lower(c.code) : unicode::upper(c.code));
    text.remove_prefix(c.bytes);
  }
  return out;
}

template <bool suffix>
Value remove_affix(Interpreter&, const Value& self, Arguments& arguments) {
  const ArgReader args("removeprefix", arguments, {"affix"}, 1);
  const std::string affix = args.text(0);
  std::string_view text = self.text();
  if (suffix && !affix.empty() && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!suffix && text.starts_with(affix)) text.remove_prefix(affix.size());
  return Value(text);
}

template <bool from_right>
Value partition(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("partition", arguments, {"sep"}, 1);
  const std::string separator = args.text(0);
  if (separator.empty()) raise("empty separator");
  const std::string& text = self.text();
  interpreter.charge(text.size());
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  std::vector<Value> parts;
  if (at != std::string::npos)
    parts = {Value(text.substr(0, at)), Value(separator), Value(text.substr(at + separator.size()))};
  else if (from_right)
    parts = {Value(""), Value(""), self};
  else
    parts = {self, Value(""), Value("")};
  return make_list(std::move(parts), List::Type::tuple);
}

template <Side where>
Value pad(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("this method", arguments, {"width", "fillchar"}, 1);
  const std::string fill = args.text(1, " ");
  if (unicode::count(fill) != 1) raise("the fill character must be exactly one character long");
  interpreter.charge(size_t(std::max<int64_t>(args.integer(0), 0)));
  return Value(padded(self.text(), args.integer(0), where, fill));
}

Value zero_fill(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("zfill", arguments, {"width"}, 1);
  interpreter.charge(size_t(std::max<int64_t>(args.integer(0), 0)));
  const std::string& text = self.text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  return Value(text.substr(0, sign) + padded(text.substr(sign), args.integer(0) - int64_t(sign), Side::left, "0"));
}

template <bool (*test)(std::string_view)>
Value every(Interpreter&, const Value& self, Arguments& arguments) {
  const ArgReader args("this method", arguments, {});
  return Value(test(self.text()));
}

Value str_format_method(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  return Value(brace_format(interpreter, self.text(), arguments));
}

const Methods& string_methods() {
  static const Methods methods{
      {"strip", strip<Side::both>},
      {"lstrip", strip<Side::left>},
      {"rstrip", strip<Side::right>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines", split_lines_method},
      {"startswith", starts_or_ends<false>},
      {"endswith", starts_or_ends<true>},
      {"replace", replace},
      {"find", find<false, false>},
      {"rfind", find<true, false>},
      {"index", find<false, true>},
      {"rindex", find<true, true>},
      {"count", count},
      {"join", join},
      {"lower", changed<to_lower>},
      {"casefold", changed<to_lower>},
      {"upper", changed<to_upper>},
      {"title", changed<titled>},
      {"capitalize", changed<capitalized>},
      {"swapcase", changed<swapped>},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"ljust", pad<Side::right>},
      {"rjust", pad<Side::left>},
      {"center", pad<Side::both>},
      {"zfill", zero_fill},
      {"isdigit", every<all_digits>},
      {"isdecimal", every<all_decimals>},
      {"isnumeric", every<all_numeric>},
      {"isalpha", every<all_letters>},
      {"isalnum", every<all_alphanumeric>},
      {"isspace", every<all_space>},
      {"isupper", every<is_upper_text>},
      {"islower", every<is_lower_text>},
      {"istitle", every<is_title_text>},
      {"format", str_format_method},
  };
  return methods;
}

Value list_index(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("index", arguments, {"value"}, 1);
  const auto& items = self.list().items;
  interpreter.step(int64_t(items.size()));
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], args.at(0))) return Value(int64_t(i));
  raise("{} is not in list", repr(args.at(0)));
}

Value list_count(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const ArgReader args("count", arguments, {"value"}, 1);
  const auto& items = self.list().items;
  interpreter.step(int64_t(items.size()));
  return Value(int64_t(std::count_if(items.begin(), items.end(), [&](auto& item) { return equal(item, args.at(0)); })));
}

Value same(Interpreter&, const Value& self, Arguments&) {
  return self;
}  // copy(): values never change

const Methods& list_methods() {
  static const Methods methods{{"index", list_index}, {"count", list_count}, {"copy", same}};
  return methods;
}

Value dict_get(Interpreter&, const Value& self, Arguments& arguments) {
  const ArgReader args("get", arguments, {"key", "default"}, 1);
  const Value* found = args.at(0).is_undefined() ? nullptr : self.dict().find(args.at(0));
  return found ? *found : args.value(1);
}

Value dict_items(Interpreter& interpreter, const Value& self, Arguments&) {
  std::vector<Value> pairs;
  interpreter.charge(self.dict().items.size() * 3 * sizeof(Value));
  for (const auto& [key, value] : self.dict().items) pairs.push_back(make_list({key, value}, List::Type::tuple));
  return make_list(std::move(pairs), List::Type::view);
}

Value dict_keys(Interpreter& interpreter, const Value& self, Arguments&) {
  interpreter.charge(self.dict().items.size() * sizeof(Value));
  return make_list(items_of(self), List::Type::view);
}

Value dict_values(Interpreter& interpreter, const Value& self, Arguments&) {
  std::vector<Value> values;
  interpreter.charge(self.dict().items.size() * sizeof(Value));
  for (const auto& item : self.dict().items) values.push_back(item.second);
  return make_list(std::move(values), List::Type::view);
}

const Methods& dict_methods() {
  static const Methods methods{
      {"get", dict_get}, {"items", dict_items}, {"keys", dict_keys}, {"values", dict_values}, {"copy", same}};
  return methods;
}

bool changes_its_object(const Value& self, std::string_view name) {
  static constexpr std::string_view of_lists[] = {"append", "clear",  "extend",  "insert",
                                                  "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view of_dicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const auto has = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  return self.is_dict() ? has(of_dicts) : self.list().type == List::Type::list && has(of_lists);
}

}  // namespace

Value find_method(const Value& self, const std::string& name) {
  const bool text = self.is_string(), dict = self.is_dict(), list = self.is_list() && self.list().indexable();
  if (!text && !dict && !list) return {};
  if (!text && changes_its_object(self, name))
    return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(self)));
  const Methods& methods = text ? string_methods() : dict ? dict_methods() : list_methods();
  const auto it = methods.find(name);
  if (it == methods.end()) return {};
  return make_callable(
      name,
      [self, method = it->second](Interpreter& interpreter, Arguments& arguments) {
        interpreter.step(int64_t(self.weight() / 256));
        return method(interpreter, self, arguments);
      },
      self.depth() + 1);
}

}  // namespace medley::jinja
