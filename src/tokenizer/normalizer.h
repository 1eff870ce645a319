// The first stage of encoding: text to text (tokenizer.json's "normalizer").
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace medley {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(std::string& text) const = 0;  // text is valid UTF-8, before and after
  // `at_start`: nothing stands before the text, neither text nor a token.
  virtual void apply_part(std::string& text, bool) const { apply(text); }
};

// nullptr for null and for an empty sequence: the text stays as it is. `where` names the component in errors.
std::unique_ptr<Normalizer> make_normalizer(const nlohmann::json& json, const std::string& where);

}  // namespace medley
