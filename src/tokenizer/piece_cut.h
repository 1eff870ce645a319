// Cutting text at matches, with the five behaviours tokenizer.json names for what becomes of the match itself.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pre_tokenizer.h"

namespace medley {

enum class CutBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// "Isolated", "MergedWithPrevious", ...; throws Error naming `where` for another.
CutBehavior cut_behavior(const std::string& name, const std::string& where);

struct CutSpan {
  size_t begin = 0, end = 0;
  bool matched = false;
};

// Joins and drops spans, which cover the text from left to right, as the behaviour says.
void join_spans(std::vector<CutSpan>& spans, CutBehavior behavior);

// `next_match(begin, end)` gives the matches from left to right, false after the last.
template <class NextMatch>
void cut(const Piece& piece, CutBehavior behavior, bool invert, const PieceSink& sink, NextMatch next_match) {
  const auto emit = [&](size_t begin, size_t end) {
    if (begin < end) sink({piece.text.substr(begin, end - begin), piece.at_start && begin == 0, piece.needs_stand_ins});
  };
  size_t begin = 0, end = 0, done = 0;
  if (behavior == CutBehavior::isolated) {  // the common case needs no list
    while (next_match(begin, end)) {
      emit(done, begin);
      emit(begin, end);
      done = end;
    }
    emit(done, piece.text.size());
    return;
  }
  std::vector<CutSpan> spans;
  while (next_match(begin, end)) {
    if (done < begin) spans.push_back({done, begin, invert});
    spans.push_back({begin, end, !invert});
    done = end;
  }
  if (done < piece.text.size()) spans.push_back({done, piece.text.size(), invert});
  join_spans(spans, behavior);
  for (const CutSpan& span : spans) emit(span.begin, span.end);
}

}  // namespace medley
