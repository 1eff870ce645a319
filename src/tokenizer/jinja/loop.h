// `loop` inside a for, and namespaces.
#pragma once

#include "tokenizer/jinja/value.h"

namespace medley::jinja {

struct Loop final : Object, std::enable_shared_from_this<Loop> {
  // Throws TemplateError when the items are nested too deep to be nested once more.
  Loop(std::vector<Value> all, int nesting);
  Value attribute(const std::string& name) override;
  std::string repr() const override { return "<LoopContext>"; }
  const Callable* call() const override { return recurse.is_callable() ? &recurse.callable() : nullptr; }
  int depth() const override { return items_depth; }

  std::vector<Value> items;
  size_t index = 0;
  int nesting;  // of a recursive loop, from 0
  int items_depth = 0;
  Value recurse;    // none unless the loop is recursive
  Value last_seen;  // what loop.changed() got before: plain values only, so that loops cannot hold each other
  bool seen = false;
};

// False if the object is not a namespace.
bool set_namespace(Object& object, const std::string& name, Value value);
void clear_namespace(Object& object);

}  // namespace medley::jinja
