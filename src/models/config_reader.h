// config.json, field by field. A family asks for what it knows; finish() refuses what nobody asked for, so that no
// field that changes the arithmetic is ever ignored.
#pragma once

#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace medley {

class ConfigReader {
 public:
  // `origin` names the file in messages; `path` the object inside it ("rope_parameters.").
  ConfigReader(const nlohmann::json& object, std::string origin, std::string path = "");

  // Required when no default is given; a field that is null counts as absent. Errors name file and field. Integers are
  // sizes and counts: from 1 (or from the default, if that is smaller) to 2^24, so that nothing made of them divides by
  // zero or overflows.
  int64_t integer(const std::string& field);
  int64_t integer(const std::string& field, int64_t fallback);
  int64_t layers();  // num_hidden_layers: at most 10,000, as everything of a model is made layer by layer
  int64_t integer_or_zero(const std::string& field, int64_t fallback);
  double number(const std::string& field);
  double number(const std::string& field, double fallback);
  bool boolean(const std::string& field, bool fallback);
  std::string text(const std::string& field);
  std::string text(const std::string& field, const std::string& fallback);
  std::optional<int64_t> optional_integer(const std::string& field);
  std::optional<double> optional_number(const std::string& field);
  std::vector<int64_t> integers(const std::string& field);   // absent: empty; from 0 on
  std::vector<double> numbers(const std::string& field);     // absent: empty; {"__float__": "Infinity"} is a number
  std::vector<std::string> texts(const std::string& field);  // absent: empty
  std::vector<int64_t> integer_or_list(const std::string& field);  // absent: empty; from 0 on
  std::optional<ConfigReader> object(const std::string& field);

  bool has(const std::string& field) const;      // and is not null
  bool has_key(const std::string& field) const;  // null or not
  bool is_text(const std::string& field) const;

  // The field has this value (or is absent); anything else is refused: "X is Y; medley supports Z only".
  void require(const std::string& field, const char* value);  // a literal would otherwise become a bool
  void require(const std::string& field, bool value);
  void require(const std::string& field, int64_t value);
  // Fields known to change nothing for inference in this family.
  void ignore(std::initializer_list<const char*> fields);

  // Refuses every field that was neither read nor ignored.
  void finish() const;

  [[noreturn]] void refuse(const std::string& field, const std::string& why) const;
  const std::string& origin() const { return origin_; }

 private:
  const nlohmann::json* find(const std::string& field);
  int64_t integer_from(const std::string& field, int64_t least);
  [[noreturn]] void wrong_type(const std::string& field, const std::string& wanted) const;

  const nlohmann::json* object_;
  std::string origin_, path_;
  std::set<std::string> seen_;
};

}  // namespace medley
