// A template's source to tokens, with the white space around tags handled as trim_blocks and lstrip_blocks say (both
// on, as transformers sets them).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace medley::jinja {

struct Token {
  enum class Type { text, block_begin, block_end, variable_begin, variable_end, name, string, integer, real, op, end };
  Type type = Type::end;
  std::string value;  // a string without quotes and escapes, an operator's characters, ...
  int line = 1;
};

// Throws TemplateError with the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace medley::jinja
