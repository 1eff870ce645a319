// Statements, scopes and macros.
#include <algorithm>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/interpreter.h"
#include "tokenizer/jinja/loop.h"
#include "tokenizer/jinja/run_guards.h"

namespace medley::jinja {

using Kind = Node::Kind;

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get())
    for (const auto& [key, value] : scope->variables)
      if (key == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  for (auto& [key, old] : variables)
    if (key == name) return void(old = std::move(value));
  variables.emplace_back(name, std::move(value));
}

Interpreter::~Interpreter() {
  for (const auto& scope : captured_) scope->variables.clear();
  for (const auto& object : namespaces_) clear_namespace(*object);
}

std::string Interpreter::render(const Body& body, const std::map<std::string, Value>& variables) {
  auto globals = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) globals->set(name, value);
  scope_ = std::make_shared<Scope>(std::move(globals));
  std::string text;
  const OutputGuard output(*this, text);
  run(body);
  return text;
}

void Interpreter::step(int64_t count) {
  steps_ += count;
  if (steps_ > options_.limits.steps) raise("the template takes more than {} steps", options_.limits.steps);
}

void Interpreter::charge(size_t bytes) {
  value_bytes_ += bytes;
  step(int64_t(bytes / 256));
  if (bytes > options_.limits.value_bytes || value_bytes_ > options_.limits.value_bytes)
    raise("the template makes more than {} bytes of values", options_.limits.value_bytes);
}

std::string Interpreter::text_of(const Value& value) {
  charge(value.weight());
  return str(value);
}

void Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > options_.limits.output_bytes)
    raise("the template writes more than {} bytes", options_.limits.output_bytes);
  out_->append(text);
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& node : body) {
    step();
    try {
      if (const Flow flow = run(*node); flow != Flow::normal) return flow;
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = node->line;
      throw;
    }
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Node& node) {
  const DepthGuard guard(*this);
  switch (node.kind) {
    case Kind::text: write(node.text); break;
    case Kind::output: write(text_of(eval(*node.expr))); break;
    case Kind::condition: return run_condition(node);
    case Kind::loop: return run_loop(node);
    case Kind::set: assign(node.target, eval(*node.expr)); break;
    case Kind::set_block: {
      std::string text = capture(node.body);
      assign(node.target, Value(node.expr ? filter_block(*node.expr, std::move(text)) : std::move(text)));
      break;
    }
    case Kind::macro: scope_->set(node.signature.name, macro_of(node)); break;
    case Kind::call_block: run_call_block(node); break;
    case Kind::filter: write(filter_block(*node.expr, capture(node.body))); break;
    case Kind::with:
    case Kind::scope: return run_scoped(node);
    case Kind::break_loop: return Flow::break_loop;
    case Kind::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_condition(const Node& node) {
  for (const auto& [test, body] : node.branches)
    if (!test || truth(eval(*test))) return run(body);
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_scoped(const Node& node) {
  auto inner = std::make_shared<Scope>(scope_);
  for (const auto& [target, expr] : node.assignments) inner->set(target.name, eval(*expr));  // all see the outer scope
  const ScopeGuard guard(*this, std::move(inner));
  return run(node.body);
}

Interpreter::Flow Interpreter::run_loop(const Node& node) {
  const Value iterable = eval(*node.expr);
  iterate(node, iterable, 0, scope_);
  return Flow::normal;
}

void Interpreter::iterate(const Node& node, const Value& iterable, int depth, std::shared_ptr<Scope> outside) {
  std::vector<Value> items = items_of(iterable);
  charge(items.size() * sizeof(Value));
  const auto enter = [&](const Value& item) {
    scope_ = std::make_shared<Scope>(outside);
    assign(node.target, item);
  };
  const ScopeGuard guard(*this, outside);
  if (node.test) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      enter(item);
      if (truth(eval(*node.test))) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scope_ = std::make_shared<Scope>(outside);
    run(node.else_body);
    return;
  }
  const auto loop = std::make_shared<Loop>(std::move(items), depth);
  if (node.recursive) {
    captured_.push_back(outside);
    loop->recurse = make_callable("loop", [&node, depth, outside](Interpreter& self, Arguments& arguments) {
      if (arguments.positional.size() != 1 || !arguments.named.empty()) raise("loop(...) takes one argument");
      std::string text;
      const OutputGuard output(self, text);
      self.iterate(node, arguments.positional[0], depth + 1, outside);
      return Value(std::move(text));
    });
  }
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    step();
    enter(loop->items[loop->index]);
    scope_->set("loop", Value(std::shared_ptr<Object>(loop)));
    if (run(node.body) == Flow::break_loop) break;
  }
}

void Interpreter::assign(const Target& target, Value value) {
  switch (target.kind) {
    case Target::Kind::name: scope_->set(target.name, std::move(value)); return;
    case Target::Kind::attribute: {
      const Value* object = scope_->find(target.name);
      if (!object) raise("'{}' is undefined", target.name);
      if (!object->is_object() || !set_namespace(*object->object(), target.attribute, std::move(value)))
        raise("cannot assign attribute on non-namespace object '{}'", target.name);
      return;
    }
    case Target::Kind::tuple: {
      std::vector<Value> items = items_of(value);
      if (items.size() != target.parts.size())
        raise("cannot unpack {} values into {} names", items.size(), target.parts.size());
      for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], std::move(items[i]));
      return;
    }
  }
}

