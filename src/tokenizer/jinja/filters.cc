#include "tokenizer/jinja/filters.h"

#include "tokenizer/jinja/call_args.h"

namespace medley::jinja {

Value Interpreter::apply_filter(const std::string& name, Arguments arguments) {
  static const Filters filters = [] {
    Filters made;
    add_text_filters(made);
    add_number_filters(made);
    add_sequence_filters(made);
    add_selection_filters(made);
    return made;
  }();
  const auto it = filters.find(name);
  if (it == filters.end()) raise("no filter named '{}'", name);
  step(1 + int64_t(arguments.positional[0].weight() / 256));
  return it->second(*this, arguments);
}

}  // namespace medley::jinja
