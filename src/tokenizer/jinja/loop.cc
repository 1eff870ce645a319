#include "tokenizer/jinja/loop.h"

#include <algorithm>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/interpreter.h"

namespace medley::jinja {
namespace {

struct Namespace final : Object {
  explicit Namespace(Dict initial) : attributes(std::move(initial)) {}
  Value attribute(const std::string& name) override {
    const Value* found = attributes.find_text(name);
    return found ? *found : undefined(fmt::format("'namespace object' has no attribute '{}'", name));
  }
  std::string repr() const override { return "<Namespace>"; }

  Dict attributes;
};

// Whether a namespace, a loop or a function is somewhere inside.
bool holds_object(const Value& value) {
  if (value.is_object() || value.is_callable()) return true;
  if (value.is_list()) return std::any_of(value.list().items.begin(), value.list().items.end(), holds_object);
  if (value.is_dict())
    return std::any_of(value.dict().items.begin(), value.dict().items.end(),
                       [](const auto& item) { return holds_object(item.second); });
  return false;
}

Value cycle_of(const Loop& loop) {
  return make_callable("cycle", [index = loop.index](Interpreter&, Arguments& arguments) {
    if (arguments.positional.empty()) raise("no items for cycling given");
    return arguments.positional[index % arguments.positional.size()];
  });
}

Value changed_of(Loop& loop) {
  return make_callable("changed", [weak = loop.weak_from_this()](Interpreter&, Arguments& arguments) {
    const auto self = weak.lock();
    if (!self) raise("loop.changed used after its loop");
    Value now = make_list(arguments.positional, List::Type::tuple);
    if (holds_object(now)) raise("loop.changed takes plain values only");
    const bool changed = !self->seen || !equal(self->last_seen, now);
    self->last_seen = std::move(now);
    self->seen = true;
    return Value(changed);
  });
}

}  // namespace

Loop::Loop(std::vector<Value> all, int nesting_of_loop) : items(std::move(all)), nesting(nesting_of_loop) {
  for (const Value& item : items) items_depth = std::max(items_depth, item.depth());
  if (++items_depth > max_value_depth) raise("values nested deeper than {}", max_value_depth);
}

Value Loop::attribute(const std::string& name) {
  const auto size = int64_t(items.size()), at = int64_t(index);
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(size - at);
  if (name == "revindex0") return Value(size - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(nesting + 1);
  if (name == "depth0") return Value(nesting);
  if (name == "previtem") return at > 0 ? items[index - 1] : undefined("there is no previous item");
  if (name == "nextitem") return at + 1 < size ? items[index + 1] : undefined("there is no next item");
  if (name == "cycle") return cycle_of(*this);
  if (name == "changed") return changed_of(*this);
  return undefined(fmt::format("'loop object' has no attribute '{}'", name));
}

Value Interpreter::make_namespace(Dict attributes) {
  auto made = std::make_shared<Namespace>(std::move(attributes));
  charge(sizeof(Namespace));
  namespaces_.push_back(made);
  return Value(std::shared_ptr<Object>(std::move(made)));
}

bool set_namespace(Object& object, const std::string& name, Value value) {
  auto* target = dynamic_cast<Namespace*>(&object);
  if (target) target->attributes.set(Value(name), std::move(value));
  return target != nullptr;
}

void clear_namespace(Object& object) {
  if (auto* target = dynamic_cast<Namespace*>(&object)) target->attributes = {};
}

}  // namespace medley::jinja
