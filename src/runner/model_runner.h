// Runs one step: turns a StepPlan into a Step (views in buffers that stay), calls the model, and returns the logits
// that were asked for. Owns the cache's memory.
//
// With multi-token prediction, draft() follows run(): the modules' forward over the same rows, one token further on.
#pragma once

#include <span>
#include <vector>

#include "cache/arena.h"
#include "core/step.h"
#include "core/step_plan.h"
#include "kernels/pointwise.h"
#include "models/model.h"

namespace medley {

// Logits of one row of the plan: rows [first, first + count) of StepLogits::logits are those of positions
// [position, position + count) of the request.
struct RowLogits {
  RequestId request = 0;
  int64_t first = 0;
  int64_t count = 0;
  int64_t position = 0;
};

struct StepLogits {
  TensorView logits;            // f32 [n, vocab_size]; valid until the next run() or draft()
  std::vector<RowLogits> rows;  // one per plan row, in order; count 0 where none were wanted
};

class ModelRunner {
 public:
  ModelRunner(Model& model, const ArenaGeometry& geometry, ThreadPool& threads);

  StepLogits run(const StepPlan& plan);

  // After run(plan): what the model's next multi-token-prediction module makes of the step (Model::draft). following[r]
  // is the token after those of row r that were used last, or -1: nobody knows it yet. RowLogits say which positions'
  // hidden states they come from: their logits score the token two after (three after when called again, and so on). Of
  // the rows that run() gave, those with an unknown token are left out.
  StepLogits draft(const StepPlan& plan, std::span<const int32_t> following);

 private:
  void build_rows(const StepPlan& plan);
  void build_groups(const StepPlan& plan);
  void build_logits_rows(const StepPlan& plan, StepLogits& wanted);
  void shift_tokens(std::span<const int32_t> following);
  void compute_logits(const TensorView& hidden, StepLogits& result);

  Model& model_;
  Buffer arena_;
  Workspace workspace_;
  ExecContext exec_;
  Step step_;
  std::vector<int32_t> token_ids_, positions_, row_offsets_, computed_, logits_tokens_;
  struct GroupBuffers {
    std::vector<int32_t> block_table, state_in, state_out;
    std::vector<int64_t> slot_mapping;
  };
  std::vector<GroupBuffers> groups_;
  Buffer hidden_, drafted_, chosen_, logits_;
  int drafts_ = 0;  // modules that this step has been through
  Kernel<ConvertRowsArgs> gather_;
};

}  // namespace medley
