// Filters by name. Each takes its value as the first argument.
#pragma once

#include <string_view>
#include <unordered_map>

#include "tokenizer/jinja/interpreter.h"

namespace medley::jinja {

using Filter = Value (*)(Interpreter&, Arguments&);
using Filters = std::unordered_map<std::string_view, Filter>;

void add_text_filters(Filters& filters);
void add_number_filters(Filters& filters);
void add_sequence_filters(Filters& filters);
void add_selection_filters(Filters& filters);

// "a.b.0" of a value; undefined where a part is missing, or `fallback` if that is not null.
Value attribute_path(Interpreter& interpreter, const Value& value, const Value& path, const Value* fallback = nullptr);

}  // namespace medley::jinja
