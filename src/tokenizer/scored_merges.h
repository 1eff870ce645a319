// The merges of sentencepiece's BPE, which lists none: two neighbours merge if a token spells both, the one with the
// highest score first. (tokenizer.model and GGUF files hold such vocabularies.)
#pragma once

#include <functional>
#include <span>

#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"

namespace medley {

// Every way to cut a token in two tokens is a merge. Tokens of the same score have the same rank, so that the leftmost
// pair goes first. `scores` by id; `takes_part` says which tokens merge and are merged.
MergeTable scored_merges(const Vocabulary& vocabulary, std::span<const float> scores,
                         const std::function<bool(int32_t id)>& takes_part);

}  // namespace medley
