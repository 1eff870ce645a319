// A Jinja template: parsed once, rendered many times, from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/jinja/interpreter.h"

namespace medley::jinja {

class Template {
 public:
  // `name` stands in messages ("models/x/chat_template.jinja"). Throws medley::Error "NAME line N: ...".
  Template(std::string_view source, std::string name);

  struct Result {
    bool ok = false;
    std::string text;   // if ok
    std::string error;  // if not: "NAME line N: ...", also what raise_exception said
  };
  Result render(const std::map<std::string, Value>& variables, const Options& options = {}) const;

 private:
  std::string name_;
  std::shared_ptr<const Body> body_;
};

}  // namespace medley::jinja
