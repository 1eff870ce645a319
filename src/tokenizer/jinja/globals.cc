// The functions every template can call.
#include <ctime>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/interpreter.h"

namespace medley::jinja {
namespace {

constexpr int64_t max_range = 100'000;  // the sandbox of jinja2 has the same bound

Value range(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("range", arguments, {"start", "stop", "step"}, 1);
  const bool one = !args.has(1);
  const int64_t start = one ? 0 : args.integer(0), stop = one ? args.integer(0) : args.integer(1);
  const int64_t step = args.integer(2, 1);
  if (step == 0) raise("range() step must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (int64_t(items.size()) >= max_range) raise("range too big, the sandbox allows {} items", max_range);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  interpreter.charge(items.size() * sizeof(Value));
  return make_list(std::move(items));
}

Dict dict_of(Arguments& arguments) {
  Dict made;
  if (arguments.positional.size() > 1) raise("dict() takes at most 1 positional argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.is_dict()) {
      made = from.dict();
    } else {
      for (const Value& pair : items_of(from)) {
        const std::vector<Value> both = items_of(pair);
        if (both.size() != 2) raise("dict() needs pairs of key and value");
        made.set(both[0], both[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) made.set(Value(name), std::move(value));
  return made;
}

Value dict(Interpreter& interpreter, Arguments& arguments) {
  Dict made = dict_of(arguments);
  interpreter.charge(made.items.size() * 2 * sizeof(Value));
  return make_dict(std::move(made));
}

Value make_namespace(Interpreter& interpreter, Arguments& arguments) {
  return interpreter.make_namespace(dict_of(arguments));
}

Value raise_exception(Interpreter&, Arguments& arguments) {
  const ArgReader args("raise_exception", arguments, {"message"}, 1);
  raise("{}", str(args.at(0)));
}

Value strftime_now(Interpreter& interpreter, Arguments& arguments) {
  const ArgReader args("strftime_now", arguments, {"format"}, 1);
  const std::string format = args.text(0);
  if (format.empty()) return Value("");
  if (format.size() > 1024) raise("strftime_now: the format is longer than 1024 bytes");
  const std::time_t now = interpreter.options().now ? interpreter.options().now() : std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(16 * 1024, '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &local));
  return Value(std::move(text));
}

}  // namespace

const Value* find_global(std::string_view name) {
  static const std::vector<std::pair<std::string, Value>> globals = [] {
    std::vector<std::pair<std::string, Value>> made;
    const auto add = [&](const char* key, Value (*function)(Interpreter&, Arguments&)) {
      made.emplace_back(key, make_callable(key, function));
    };
    add("range", range);
    add("dict", dict);
    add("namespace", make_namespace);
    add("raise_exception", raise_exception);
    add("strftime_now", strftime_now);
    return made;
  }();
  for (const auto& [key, value] : globals)
    if (key == name) return &value;
  return nullptr;
}

}  // namespace medley::jinja
