// Expressions.
#include <algorithm>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/run_guards.h"
#include "tokenizer/unicode.h"

namespace medley::jinja {

using Kind = Expr::Kind;

Value Interpreter::eval(const Expr& expr) {
  const DepthGuard guard(*this);
  step();
  try {
    return eval_inner(expr);
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Interpreter::eval_inner(const Expr& expr) {
  switch (expr.kind) {
    case Kind::constant: return expr.constant;
    case Kind::name: return eval_name(expr);
    case Kind::list: return make_list(eval_all(expr.parts));
    case Kind::tuple: return make_list(eval_all(expr.parts), List::Type::tuple);
    case Kind::dict: return eval_dict(expr);
    case Kind::attribute: return attribute(eval(*expr.parts[0]), expr.text);
    case Kind::item: {
      const Value value = eval(*expr.parts[0]);
      return item(value, eval(*expr.parts[1]));
    }
    case Kind::slice: return eval_slice(expr);
    case Kind::call: return eval_call(expr);
    case Kind::filter: return eval_filter(expr);
    case Kind::test: {
      const Value value = eval(*expr.parts[0]);
      return Value(apply_test(expr.text, value, eval_args(expr.args)));
    }
    case Kind::unary: {
      const Value value = eval(*expr.parts[0]);
      if (expr.text == "not") return Value(!truth(value));
      if (value.is_float()) return Value(expr.text == "-" ? -value.real() : value.real());  // keeps -0.0
      return binary_operation(*this, expr.text, Value(0), value);
    }
    case Kind::binary: return eval_binary(expr);
    case Kind::concat: return eval_concat(expr);
    case Kind::compare: return eval_compare(expr);
    case Kind::logic: {
      Value left = eval(*expr.parts[0]);
      if (truth(left) == (expr.text == "or")) return left;
      return eval(*expr.parts[1]);
    }
    case Kind::condition: {
      if (truth(eval(*expr.parts[1]))) return eval(*expr.parts[0]);
      if (expr.parts[2]) return eval(*expr.parts[2]);
      return undefined("the inline if-expression evaluated to false and no else section was defined");
    }
  }
  raise("an expression of unknown kind");
}

Value Interpreter::eval_name(const Expr& expr) {
  if (const Value* found = scope_->find(expr.text)) return *found;
  if (const Value* found = find_global(expr.text)) return *found;
  return undefined_name(expr.text);
}

std::vector<Value> Interpreter::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const auto& expr : exprs) values.push_back(eval(*expr));
  charge(values.size() * sizeof(Value));
  return values;
}

Value Interpreter::eval_dict(const Expr& expr) {
  Dict dict;
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    const Value key = eval(*expr.parts[i]);
    dict.set(key, eval(*expr.parts[i + 1]));
  }
  charge(expr.parts.size() * sizeof(Value));
  return make_dict(std::move(dict));
}

Value Interpreter::eval_slice(const Expr& expr) {
  const Value value = eval(*expr.parts[0]);
  const auto bound = [&](size_t i) { return expr.parts[i] ? eval(*expr.parts[i]) : Value(); };
  const Value start = bound(1), stop = bound(2), step = bound(3);
  return slice(*this, value, start, stop, step);
}

