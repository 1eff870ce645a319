// Expressions, from the loosest operator to the tightest: if, or, and, not, comparisons, + -, ~, * / // %, **, signs.
#include <charconv>
#include <cmath>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/parser.h"

namespace medley::jinja {

using Type = Token::Type;

namespace {

constexpr int max_nesting = 100;     // brackets in brackets
constexpr int max_expr_depth = 200;  // of the tree, also where it grows to the left (a.b.c.d...)

int depth_below(const Expr& expr) {
  int depth = 0;
  const auto see = [&](const ExprPtr& part) {
    if (part) depth = std::max(depth, part->depth);
  };
  for (const auto& part : expr.parts) see(part);
  for (const auto& part : expr.args.positional) see(part);
  for (const auto& [name, part] : expr.args.named) see(part);
  see(expr.args.star);
  see(expr.args.star_star);
  return depth;
}

}  // namespace

void ExprParser::deepen(Expr& expr) {
  expr.depth = depth_below(expr) + 1;
  if (expr.depth > max_expr_depth)
    throw TemplateError(fmt::format("an expression nested deeper than {}", max_expr_depth), expr.line);
}

template <class... Parts>
ExprPtr ExprParser::make(Kind kind, int line, std::string text, Parts... parts) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->text = std::move(text);
  (expr->parts.push_back(std::move(parts)), ...);
  deepen(*expr);
  return expr;
}

ExprPtr ExprParser::expression(bool with_condition) {
  if (++nesting_ > max_nesting) throw TemplateError("expressions nested too deep", tokens_.line());
  const int line = tokens_.line();
  ExprPtr value = logical_or();
  while (with_condition && tokens_.skip_name("if")) {
    ExprPtr test = logical_or();
    ExprPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    value = make(Kind::condition, line, "", std::move(value), std::move(test), std::move(otherwise));
  }
  --nesting_;
  return value;
}

ExprPtr ExprParser::binary_chain(ExprPtr (ExprParser::*next)(), std::initializer_list<std::string_view> ops) {
  ExprPtr left = (this->*next)();
  for (;;) {
    const int line = tokens_.line();
    std::string_view found;
    for (const std::string_view op : ops)
      if (tokens_.is_op(op)) found = op;
    if (found.empty()) return left;
    tokens_.take();
    ExprPtr right = (this->*next)();
    left = make(Kind::binary, line, std::string(found), std::move(left), std::move(right));
  }
}

ExprPtr ExprParser::logical_or() {
  ExprPtr left = logical_and();
  while (tokens_.is_name("or")) {
    const int line = tokens_.take().line;
    ExprPtr right = logical_and();
    left = make(Kind::logic, line, "or", std::move(left), std::move(right));
  }
  return left;
}

ExprPtr ExprParser::logical_and() {
  ExprPtr left = logical_not();
  while (tokens_.is_name("and")) {
    const int line = tokens_.take().line;
    ExprPtr right = logical_not();
    left = make(Kind::logic, line, "and", std::move(left), std::move(right));
  }
  return left;
}

ExprPtr ExprParser::logical_not() {
  int count = 0;
  const int line = tokens_.line();
  while (tokens_.skip_name("not")) ++count;
  ExprPtr value = comparison();
  for (; count > 0; --count) value = make(Kind::unary, line, "not", std::move(value));
  return value;
}

ExprPtr ExprParser::comparison() {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  std::vector<std::string> ops;
  parts.push_back(sum());
  for (;;) {
    std::string op;
    for (const std::string_view candidate : {"==", "!=", "<", "<=", ">", ">="})
      if (tokens_.is_op(candidate)) op = candidate;
    if (!op.empty())
      tokens_.take();
    else if (tokens_.skip_name("in"))
      op = "in";
    else if (tokens_.is_name("not") && tokens_.is_name("in", 1))
      tokens_.take(), tokens_.take(), op = "not in";
    else
      break;
    ops.push_back(op);
    parts.push_back(sum());
  }
  if (ops.empty()) return std::move(parts[0]);
  ExprPtr compare = make(Kind::compare, line, "");
  compare->parts = std::move(parts);
  compare->ops = std::move(ops);
  deepen(*compare);
  return compare;
}

ExprPtr ExprParser::sum() {
  return binary_chain(&ExprParser::concatenation, {"+", "-"});
}
ExprPtr ExprParser::product() {
  return binary_chain(&ExprParser::power, {"*", "/", "//", "%"});
}
ExprPtr ExprParser::power() {
  return binary_chain(&ExprParser::unary, {"**"});
}

