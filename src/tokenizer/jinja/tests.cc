// What can stand after "is".
#include <unordered_map>

#include "tokenizer/jinja/call_args.h"
#include "tokenizer/jinja/filters.h"
#include "tokenizer/jinja/text_ops.h"

namespace medley::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value& value, const Value* operand);

int64_t number(const Value& value) {
  return integer_of(value, "this test");
}

bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() || (value.is_list() && value.list().indexable());
}

bool divisible(const Value& value, const Value& by) {
  if (number(by) == 0) raise("division by zero");
  return number(by) == -1 || number(value) % number(by) == 0;
}

const std::unordered_map<std::string_view, Test>& tests_of_one() {
  static const std::unordered_map<std::string_view, Test> tests{
      {"defined", [](Interpreter&, const Value& v, const Value*) { return !v.is_undefined(); }},
      {"undefined", [](Interpreter&, const Value& v, const Value*) { return v.is_undefined(); }},
      {"none", [](Interpreter&, const Value& v, const Value*) { return v.is_none(); }},
      {"boolean", [](Interpreter&, const Value& v, const Value*) { return v.is_bool(); }},
      {"true", [](Interpreter&, const Value& v, const Value*) { return v.is_bool() && v.flag(); }},
      {"false", [](Interpreter&, const Value& v, const Value*) { return v.is_bool() && !v.flag(); }},
      {"integer", [](Interpreter&, const Value& v, const Value*) { return v.is_int(); }},
      {"float", [](Interpreter&, const Value& v, const Value*) { return v.is_float(); }},
      {"number", [](Interpreter&, const Value& v, const Value*) { return v.is_number(); }},
      {"string", [](Interpreter&, const Value& v, const Value*) { return v.is_string(); }},
      {"mapping", [](Interpreter&, const Value& v, const Value*) { return v.is_dict(); }},
      {"sequence", [](Interpreter&, const Value& v, const Value*) { return is_sequence(v); }},
      {"iterable", [](Interpreter&, const Value& v,
                      const Value*) { return v.is_undefined() || v.is_string() || v.is_dict() || v.is_list(); }},
      {"callable", [](Interpreter&, const Value& v,
                      const Value*) { return v.is_callable() || (v.is_object() && v.object()->call()); }},
      {"escaped", [](Interpreter&, const Value&, const Value*) { return false; }},
      {"lower", [](Interpreter&, const Value& v, const Value*) { return is_lower_text(str(v)); }},
      {"upper", [](Interpreter&, const Value& v, const Value*) { return is_upper_text(str(v)); }},
      {"odd", [](Interpreter&, const Value& v, const Value*) { return number(v) % 2 != 0; }},
      {"even", [](Interpreter&, const Value& v, const Value*) { return number(v) % 2 == 0; }},
  };
  return tests;
}

const std::unordered_map<std::string_view, Test>& tests_of_two() {
  static const Test eq = [](Interpreter&, const Value& a, const Value* b) { return equal(a, *b); };
  static const Test ne = [](Interpreter&, const Value& a, const Value* b) { return !equal(a, *b); };
  static const Test lt = [](Interpreter&, const Value& a, const Value* b) { return compare(a, *b, "<") < 0; };
  static const Test le = [](Interpreter&, const Value& a, const Value* b) { return compare(a, *b, "<=") <= 0; };
  static const Test gt = [](Interpreter&, const Value& a, const Value* b) { return compare(a, *b, ">") > 0; };
  static const Test ge = [](Interpreter&, const Value& a, const Value* b) { return compare(a, *b, ">=") >= 0; };
  static const std::unordered_map<std::string_view, Test> tests{
      {"eq", eq},
      {"equalto", eq},
      {"==", eq},
      {"ne", ne},
      {"!=", ne},
      {"lt", lt},
      {"lessthan", lt},
      {"<", lt},
      {"le", le},
      {"<=", le},
      {"gt", gt},
      {"greaterthan", gt},
      {">", gt},
      {"ge", ge},
      {">=", ge},
      {"in", [](Interpreter& interpreter, const Value& a, const Value* b) { return contains(interpreter, *b, a); }},
      {"sameas", [](Interpreter&, const Value& a, const Value* b) { return a.same_as(*b); }},
      {"divisibleby", [](Interpreter&, const Value& a, const Value* b) { return divisible(a, *b); }},
  };
  return tests;
}

}  // namespace

bool Interpreter::apply_test(const std::string& name, const Value& value, Arguments arguments) {
  step();
  if (const auto it = tests_of_one().find(name); it != tests_of_one().end()) {
    const ArgReader args("the test '" + name + "'", arguments, {});
    return it->second(*this, value, nullptr);
  }
  const auto it = tests_of_two().find(name);
  if (it == tests_of_two().end()) raise("no test named '{}'", name);
  const ArgReader args("the test '" + name + "'", arguments, {"other"}, 1);
  step(int64_t(std::min(value.weight(), args.at(0).weight()) / 64));
  return it->second(*this, value, &args.at(0));
}

}  // namespace medley::jinja
