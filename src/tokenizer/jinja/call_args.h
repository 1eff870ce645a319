// Reading the arguments of a filter, a method or a function by place or by name.
#pragma once

#include <initializer_list>
#include <string>

#include "tokenizer/jinja/errors.h"
#include "tokenizer/jinja/value.h"

namespace medley::jinja {

class ArgReader {
 public:
  // Throws TemplateError for more arguments than names, an unknown name and a value given twice. The first `required`
  // must be there.
  ArgReader(const std::string& what, Arguments& arguments, std::initializer_list<const char*> names,
            size_t required = 0);

  bool has(size_t i) const { return values_[i] != nullptr; }
  bool given(size_t i) const { return has(i) && !values_[i]->is_none(); }  // and not none
  const Value& at(size_t i) const { return *values_[i]; }
  Value value(size_t i, const Value& fallback = {}) const { return has(i) ? at(i) : fallback; }
  std::string text(size_t i, std::string fallback = {}) const;  // must be a string
  int64_t integer(size_t i, int64_t fallback = 0) const;
  bool flag(size_t i, bool fallback = false) const { return has(i) ? truth(at(i)) : fallback; }

 private:
  std::string what_;
  std::vector<const Value*> values_;
  std::vector<const char*> names_;
};

// The value as a number, or the error Python would raise.
int64_t integer_of(const Value& value, const std::string& what);

}  // namespace medley::jinja
