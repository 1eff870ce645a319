#include "tokenizer/jinja/parser.h"

#include <algorithm>

#include "tokenizer/jinja/errors.h"

namespace medley::jinja {

using Type = Token::Type;

bool TokenStream::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void TokenStream::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(std::string("\"" + std::string(op) + "\"").c_str());
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected(std::string("\"" + std::string(name) + "\"").c_str());
}

void TokenStream::expect(Type type) {
  if (!is(type)) unexpected(type == Type::block_end ? "the tag's end \"%}\"" : "the end of the expression \"}}\"");
  take();
}

std::string TokenStream::name() {
  if (!is(Type::name)) unexpected("a name");
  return take().value;
}

bool TokenStream::names_since(size_t begin, std::string_view name) const {
  return std::any_of(tokens_.begin() + ptrdiff_t(begin), tokens_.begin() + ptrdiff_t(at_),
                     [&](const Token& token) { return token.type == Type::name && token.value == name; });
}

void TokenStream::unexpected(const char* expected) const {
  const Token& token = peek();
  std::string found = "\"" + token.value + "\"";
  if (token.type == Type::end) found = "the end of the template";
  if (token.type == Type::block_end) found = "\"%}\"";
  if (token.type == Type::variable_end) found = "\"}}\"";
  throw TemplateError(fmt::format("expected {}, found {}", expected, found), token.line);
}

namespace {

constexpr int max_block_nesting = 60;

class StatementParser {
 public:
  explicit StatementParser(std::string_view source) : tokens_(tokenize(source)), exprs_(tokens_) {}

  Body run() {
    Body body = until({});
    if (!tokens_.is(Type::end)) tokens_.unexpected("the end of the template");
    return body;
  }

 private:
  using Kind = Node::Kind;
  using NodePtr = std::unique_ptr<Node>;

  NodePtr make(Kind kind) const {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = tokens_.line();
    return node;
  }

