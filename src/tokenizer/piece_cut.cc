#include "tokenizer/piece_cut.h"

#include <algorithm>

#include "base/error.h"

namespace medley {

CutBehavior cut_behavior(const std::string& name, const std::string& where) {
  if (name == "Isolated") return CutBehavior::isolated;
  if (name == "Removed") return CutBehavior::removed;
  if (name == "MergedWithPrevious") return CutBehavior::merged_with_previous;
  if (name == "MergedWithNext") return CutBehavior::merged_with_next;
  if (name == "Contiguous") return CutBehavior::contiguous;
  fail(
      "{}: the behavior \"{}\" is not known; known are Isolated, Removed, MergedWithPrevious, MergedWithNext, "
      "Contiguous",
      where, name);
}

namespace {

void join_contiguous(std::vector<CutSpan>& spans) {
  std::vector<CutSpan> joined;
  for (const CutSpan& span : spans) {
    if (!joined.empty() && joined.back().matched == span.matched)
      joined.back().end = span.end;
    else
      joined.push_back(span);
  }
  spans = std::move(joined);
}

// A match joins the span before it, unless that one is a match too.
void join_previous(std::vector<CutSpan>& spans) {
  std::vector<CutSpan> joined;
  bool previous_matched = false;
  for (const CutSpan& span : spans) {
    if (span.matched && !previous_matched && !joined.empty())
      joined.back().end = span.end;
    else
      joined.push_back(span);
    previous_matched = span.matched;
  }
  spans = std::move(joined);
}

void join_next(std::vector<CutSpan>& spans) {
  std::vector<CutSpan> joined;
  bool next_matched = false;
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->matched && !next_matched && !joined.empty())
      joined.back().begin = span->begin;
    else
      joined.push_back(*span);
    next_matched = span->matched;
  }
  std::reverse(joined.begin(), joined.end());
  spans = std::move(joined);
}

}  // namespace

void join_spans(std::vector<CutSpan>& spans, CutBehavior behavior) {
  switch (behavior) {
    case CutBehavior::isolated: break;
    case CutBehavior::removed: std::erase_if(spans, [](const CutSpan& span) { return span.matched; }); break;
    case CutBehavior::merged_with_previous: join_previous(spans); break;
    case CutBehavior::merged_with_next: join_next(spans); break;
    case CutBehavior::contiguous: join_contiguous(spans); break;
  }
}

}  // namespace medley
