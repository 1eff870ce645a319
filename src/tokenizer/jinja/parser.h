// Tokens to a tree.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/lexer.h"

namespace medley::jinja {

// Throws TemplateError with the line: for what is not Jinja, and for statements that chat templates do not have
// (include, import, extends, block), by name.
Body parse(std::string_view source);

// The token being looked at, and the usual questions about it.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() {
    Token token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  int line() const { return peek().line; }
  bool is(Token::Type type) const { return peek().type == type; }
  bool is_op(std::string_view op, size_t ahead = 0) const {
    return peek(ahead).type == Token::Type::op && peek(ahead).value == op;
  }
  bool is_name(std::string_view name, size_t ahead = 0) const {
    return peek(ahead).type == Token::Type::name && peek(ahead).value == name;
  }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(Token::Type type);
  std::string name();  // any
  size_t position() const { return at_; }
  bool names_since(size_t begin, std::string_view name) const;  // whether the name was taken since
  [[noreturn]] void unexpected(const char* expected) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

class ExprParser {
 public:
  explicit ExprParser(TokenStream& tokens) : tokens_(tokens) {}

  ExprPtr expression(bool with_condition = true);
  // Several expressions with commas between them make a tuple. `end_name` ends it too ("in", "recursive").
  ExprPtr tuple(bool with_condition, std::string_view end_name = {}, bool allow_empty = false);
  ExprPtr primary();
  ExprPtr filters(ExprPtr node, bool start_inline = false);

 private:
  using Kind = Expr::Kind;
  template <class... Parts>
  ExprPtr make(Kind kind, int line, std::string text, Parts... parts);
  static void deepen(Expr& expr);
  ExprPtr binary_chain(ExprPtr (ExprParser::*next)(), std::initializer_list<std::string_view> ops);

  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary();
  ExprPtr unary_operand(bool with_filters);
  ExprPtr postfix(ExprPtr node);
  ExprPtr filters_and_tests(ExprPtr node);
  ExprPtr subscript(ExprPtr node);
  ExprPtr call(ExprPtr node);
  ExprPtr test(ExprPtr node);
  CallArgs call_args();
  ExprPtr list();
  ExprPtr dict();
  ExprPtr number(const Token& token);

  TokenStream& tokens_;
  int nesting_ = 0;
};

}  // namespace medley::jinja