  // Statements up to a tag that starts with one of `ends`, whose "{%" is taken and whose name is not.
  Body until(std::initializer_list<std::string_view> ends) {
    if (++nesting_ > max_block_nesting)
      throw TemplateError(fmt::format("blocks nested deeper than {}", max_block_nesting), tokens_.line());
    Body body;
    const int opened = tokens_.line();
    for (;;) {
      if (tokens_.is(Type::end)) {
        if (ends.size() != 0)
          throw TemplateError(fmt::format("the template ends where \"{}\" was expected", *(ends.end() - 1)), opened);
        break;
      }
      if (tokens_.is(Type::text)) {
        body.push_back(make(Kind::text));
        body.back()->text = tokens_.take().value;
      } else if (tokens_.is(Type::variable_begin)) {
        body.push_back(make(Kind::output));
        tokens_.take();
        body.back()->expr = exprs_.tuple(true);
        tokens_.expect(Type::variable_end);
      } else {
        tokens_.take();  // "{%"
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return tokens_.is_name(end); })) break;
        body.push_back(statement());
      }
    }
    --nesting_;
    return body;
  }

  void end_tag() { tokens_.expect(Type::block_end); }
  Body body_until(std::string_view end) {
    end_tag();
    Body body = until({end});
    tokens_.expect_name(end);
    end_tag();
    return body;
  }

  NodePtr statement() {
    const int line = tokens_.line();
    const std::string tag = tokens_.name();
    if (tag == "if") return condition();
    if (tag == "for") return loop();
    if (tag == "set") return set();
    if (tag == "macro") return macro();
    if (tag == "call") return call_block();
    if (tag == "filter") return filter();
    if (tag == "with") return with();
    if (tag == "generation") {  // marks the assistant's part for training; the text is the same
      auto node = make(Kind::scope);
      node->body = body_until("endgeneration");
      return node;
    }
    if (tag == "break" || tag == "continue") {
      auto node = make(tag == "break" ? Kind::break_loop : Kind::continue_loop);
      if (loops_ == 0) throw TemplateError(fmt::format("\"{}\" outside of a loop", tag), line);
      end_tag();
      return node;
    }
    throw TemplateError(fmt::format("the statement \"{}\" is not supported; supported are if, for, set, macro, call, "
                                    "filter, with, generation, break, continue, raw",
                                    tag),
                        line);
  }

  NodePtr condition() {
    auto node = make(Kind::condition);
    ExprPtr test = exprs_.tuple(false);
    for (;;) {
      end_tag();
      Body body = until({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(test), std::move(body));
      if (tokens_.skip_name("elif")) {
        test = exprs_.tuple(false);
      } else if (tokens_.skip_name("else")) {
        node->branches.emplace_back(nullptr, body_until("endif"));
        return node;
      } else {
        tokens_.expect_name("endif");
        end_tag();
        return node;
      }
    }
  }

  NodePtr loop() {
    auto node = make(Kind::loop);
    node->target = target(false);
    tokens_.expect_name("in");
    node->expr = exprs_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) node->test = exprs_.expression();
    node->recursive = tokens_.skip_name("recursive");
    end_tag();
    ++loops_;
    node->body = until({"endfor", "else"});
    --loops_;
    if (tokens_.skip_name("else")) {
      node->else_body = body_until("endfor");
    } else {
      tokens_.expect_name("endfor");
      end_tag();
    }
    return node;
  }

  Target target(bool with_attribute) {
    Target whole;
    std::vector<Target> parts;
    bool is_tuple = false;
    for (;;) {
      parts.push_back(one_target(with_attribute));
      if (!tokens_.skip_op(",")) break;
      is_tuple = true;
      if (tokens_.is_name("in") || tokens_.is_op("=")) break;
    }
    if (!is_tuple) return std::move(parts[0]);
    whole.kind = Target::Kind::tuple;
    whole.parts = std::move(parts);
    return whole;
  }

  Target one_target(bool with_attribute) {
    if (++nesting_ > max_block_nesting) throw TemplateError("targets nested too deep", tokens_.line());
    Target made;
    if (tokens_.skip_op("(")) {
      made = target(with_attribute);
      tokens_.expect_op(")");
    } else {
      const int line = tokens_.line();
      made.name = tokens_.name();
      for (const std::string_view word : {"true", "false", "none", "True", "False", "None"})
        if (made.name == word) throw TemplateError("can't assign to '" + made.name + "'", line);
      if (with_attribute && tokens_.skip_op(".")) {
        made.kind = Target::Kind::attribute;
        made.attribute = tokens_.name();
      }
    }
    --nesting_;
    return made;
  }

  NodePtr set() {
    auto node = make(Kind::set);
    node->target = target(true);
    if (tokens_.skip_op("=")) {
      node->expr = exprs_.tuple(true);
      end_tag();
      return node;
    }
    node->kind = Kind::set_block;
    if (tokens_.is_op("|")) node->expr = exprs_.filters(nullptr);
    node->body = body_until("endset");
    return node;
  }

  void signature(MacroSignature& out) {
    tokens_.expect_op("(");
    while (!tokens_.is_op(")")) {
      out.parameters.push_back(tokens_.name());
      if (tokens_.skip_op("="))
        out.defaults.push_back(exprs_.expression());
      else if (!out.defaults.empty())
        throw TemplateError("a parameter without a default after one with", tokens_.line());
      if (!tokens_.skip_op(",")) break;
    }
    tokens_.expect_op(")");
  }

  // A macro's body is outside of the loops around it.
  void macro_body(Node& node, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    const size_t begin = tokens_.position();
    node.body = body_until(end);
    loops_ = loops;
    node.signature.uses_caller = tokens_.names_since(begin, "caller");
    node.signature.uses_varargs = tokens_.names_since(begin, "varargs");
    node.signature.uses_kwargs = tokens_.names_since(begin, "kwargs");
  }

  NodePtr macro() {
    auto node = make(Kind::macro);
    node->signature.name = tokens_.name();
    signature(node->signature);
    macro_body(*node, "endmacro");
    return node;
  }

  NodePtr call_block() {
    auto node = make(Kind::call_block);
    node->signature.name = "caller";
    if (tokens_.is_op("(")) signature(node->signature);
    node->expr = exprs_.expression();
    if (node->expr->kind != Expr::Kind::call) throw TemplateError("expected a call", node->line);
    macro_body(*node, "endcall");
    return node;
  }

  NodePtr filter() {
    auto node = make(Kind::filter);
    node->expr = exprs_.filters(nullptr, true);
    node->body = body_until("endfilter");
    return node;
  }

  NodePtr with() {
    auto node = make(Kind::with);
    while (!tokens_.is(Type::block_end)) {
      if (!node->assignments.empty()) tokens_.expect_op(",");
      Target name = one_target(false);
      tokens_.expect_op("=");
      node->assignments.emplace_back(std::move(name), exprs_.expression());
    }
    node->body = body_until("endwith");
    return node;
  }

  TokenStream tokens_;
  ExprParser exprs_;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) {
  return StatementParser(source).run();
}

}  // namespace medley::jinja
