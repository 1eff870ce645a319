// Kind window: a full group that forgets. A query at position p reads positions (p - window, p]; pages wholly before
// the next token's window are dropped, and serve again as long as the reservation has pages to come. So a long prompt
// needs no more than the window plus one step's tokens.
#pragma once

#include "cache/full_manager.h"

namespace medley {

class WindowManager : public FullManager {
 public:
  using FullManager::FullManager;

  int64_t blocks_needed(int64_t computed, int64_t tokens) const override;
  void drop_dead(BlockTable& table, int64_t computed, int64_t tokens) override;
  int64_t longest_truncation(const BlockTable& table, int64_t computed, int64_t tokens) const override;

 private:
  int64_t first_live(int64_t computed) const;  // the first page that the token at position `computed` reads
};

}  // namespace medley