Arguments Interpreter::eval_args(const CallArgs& args) {
  Arguments values;
  values.positional = eval_all(args.positional);
  for (const auto& [name, expr] : args.named) values.named.emplace_back(name, eval(*expr));
  if (args.star)
    for (Value& value : items_of(eval(*args.star))) values.positional.push_back(std::move(value));
  if (args.star_star) {
    const Value more = eval(*args.star_star);
    if (!more.is_dict()) raise("argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [name, value] : more.dict().items) values.named.emplace_back(str(name), value);
  }
  return values;
}

Value Interpreter::eval_call(const Expr& expr) {
  const Value callable = eval(*expr.parts[0]);
  return call(callable, eval_args(expr.args));
}

Value Interpreter::call(const Value& callable, Arguments arguments) {
  step();
  if (callable.is_undefined()) raise("{}", callable.why());
  const Callable* target = callable.is_callable() ? &callable.callable() : nullptr;
  if (callable.is_object()) target = callable.object()->call();
  if (!target) raise("'{}' object is not callable", type_name(callable));
  return target->run(*this, arguments);
}

Value Interpreter::eval_filter(const Expr& expr, const Value* input) {
  Arguments arguments;
  arguments.positional.push_back(input ? *input : expr.parts[0] ? eval(*expr.parts[0]) : Value());
  Arguments more = eval_args(expr.args);
  std::move(more.positional.begin(), more.positional.end(), std::back_inserter(arguments.positional));
  arguments.named = std::move(more.named);
  return apply_filter(expr.text, std::move(arguments));
}

// The text of a block through a chain of filters, whose innermost has no value of its own.
std::string Interpreter::filter_block(const Expr& expr, std::string text) {
  if (!expr.parts[0]) {
    const Value input(std::move(text));
    return text_of(eval_filter(expr, &input));
  }
  const Value input(filter_block(*expr.parts[0], std::move(text)));
  return text_of(eval_filter(expr, &input));
}

Value Interpreter::eval_binary(const Expr& expr) {
  const Value left = eval(*expr.parts[0]);
  return binary_operation(*this, expr.text, left, eval(*expr.parts[1]));
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::string text;
  for (const auto& part : expr.parts) {
    text += text_of(eval(*part));
  }
  return Value(std::move(text));
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.parts[i + 1]);
    const std::string& op = expr.ops[i];
    step(int64_t(std::min(left.weight(), right.weight()) / 64));
    bool holds = false;
    if (op == "==" || op == "!=")
      holds = equal(left, right) == (op == "==");
    else if (op == "in" || op == "not in")
      holds = contains(*this, right, left) == (op == "in");
    else if (op == "<")
      holds = compare(left, right, "<") < 0;
    else if (op == "<=")
      holds = compare(left, right, "<=") <= 0;
    else if (op == ">")
      holds = compare(left, right, ">") > 0;
    else
      holds = compare(left, right, ">=") >= 0;
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

namespace {

std::string object_name(const Value& value) {
  return value.is_none() ? "None" : type_name(value) + " object";
}

Value missing(const Value& value, const std::string& name) {
  return undefined(fmt::format("'{}' has no attribute '{}'", object_name(value), name));
}

}  // namespace

Value Interpreter::attribute(const Value& value, const std::string& name) {
  if (value.is_undefined()) raise("{}", value.why());
  if (name.starts_with("__"))
    return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
  if (value.is_object()) return value.object()->attribute(name);
  if (Value method = find_method(value, name); !method.is_none()) return method;
  if (value.is_dict())
    if (const Value* found = value.dict().find_text(name)) return *found;
  return missing(value, name);
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) raise("{}", value.why());
  if (value.is_dict() && !key.is_undefined()) {
    const bool hashable = !key.is_dict() && !(key.is_list() && key.list().type != List::Type::tuple);
    if (const Value* found = hashable ? value.dict().find(key) : nullptr) return *found;
  }
  const bool number = key.is_int() || key.is_bool();
  if (number && (value.is_string() || (value.is_list() && value.list().indexable()))) {
    const int64_t size = value.is_string() ? int64_t(unicode::count(value.text())) : int64_t(value.list().items.size());
    const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
    if (index >= 0 && index < size) {
      if (value.is_list()) return value.list().items[size_t(index)];
      return slice(*this, value, Value(index), Value(index + 1), Value());
    }
    return undefined(fmt::format("{} has no element {}", object_name(value), key.integer()));
  }
  if (key.is_string()) {
    if (value.is_object()) return value.object()->attribute(key.text());
    if (Value method = find_method(value, key.text()); !method.is_none()) return method;
    return missing(value, key.text());
  }
  return undefined(fmt::format("{} has no element {}", object_name(value), repr(key)));
}

}  // namespace medley::jinja
