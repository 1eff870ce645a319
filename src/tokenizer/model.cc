#include "tokenizer/model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/unigram.h"

namespace medley {

std::unique_ptr<TokenModel> make_model(const nlohmann::json& json, const std::string& where, bool allow_byte_words,
                                       bool* byte_words) {
  JsonFields fields(json, where);
  // Files of the first years have no type; they are BPE if they have merges.
  const std::string type = fields.text("type", fields.has("merges") ? "BPE" : "");
  *byte_words = false;
  std::unique_ptr<TokenModel> made;
  if (type == "BPE") {
    auto bpe = std::make_unique<BpeModel>(fields, allow_byte_words);
    *byte_words = bpe->byte_words();
    made = std::move(bpe);
  } else if (type == "Unigram") {
    made = std::make_unique<UnigramModel>(fields);
  } else {
    fail("{}: the model \"{}\" is not supported; supported are BPE and Unigram", where, type);
  }
  fields.done();
  return made;
}

}  // namespace medley
