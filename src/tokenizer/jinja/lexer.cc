#include "tokenizer/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {
namespace {

using Type = Token::Type;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// "\r\n" and "\r" become "\n"; one newline at the end is dropped.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), in_(source_) {}

  std::vector<Token> run() {
    while (at_ < in_.size()) text_and_tag();
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError(message, line_); }
  void add(Type type, std::string value) { tokens_.push_back({type, std::move(value), line_}); }
  bool looking_at(std::string_view text, size_t at) const { return in_.substr(at).starts_with(text); }

  void advance(size_t to) {
    line_ += int(std::count(in_.begin() + ptrdiff_t(at_), in_.begin() + ptrdiff_t(to), '\n'));
    line_starting_ = to > 0 && in_[to - 1] == '\n';
    at_ = to;
  }

  size_t skip_space(size_t at) const { return in_.size() - unicode::strip_left(in_.substr(at)).size(); }

  void text_and_tag() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = in_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= in_.size()) return plain_text(in_.size());
      if (std::string_view("%{#").find(in_[tag + 1]) != std::string_view::npos) break;
    }
    const char kind = in_[tag + 1];
    const char sign = tag + 2 < in_.size() && (in_[tag + 2] == '-' || in_[tag + 2] == '+') ? in_[tag + 2] : ' ';
    emit_before_tag(tag, sign, kind != '{');
    advance(tag + (sign == ' ' ? 2 : 3));
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '%' ? Type::block_begin : Type::variable_begin, "");
    inside(kind == '%');
  }

  void plain_text(size_t end) {
    if (end > at_) add(Type::text, std::string(in_.substr(at_, end - at_)));
    advance(end);
  }

  // The text up to a tag, less the white space its sign or lstrip_blocks takes away.
  void emit_before_tag(size_t tag, char sign, bool lstrip) {
    std::string_view text = in_.substr(at_, tag - at_);
    if (sign == '-') {
      text = unicode::strip_right(text);
    } else if (sign != '+' && lstrip) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && unicode::strip_left(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) add(Type::text, std::string(text));
    advance(tag);
  }

  // What follows a tag's end: "-" takes all white space, "+" nothing, otherwise trim_blocks takes one newline.
  size_t after_end(size_t end, char sign, bool trim) const {
    if (sign == '-') return skip_space(end);
    return trim && sign != '+' && looking_at("\n", end) ? end + 1 : end;
  }

  void comment() {
    const size_t close = in_.find("#}", at_);
    if (close == std::string_view::npos) fail("a comment without its end \"#}\"");
    const char sign = close > at_ ? in_[close - 1] : ' ';
    advance(after_end(close + 2, sign == '-' || sign == '+' ? sign : ' ', true));
  }

  // After "{%": a raw block, taken to its end.
  bool raw() {
    size_t at = skip_space(at_);
    if (!looking_at("raw", at)) return false;
    at = skip_space(at + 3);
    const char sign = looking_at("-", at) ? '-' : ' ';
    if (sign == '-') ++at;
    if (!looking_at("%}", at)) return false;
    advance(sign == '-' ? skip_space(at + 2) : at + 2);
    for (size_t tag = at_; (tag = in_.find("{%", tag)) != std::string_view::npos; tag += 2) {
      size_t end = tag + 2;
      const char open_sign = looking_at("-", end) || looking_at("+", end) ? in_[end++] : ' ';
      end = skip_space(end);
      if (!looking_at("endraw", end)) continue;
      end = skip_space(end + 6);
      const char close_sign = looking_at("-", end) || looking_at("+", end) ? in_[end++] : ' ';
      if (!looking_at("%}", end)) continue;
      emit_before_tag(tag, open_sign, true);
      advance(after_end(end + 2, close_sign, true));
      return true;
    }
    fail("a raw block without its end");
  }

  void inside(bool block) {
    const std::string_view close = block ? "%}" : "}}";
    std::string open;  // brackets not closed yet: "}}" among them is two of theirs
    for (;;) {
      advance(skip_space(at_));
      if (at_ >= in_.size()) fail(block ? "a tag without its end \"%}\"" : "an expression without its end \"}}\"");
      if (open.empty()) {
        const bool minus = looking_at("-", at_), plus = block && looking_at("+", at_);
        const size_t end = at_ + (minus || plus ? 1 : 0);
        if (looking_at(close, end)) {
          add(block ? Type::block_end : Type::variable_end, "");
          return advance(after_end(end + 2, minus ? '-' : plus ? '+' : ' ', block));
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = in_[at_];
    if (is_digit(c)) return number();
    if (is_name_char(c)) {
      size_t end = at_;
      while (end < in_.size() && is_name_char(in_[end])) ++end;
      add(Type::name, std::string(in_.substr(at_, end - at_)));
      return advance(end);
    }
    if (c == '"' || c == '\'') return string(c);
    static constexpr std::array<std::string_view, 7> two{"==", "!=", ">=", "<=", "//", "**", ""};
    for (const std::string_view op : two) {
      if (op.empty() || !looking_at(op, at_)) continue;
      add(Type::op, std::string(op));
      return advance(at_ + 2);
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos)
      fail(fmt::format("unexpected character '{}'", in_.substr(at_, unicode::length_of(c))));
    balance(c, open);
    add(Type::op, std::string(1, c));
    advance(at_ + 1);
  }

  void balance(char c, std::string& open) const {
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (open.empty()) fail(fmt::format("unexpected '{}'", c));
    if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
    open.pop_back();
  }

  void number() {
    size_t end = at_;
    const auto digits = [&](size_t from) {
      while (from < in_.size() &&
             (is_digit(in_[from]) || (in_[from] == '_' && from + 1 < in_.size() && is_digit(in_[from + 1]))))
        ++from;
      return from;
    };
    bool real = false;
    if (in_[at_] == '0' && at_ + 1 < in_.size() &&
        std::string_view("xXoObB").find(in_[at_ + 1]) != std::string_view::npos) {
      end = at_ + 2;
      while (end < in_.size() && is_name_char(in_[end])) ++end;
    } else {
      end = digits(at_);
      if (end + 1 < in_.size() && in_[end] == '.' && is_digit(in_[end + 1])) {
        real = true;
        end = digits(end + 1);
      }
      if (end < in_.size() && (in_[end] == 'e' || in_[end] == 'E')) {
        size_t exponent = end + 1;
        if (exponent < in_.size() && (in_[exponent] == '+' || in_[exponent] == '-')) ++exponent;
        if (exponent < in_.size() && is_digit(in_[exponent])) {
          real = true;
          end = digits(exponent);
        }
      }
    }
    std::string text(in_.substr(at_, end - at_));
    std::erase(text, '_');
    add(real ? Type::real : Type::integer, std::move(text));
    advance(end);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < in_.size() && in_[end] != quote) end += in_[end] == '\\' ? 2 : 1;
    if (end >= in_.size()) fail("a string without its closing quote");
    add(Type::string, unescaped(in_.substr(at_ + 1, end - at_ - 1)));
    advance(end + 1);
  }

  // Python's escapes; an unknown one keeps its backslash.
  std::string unescaped(std::string_view text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view simple = "abfnrtv\\'\"", meaning = "\a\b\f\n\r\t\v\\'\"";
      if (const size_t found = simple.find(c); found != std::string_view::npos) {
        out += meaning[found];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        unicode::append(out, code_point(text.substr(std::min(i + 1, text.size()), count), count, 16));
        i += count;
      } else if (c >= '0' && c <= '7') {
        size_t count = 1;
        while (count < 3 && i + count < text.size() && text[i + count] >= '0' && text[i + count] <= '7') ++count;
        unicode::append(out, code_point(text.substr(i, count), count, 8));
        i += count - 1;
      } else {
        out.append({'\\', c});
      }
    }
    return out;
  }

  char32_t code_point(std::string_view digits, size_t count, int base) const {
    char32_t code = 0;
    if (digits.size() < count) fail("an escape sequence that ends too soon");
    for (const char c : digits) {
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      if (digit >= base) fail("an escape sequence that is not a number");
      code = code * char32_t(base) + char32_t(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail("an escape sequence that is no character");
    return code;
  }

  std::string source_;
  std::string_view in_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace medley::jinja
