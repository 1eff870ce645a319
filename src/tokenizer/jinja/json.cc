// tojson: Python's json.dumps, with the defaults that transformers gives it (ensure_ascii off).
#include <algorithm>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

struct Style {
  bool ensure_ascii = false, sort_keys = false;
  bool lines = false;  // an indent was given
  std::string indent;  // of one level
  std::string comma = ", ", colon = ": ";
};

class Writer {
 public:
  explicit Writer(const Style& style) : style_(style) {}

  void write(const Value& value, int level) {
    if (value.is_undefined() || value.is_object() || value.is_callable())
      raise("Object of type {} is not JSON serializable", type_name(value));
    if (value.is_none())
      out += "null";
    else if (value.is_bool())
      out += value.flag() ? "true" : "false";
    else if (value.is_float())
      out += number(value.real());
    else if (value.is_string())
      write_string(value.text());
    else if (value.is_dict())
      write_dict(value.dict(), level);
    else if (value.is_list())
      write_list(value.list(), level);
    else
      out += repr(value);
  }

  std::string out;

 private:
  static std::string number(double value) {
    const std::string text = float_repr(value);
    if (text == "nan") return "NaN";
    return text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
  }

  void new_line(int level) {
    if (!style_.lines) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += style_.indent;
  }

  void write_list(const List& list, int level) {
    if (!list.indexable()) raise("Object of type {} is not JSON serializable", "generator");
    if (list.items.empty()) return void(out += "[]");
    out += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += style_.comma;
      new_line(level + 1);
      write(list.items[i], level + 1);
    }
    new_line(level);
    out += ']';
  }

  void write_dict(const Dict& dict, int level) {
    if (dict.items.empty()) return void(out += "{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [](auto* a, auto* b) { return compare(a->first, b->first, "<") < 0; });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.comma;
      new_line(level + 1);
      write_key(items[i]->first);
      out += style_.colon;
      write(items[i]->second, level + 1);
    }
    new_line(level);
    out += '}';
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_none() && !key.is_number()) raise("keys must be str, int, float, bool or None, not {}", type_name(key));
    out += '"';
    write(key, 0);
    out += '"';
  }

  void write_string(std::string_view text) {
    static constexpr std::string_view plain_escapes = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    out += '"';
    while (!text.empty()) {
      const unicode::Char c = unicode::next(text);
      const size_t escape = c.code < 0x80 ? plain_escapes.find(char(c.code)) : std::string_view::npos;
      if (escape != std::string_view::npos)
        out.append({'\\', letters[escape]});
      else if (c.code < 0x20 || (style_.ensure_ascii && c.code > 0x7e))
        write_escape(c.code);
      else
        out += text.substr(0, c.bytes);
      text.remove_prefix(c.bytes);
    }
    out += '"';
  }

  void write_escape(char32_t code) {
    if (code < 0x10000) return void(out += fmt::format("\\u{:04x}", uint32_t(code)));
    const uint32_t rest = uint32_t(code) - 0x10000;
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
  }

  const Style& style_;
};

Style style_of(Arguments& options) {
  const ArgReader args("tojson", options, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Style style;
  style.ensure_ascii = args.flag(0);
  style.sort_keys = args.flag(3);
  if (args.given(1)) {
    style.lines = true;
    style.comma = ",";
    if (args.at(1).is_string())
      style.indent = args.at(1).text();
    else
      style.indent = std::string(size_t(std::clamp<int64_t>(args.integer(1), 0, 64)), ' ');
  }
  if (args.given(2)) {
    const std::vector<Value> both = items_of(args.at(2));
    if (both.size() != 2) raise("tojson: separators must be two strings");
    style.comma = str(both[0]);
    style.colon = str(both[1]);
  }
  return style;
}

}  // namespace

std::string to_json(Interpreter& interpreter, const Value& value, Arguments& options) {
  const Style style = style_of(options);
  // Each value may bring a line with an indent and separators along.
  const size_t around = style.comma.size() + style.colon.size() + style.indent.size() * max_value_depth / 8;
  interpreter.charge(value.weight() * 2 + value.weight() / 8 * around);
  Writer writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace medley::jinja
