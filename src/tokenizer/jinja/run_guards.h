// Scopes, output and depth of an Interpreter, restored however a function ends.
#pragma once

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/interpreter.h"

namespace medley::jinja {

class Interpreter::DepthGuard {
 public:
  explicit DepthGuard(Interpreter& interpreter) : depth_(interpreter.depth_) {
    if (depth_ >= interpreter.options_.limits.depth)
      raise("nested deeper than {} (a macro that calls itself without end?)", depth_);
    ++depth_;
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;

 private:
  int& depth_;
};

// Enters `scope` and comes back to the one before.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> scope)
      : interpreter_(interpreter), before_(std::exchange(interpreter.scope_, std::move(scope))) {}
  ~ScopeGuard() { interpreter_.scope_ = std::move(before_); }
  ScopeGuard(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::shared_ptr<Scope> before_;
};

// Collects what is written into a string of its own.
class Interpreter::OutputGuard {
 public:
  OutputGuard(Interpreter& interpreter, std::string& text)
      : interpreter_(interpreter), before_(std::exchange(interpreter.out_, &text)) {}
  ~OutputGuard() { interpreter_.out_ = before_; }
  OutputGuard(const OutputGuard&) = delete;

 private:
  Interpreter& interpreter_;
  std::string* before_;
};

}  // namespace medley::jinja
