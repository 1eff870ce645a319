// Filters that make text of text.
#include <algorithm>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/text_ops.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

template <std::string (*change)(std::string_view)>
Value changed(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("this filter", arguments, {"s"}, 1);
  return Value(change(interpreter.text_of(args.at(0))));
}

// jinja2's own: words begin after white space, "-" and opening brackets.
std::string title(std::string_view text) {
  std::string out;
  bool begins = true;
  while (!text.empty()) {
    const unicode::Char c = unicode::next(text);
    const std::string_view character = text.substr(0, c.bytes);
    out += begins ? to_upper(character) : to_lower(character);
    begins = is_python_space(c.code) || std::u32string_view(U"-({[<").find(c.code) != std::u32string_view::npos;
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string url_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    plain ? void(out += c) : void(out += fmt::format("%{:02X}", static_cast<unsigned char>(c)));
  }
  return out;
}

Value as_text(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("string", arguments, {"object"}, 1);
  return args.at(0).is_markup() ? args.at(0) : Value(interpreter.text_of(args.at(0)));
}

template <bool twice>
Value escape(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("escape", arguments, {"value"}, 1);
  if (!twice && args.at(0).is_markup()) return args.at(0);
  const std::string text = interpreter.text_of(args.at(0));
  interpreter.charge(5 * text.size());
  return Value::markup(html_escaped(text));
}

Value safe(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("safe", arguments, {"value"}, 1);
  return Value::markup(interpreter.text_of(args.at(0)));
}

Value trim(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("trim", arguments, {"value", "chars"}, 1);
  const std::string text = interpreter.text_of(args.at(0));
  return Value(args.given(1) ? stripped(text, Side::both, args.text(1)) : stripped(text, Side::both));
}

Value replace(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("replace", arguments, {"s", "old", "new", "count"}, 3);
  const int64_t count = args.given(3) ? args.integer(3) : -1;
  return replace_charged(interpreter, interpreter.text_of(args.at(0)), str(args.at(1)), str(args.at(2)), count);
}

Value indent(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("indent", arguments, {"s", "width", "first", "blank"}, 1);
  const bool text_width = args.has(1) && args.at(1).is_string();
  const int64_t width = text_width ? 0 : args.integer(1, 4);
  interpreter.charge(size_t(std::max<int64_t>(width, 0)));
  const std::string pad = text_width ? args.text(1) : std::string(size_t(std::max<int64_t>(width, 0)), ' ');
  const std::vector<std::string> lines = split_lines(interpreter.text_of(args.at(0)) + "\n");
  interpreter.charge(lines.size() * pad.size());
  std::string out = args.flag(2) ? pad : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    if (i > 0 && (args.flag(3) || !lines[i].empty())) out += pad;
    out += lines[i];
  }
  return Value(std::move(out));
}

Value center(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("center", arguments, {"value", "width"}, 1);
  interpreter.charge(size_t(std::max<int64_t>(args.integer(1, 80), 0)));
  return Value(padded(interpreter.text_of(args.at(0)), args.integer(1, 80), Side::both, " "));
}

Value truncate(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("truncate", arguments, {"s", "length", "killwords", "end", "leeway"}, 1);
  const std::string text = interpreter.text_of(args.at(0)), end = args.text(3, "...");
  const int64_t length = args.integer(1, 255), leeway = args.given(4) ? args.integer(4) : 5;
  const auto end_size = int64_t(unicode::count(end));
  if (length < end_size || leeway < 0) raise("truncate: the length is below that of the end");
  if (int64_t(unicode::count(text)) <= length + leeway) return Value(text);
  const Value cut = slice(interpreter, Value(text), Value(), Value(length - end_size), Value());
  if (args.flag(2)) return Value(cut.text() + end);
  return Value(cut.text().substr(0, cut.text().rfind(' ')) + end);
}

Value word_count(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("wordcount", arguments, {"s"}, 1);
  return Value(int64_t(split_on_space(interpreter.text_of(args.at(0)), -1).size()));
}

Value to_json_filter(Interpreter& interpreter, Arguments& arguments) {
  const Value value = arguments.positional[0];
  arguments.positional.erase(arguments.positional.begin());
  return Value(to_json(interpreter, value, arguments));
}

Value percent_format_filter(Interpreter& interpreter, Arguments& arguments) {
  const std::string format = interpreter.text_of(arguments.positional[0]);
  std::vector<Value> rest(arguments.positional.begin() + 1, arguments.positional.end());
  if (!rest.empty() && !arguments.named.empty()) raise("format: positional and named arguments together");
  if (arguments.named.empty())
    return Value(percent_format(interpreter, format, make_list(std::move(rest), List::Type::tuple)));
  Dict named;
  for (auto& [name, value] : arguments.named) named.set(Value(name), value);
  return Value(percent_format(interpreter, format, make_dict(std::move(named))));
}

}  // namespace

Value replace_charged(Interpreter& interpreter, const std::string& text, const std::string& from, const std::string& to,
                      int64_t count) {
  const size_t at_most = from.empty() ? text.size() + 1 : text.size() / from.size();
  if (to.size() > from.size() && at_most > interpreter.options().limits.value_bytes / to.size()) {
    // Too large if `from` were everywhere: count where it really is.
    const size_t hits = from.empty() ? at_most : split_on(text, from, count).size();
    if (hits > interpreter.options().limits.value_bytes / to.size()) raise("a replacement that is too long");
  }
  std::string out = replaced(text, from, to, count);
  interpreter.charge(out.size());
  return Value(std::move(out));
}

void add_text_filters(Filters& filters) {
  filters["lower"] = changed<to_lower>;
  filters["upper"] = changed<to_upper>;
  filters["capitalize"] = changed<capitalized>;
  filters["title"] = changed<title>;
  filters["string"] = as_text;
  filters["safe"] = safe;
  filters["escape"] = filters["e"] = escape<false>;
  filters["forceescape"] = escape<true>;
  filters["urlencode"] = changed<url_encoded>;
  filters["trim"] = trim;
  filters["replace"] = replace;
  filters["indent"] = indent;
  filters["center"] = center;
  filters["truncate"] = truncate;
  filters["wordcount"] = word_count;
  filters["tojson"] = to_json_filter;
  filters["format"] = percent_format_filter;
}

}  // namespace medley::jinja