std::string Interpreter::capture(const Body& body) {
  std::string text;
  const OutputGuard output(*this, text);
  const ScopeGuard guard(*this, std::make_shared<Scope>(scope_));
  run(body);
  charge(text.size());
  return text;
}

Value Interpreter::macro_of(const Node& node) {
  captured_.push_back(scope_);
  charge(sizeof(Node));
  return make_callable(node.signature.name, [&node, outside = scope_](Interpreter& self, Arguments& arguments) {
    return self.call_macro(node, outside, arguments);
  });
}

Value Interpreter::call_macro(const Node& node, const std::shared_ptr<Scope>& outside, Arguments& arguments) {
  const ScopeGuard guard(*this, std::make_shared<Scope>(outside));
  bind_parameters(node.signature, arguments);
  std::string text;
  const OutputGuard output(*this, text);
  run(node.body);
  charge(text.size());
  return Value(std::move(text));
}

void Interpreter::bind_parameters(const MacroSignature& signature, Arguments& arguments) {
  const size_t count = signature.parameters.size();
  std::vector<Value> extra;
  for (size_t i = count; i < arguments.positional.size(); ++i) extra.push_back(arguments.positional[i]);
  if (!extra.empty() && !signature.uses_varargs)
    raise("macro '{}' takes not more than {} argument(s)", signature.name, count);
  const size_t first_default = count - signature.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = signature.parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == name; });
    if (i < arguments.positional.size()) {
      if (named != arguments.named.end()) raise("macro '{}' got two values for '{}'", signature.name, name);
      scope_->set(name, arguments.positional[i]);
    } else if (named != arguments.named.end()) {
      scope_->set(name, std::move(named->second));
      arguments.named.erase(named);
    } else if (i >= first_default) {
      scope_->set(name, eval(*signature.defaults[i - first_default]));
    } else {
      scope_->set(name, undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  if (signature.uses_caller) scope_->set("caller", undefined("no caller defined"));
  Dict rest;
  for (auto& [name, value] : arguments.named) {
    if (name == "caller" && signature.uses_caller)
      scope_->set("caller", std::move(value));
    else if (signature.uses_kwargs)
      rest.set(Value(name), std::move(value));
    else
      raise("macro '{}' takes no keyword argument '{}'", signature.name, name);
  }
  if (signature.uses_varargs) scope_->set("varargs", make_list(std::move(extra), List::Type::tuple));
  if (signature.uses_kwargs) scope_->set("kwargs", make_dict(std::move(rest)));
}

void Interpreter::run_call_block(const Node& node) {
  const Value callable = eval(*node.expr->parts[0]);
  Arguments arguments = eval_args(node.expr->args);
  arguments.named.emplace_back("caller", macro_of(node));
  write(text_of(call(callable, std::move(arguments))));
}

}  // namespace medley::jinja
