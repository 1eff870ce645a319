// The inside of a Tokenizer: one value per stage of tokenizer.json. Includes everything, so only tokenizer*.cc use it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer_config.h"

namespace medley {

struct EncodeScratch {
  std::string repaired, normalized;
  std::vector<AddedTokens::Part> raw_parts, normalized_parts;
  ModelScratch model;
};

// Scratches lent to one encode each. As many exist as encodes ever ran at a time; their caches stay warm.
class ScratchPool {
 public:
  std::unique_ptr<EncodeScratch> take();
  void put(std::unique_ptr<EncodeScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeScratch>> free_;
};

struct TokenizerParts {
  AddedTokens added;
  std::unique_ptr<Normalizer> normalizer;  // may be null
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  Decoder decoder;
  TokenizerConfig config;
  std::optional<int32_t> bos_id, eos_id;
  mutable ScratchPool scratches;

  std::optional<std::string_view> token(int32_t id) const;
  std::optional<int32_t> id_of(std::string_view token) const;
};

}  // namespace medley
