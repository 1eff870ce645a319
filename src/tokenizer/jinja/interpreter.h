// Runs a parsed template. What a template can use is bounded: steps, bytes of output, bytes of intermediate values,
// depth of calls; it sees its variables and nothing else of the process.
#pragma once

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/value.h"

namespace medley::jinja {

struct Limits {
  int64_t steps = 20'000'000;  // evaluated nodes and items; a long chat takes some 100,000
  size_t output_bytes = 64u << 20;
  size_t value_bytes = 256u << 20;  // of all strings and lists made on the way
  int depth = 600;                  // of the evaluation: a macro that calls itself goes about 60 deep
};

struct Options {
  Limits limits;
  std::function<std::time_t()> now;  // for strftime_now; empty: the system's clock
};

struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  const Value* find(std::string_view name) const;  // here and outwards
  void set(const std::string& name, Value value);  // here
};

class Interpreter {
 public:
  explicit Interpreter(const Options& options) : options_(options) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  // The text of a template. Throws TemplateError.
  std::string render(const Body& body, const std::map<std::string, Value>& variables);

  // For filters and functions:
  void charge(size_t bytes);  // before a value of about that size is made
  void step(int64_t count = 1);
  std::string text_of(const Value& value);  // str(), charged
  Value call(const Value& callable, Arguments arguments);
  Value apply_filter(const std::string& name, Arguments arguments);  // the value first
  bool apply_test(const std::string& name, const Value& value, Arguments arguments);
  Value attribute(const Value& value, const std::string& name);  // value.name
  Value item(const Value& value, const Value& key);              // value[key]
  Value make_namespace(Dict attributes);
  const Options& options() const { return options_; }

 private:
  enum class Flow { normal, break_loop, continue_loop };

  Flow run(const Body& body);
  Flow run(const Node& node);
  Flow run_condition(const Node& node);
  Flow run_loop(const Node& node);
  Flow run_scoped(const Node& node);
  void iterate(const Node& node, const Value& iterable, int depth, std::shared_ptr<Scope> outside);
  void run_call_block(const Node& node);
  Value macro_of(const Node& node);
  Value call_macro(const Node& node, const std::shared_ptr<Scope>& outside, Arguments& arguments);
  void bind_parameters(const MacroSignature& signature, Arguments& arguments);
  std::string capture(const Body& body);
  void assign(const Target& target, Value value);
  void write(std::string_view text);

  Value eval(const Expr& expr);
  Value eval_inner(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value* input = nullptr);
  std::string filter_block(const Expr& expr, std::string text);
  Value eval_binary(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs);
  Arguments eval_args(const CallArgs& args);

  class ScopeGuard;
  class DepthGuard;
  class OutputGuard;

  const Options& options_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int64_t steps_ = 0;
  size_t value_bytes_ = 0;
  int depth_ = 0;
  // Scopes that macros point to, and namespaces, may point to themselves: emptied at the end.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<Object>> namespaces_;
};

// The names every template sees: range, dict, namespace, raise_exception, ... Null if there is none.
const Value* find_global(std::string_view name);
// A method of a string, a list or a dict, bound to it. Null value (is_none) if there is none.
Value find_method(const Value& self, const std::string& name);
bool contains(Interpreter& interpreter, const Value& container, const Value& item);
// value[start:stop:step]; none for what is left out.
Value slice(Interpreter& interpreter, const Value& value, const Value& start, const Value& stop, const Value& step);
Value binary_operation(Interpreter& interpreter, const std::string& op, const Value& left, const Value& right);
std::string to_json(Interpreter& interpreter, const Value& value, Arguments& options);  // json.dumps
// text.replace(from, to, count), charged before it grows.
Value replace_charged(Interpreter& interpreter, const std::string& text, const std::string& from, const std::string& to,
                      int64_t count);
std::string brace_format(Interpreter& interpreter, const std::string& format, Arguments& arguments);  // str.format
std::string percent_format(Interpreter& interpreter, const std::string& format, const Value& arguments);

}  // namespace medley::jinja
