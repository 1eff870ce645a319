#include "tokenizer/jinja/call_args.h"

namespace medley::jinja {

ArgReader::ArgReader(const std::string& what, Arguments& arguments, std::initializer_list<const char*> names,
                     size_t required)
    : what_(what), values_(names.size()), names_(names) {
  if (arguments.positional.size() > names.size())
    raise("{} takes at most {} argument(s), got {}", what, names.size(), arguments.positional.size());
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < names_.size() && name != names_[i]) ++i;
    if (i == names_.size()) raise("{} has no argument '{}'", what, name);
    if (values_[i]) raise("{} got two values for '{}'", what, name);
    values_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) raise("{} needs the argument '{}'", what, names_[i]);
}

std::string ArgReader::text(size_t i, std::string fallback) const {
  if (!has(i)) return fallback;
  if (at(i).is_undefined()) raise("{}", at(i).why());
  if (!at(i).is_string()) raise("{}: '{}' must be a string, not {}", what_, names_[i], type_name(at(i)));
  return at(i).text();
}

int64_t ArgReader::integer(size_t i, int64_t fallback) const {
  return has(i) ? integer_of(at(i), what_) : fallback;
}

int64_t integer_of(const Value& value, const std::string& what) {
  if (value.is_undefined()) raise("{}", value.why());
  if (!value.is_int() && !value.is_bool()) raise("{}: expected an integer, found {}", what, type_name(value));
  return value.integer();
}

}  // namespace medley::jinja
