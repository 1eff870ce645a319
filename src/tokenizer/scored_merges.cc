#include "tokenizer/scored_merges.h"

#include <algorithm>
#include <vector>

#include "tokenizer/unicode.h"

namespace medley {

MergeTable scored_merges(const Vocabulary& vocabulary, std::span<const float> scores,
                         const std::function<bool(int32_t id)>& takes_part) {
  std::vector<int32_t> by_score;
  for (int32_t id = 0; id < vocabulary.end_id(); ++id)
    if (vocabulary.token(id) && !vocabulary.token(id)->empty() && takes_part(id)) by_score.push_back(id);
  const auto score = [&](int32_t id) { return scores[size_t(id)]; };
  std::stable_sort(by_score.begin(), by_score.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  const auto part = [&](std::string_view text) {
    const auto id = vocabulary.find(text);
    return id && takes_part(*id) ? *id : -1;
  };
  struct Found {
    int32_t left, right;
    MergeTable::Merge merge;
  };
  std::vector<Found> found;
  uint32_t rank = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && score(by_score[i]) != score(by_score[i - 1])) ++rank;
    const std::string_view text = *vocabulary.token(by_score[i]);
    for (size_t cut = unicode::length_of(text[0]); cut < text.size(); cut += unicode::length_of(text[cut])) {
      const int32_t left = part(text.substr(0, cut));
      const int32_t right = left < 0 ? -1 : part(text.substr(cut));
      if (right >= 0) found.push_back({left, right, {rank, by_score[i]}});
    }
  }
  MergeTable merges(found.size());
  for (const Found& one : found) merges.set(one.left, one.right, one.merge);
  return merges;
}

}  // namespace medley