ExprPtr ExprParser::concatenation() {
  const int line = tokens_.line();
  ExprPtr first = product();
  if (!tokens_.is_op("~")) return first;
  ExprPtr concat = make(Kind::concat, line, "", std::move(first));
  while (tokens_.skip_op("~")) concat->parts.push_back(product());
  deepen(*concat);
  return concat;
}

ExprPtr ExprParser::unary() {
  return unary_operand(true);
}

ExprPtr ExprParser::unary_operand(bool with_filters) {
  if (++nesting_ > max_nesting) throw TemplateError("signs nested too deep", tokens_.line());
  const int line = tokens_.line();
  ExprPtr node;
  if (tokens_.is_op("-") || tokens_.is_op("+")) {
    const std::string sign = tokens_.take().value;
    node = make(Kind::unary, line, sign, unary_operand(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  --nesting_;
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr ExprParser::number(const Token& token) {
  ExprPtr made = make(Kind::constant, token.line, "");
  if (token.type == Type::real) {
    double value = 0;  // what is too large becomes infinite, as in Python
    const auto [end, error] = std::from_chars(token.value.data(), token.value.data() + token.value.size(), value);
    if (error == std::errc::result_out_of_range && value == 0) value = HUGE_VAL;
    made->constant = Value(value);
    return made;
  }
  std::string_view digits = token.value;
  int base = 10;
  if (digits.size() > 2 && digits[0] == '0' && (digits[1] < '0' || digits[1] > '9')) {
    const char kind = char(digits[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size())
    throw TemplateError("the number " + token.value + " is not one, or too large", token.line);
  made->constant = Value(value);
  return made;
}

ExprPtr ExprParser::primary() {
  const Token token = tokens_.peek();
  if (token.type == Type::name) {
    tokens_.take();
    ExprPtr made = make(Kind::constant, token.line, "");
    if (token.value == "true" || token.value == "True")
      made->constant = Value(true);
    else if (token.value == "false" || token.value == "False")
      made->constant = Value(false);
    else if (token.value != "none" && token.value != "None")
      return make(Kind::name, token.line, token.value);
    return made;
  }
  if (token.type == Type::string) {
    std::string text;
    while (tokens_.is(Type::string)) text += tokens_.take().value;
    ExprPtr made = make(Kind::constant, token.line, "");
    made->constant = Value(std::move(text));
    return made;
  }
  if (token.type == Type::integer || token.type == Type::real) return number(tokens_.take());
  if (tokens_.skip_op("(")) {
    ExprPtr made = tuple(true, {}, true);
    tokens_.expect_op(")");
    return made;
  }
  if (tokens_.is_op("[")) return list();
  if (tokens_.is_op("{")) return dict();
  tokens_.unexpected("an expression");
}

ExprPtr ExprParser::tuple(bool with_condition, std::string_view end_name, bool allow_empty) {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  bool is_tuple = false;
  const auto at_end = [&] {
    return tokens_.is(Type::variable_end) || tokens_.is(Type::block_end) || tokens_.is_op(")") ||
           (!end_name.empty() && tokens_.is_name(end_name));
  };
  while (!at_end()) {
    parts.push_back(expression(with_condition));
    if (!tokens_.skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!parts.empty()) return std::move(parts[0]);
    if (!allow_empty) tokens_.unexpected("an expression");
  }
  ExprPtr made = make(Kind::tuple, line, "");
  made->parts = std::move(parts);
  deepen(*made);
  return made;
}

ExprPtr ExprParser::list() {
  ExprPtr made = make(Kind::list, tokens_.line(), "");
  tokens_.expect_op("[");
  while (!tokens_.is_op("]")) {
    made->parts.push_back(expression());
    if (!tokens_.skip_op(",")) break;
  }
  tokens_.expect_op("]");
  deepen(*made);
  return made;
}

ExprPtr ExprParser::dict() {
  ExprPtr made = make(Kind::dict, tokens_.line(), "");
  tokens_.expect_op("{");
  while (!tokens_.is_op("}")) {
    made->parts.push_back(expression());
    tokens_.expect_op(":");
    made->parts.push_back(expression());
    if (!tokens_.skip_op(",")) break;
  }
  tokens_.expect_op("}");
  deepen(*made);
  return made;
}

ExprPtr ExprParser::postfix(ExprPtr node) {
  for (;;) {
    if (tokens_.is_op(".") || tokens_.is_op("["))
      node = subscript(std::move(node));
    else if (tokens_.is_op("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExprPtr ExprParser::filters_and_tests(ExprPtr node) {
  for (;;) {
    if (tokens_.is_op("|"))
      node = filters(std::move(node));
    else if (tokens_.is_name("is"))
      node = test(std::move(node));
    else if (tokens_.is_op("("))
      node = call(std::move(node));
    else
      return node;
  }
}

ExprPtr ExprParser::subscript(ExprPtr node) {
  const int line = tokens_.line();
  if (tokens_.skip_op(".")) {
    if (tokens_.is(Type::integer)) return make(Kind::item, line, "", std::move(node), number(tokens_.take()));
    return make(Kind::attribute, line, tokens_.name(), std::move(node));
  }
  tokens_.expect_op("[");
  const auto bound = [&]() -> ExprPtr { return tokens_.is_op(":") || tokens_.is_op("]") ? nullptr : expression(); };
  ExprPtr first = bound();
  if (!tokens_.is_op(":")) {
    if (!first) tokens_.unexpected("a subscript");
    if (tokens_.is_op(",")) {  // x[1, 2] subscripts with a tuple
      ExprPtr key = make(Kind::tuple, line, "", std::move(first));
      while (tokens_.skip_op(",")) key->parts.push_back(expression());
      first = std::move(key);
    }
    tokens_.expect_op("]");
    return make(Kind::item, line, "", std::move(node), std::move(first));
  }
  tokens_.take();
  ExprPtr second = bound();
  ExprPtr third = tokens_.skip_op(":") ? bound() : nullptr;
  tokens_.expect_op("]");
  return make(Kind::slice, line, "", std::move(node), std::move(first), std::move(second), std::move(third));
}

CallArgs ExprParser::call_args() {
  CallArgs args;
  tokens_.expect_op("(");
  while (!tokens_.is_op(")")) {
    if (tokens_.skip_op("**")) {
      args.star_star = expression();
    } else if (tokens_.skip_op("*")) {
      args.star = expression();
    } else if (tokens_.is(Type::name) && tokens_.is_op("=", 1)) {
      std::string name = tokens_.name();
      tokens_.take();
      args.named.emplace_back(std::move(name), expression());
    } else {
      if (!args.named.empty() || args.star || args.star_star)
        throw TemplateError("a positional argument after named ones", tokens_.line());
      args.positional.push_back(expression());
    }
    if (!tokens_.skip_op(",")) break;
  }
  tokens_.expect_op(")");
  return args;
}

ExprPtr ExprParser::call(ExprPtr node) {
  ExprPtr made = make(Kind::call, tokens_.line(), "", std::move(node));
  made->args = call_args();
  deepen(*made);
  return made;
}

ExprPtr ExprParser::filters(ExprPtr node, bool start_inline) {
  while (start_inline || tokens_.skip_op("|")) {
    start_inline = false;
    const int line = tokens_.line();
    std::string name = tokens_.name();
    while (tokens_.skip_op(".")) name += "." + tokens_.name();
    ExprPtr made = make(Kind::filter, line, std::move(name), std::move(node));
    if (tokens_.is_op("(")) made->args = call_args();
    deepen(*made);
    node = std::move(made);
  }
  return node;
}

ExprPtr ExprParser::test(ExprPtr node) {
  const int line = tokens_.take().line;  // "is"
  const bool negated = tokens_.skip_name("not");
  ExprPtr made = make(Kind::test, line, tokens_.name(), std::move(node));
  const bool operand_follows = tokens_.is(Type::name) || tokens_.is(Type::string) || tokens_.is(Type::integer) ||
                               tokens_.is(Type::real) || tokens_.is_op("[") || tokens_.is_op("{");
  const bool keyword = tokens_.is_name("else") || tokens_.is_name("or") || tokens_.is_name("and");
  if (tokens_.is_op("(")) {
    made->args = call_args();
  } else if (operand_follows && !keyword) {
    if (tokens_.is_name("is")) throw TemplateError("tests cannot be chained with is", line);
    made->args.positional.push_back(postfix(primary()));
  }
  deepen(*made);
  return negated ? make(Kind::unary, line, "not", std::move(made)) : std::move(made);
}

}  // namespace medley::jinja
