// Runs one step: turns a StepPlan into a Step (views in buffers that stay), calls the model, and returns the logits
// that were asked for. Owns the cache's memory.
//
// On a device a step in which every row decodes one token is padded to one of a few shapes and, from the second of its
// shape on, recorded and replayed as a graph. Pads belong to no row, so no kernel reads or writes a cache for them.
//
// With multi-token prediction, draft() follows run(): the modules' forward over the same rows, one token further on.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cache/arena.h"
#include "core/step.h"
#include "core/step_plan.h"
#include "kernels/pointwise.h"
#include "models/model.h"
#include "runner/step_buffer.h"

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
  TensorView logits;            // f32 [n, vocab_size], in host memory; valid until the next run() or draft()
  std::vector<RowLogits> rows;  // one per plan row, in order; count 0 where none were wanted
};

class ModelRunner {
 public:
  ModelRunner(Model& model, const ArenaGeometry& geometry, ThreadPool& threads, Device device, bool graphs = true);

  StepLogits run(const StepPlan& plan) {
    start(plan);
    return host_logits();
  }

  // After run(plan): what the model's next multi-token-prediction module makes of the step (Model::draft). following[r]
  // is the token after those of row r that were used last, or -1: nobody knows it yet. RowLogits say which positions'
  // hidden states they come from: their logits score the token two after (three after when called again, and so on). Of
  // the rows that run() gave, those with an unknown token are left out.
  StepLogits draft(const StepPlan& plan, std::span<const int32_t> following);

  // run() in parts, for who does not want the logits on the host: start() leaves them on the device, and on a GPU
  // returns before they are computed. The plan may hold token_of_last_step; last_tokens (i32 [slots], on the device)
  // has them when the step gets there.
  void start(const StepPlan& plan, const TensorView& last_tokens = {});
  const TensorView& device_logits() const { return step_logits_; }  // f32 [rows of logits, padded; vocab_size]
  const std::vector<RowLogits>& logits_rows() const { return logits_rows_; }  // of the last start()
  StepLogits host_logits() { return to_host(logits_rows_); }
  void* stream() const { return stream_.get(); }
  const Buffer& arena() const { return arena_; }
  int64_t graphs() const { return int64_t(recorded_.size()); }  // steps run from these recordings

 private:
  // What the launches of a step depend on.
  struct Shape {
    int64_t tokens = 0, rows = 0, logits = 0;
    int64_t context = 0;               // no row's is longer; 0: as the rows say
    std::vector<int64_t> table_width;  // by group: blocks
    auto operator<=>(const Shape&) const = default;
  };
  // The tokens of a pass over a plan's rows: the model's own, or a draft's, which are some places further on.
  struct Pass {
    std::span<const int32_t> token_ids;  // -1: unknown yet; in the model's own pass, token_of_last_step
    int32_t shift = 0;                   // 0: the model's own
    std::vector<RowLogits> logits;       // what is wanted of each row
  };
  Shape shape_of(const StepPlan& plan, const Pass& pass) const;
  void pad(Shape& shape) const;
  size_t table_bytes(const Shape& shape) const;

  void build_tables(const StepPlan& plan, const Pass& pass, const Shape& shape);
  void build_rows(const StepPlan& plan, const Pass& pass, const Shape& shape);
  void build_groups(const StepPlan& plan, const Shape& shape);
  void build_pages(const StepPlan& plan, const Shape& shape, size_t group);
  void build_states(const StepPlan& plan, const Shape& shape, size_t group);
  void build_logits_rows(const StepPlan& plan, const Pass& pass, const Shape& shape);
  TensorView grown(Buffer& buffer, int64_t rows, int64_t width);
  void forget_recordings();
  void set_last_tokens(const TensorView& last_tokens);
  void compute(const TensorView& hidden, const TensorView& chosen);
  void compute_logits(const TensorView& hidden, const TensorView& chosen);
  void shift_tokens(const StepPlan& plan, std::span<const int32_t> following);
  StepLogits to_host(std::vector<RowLogits> rows);

  Model& model_;
  Device device_;
  bool graphs_;
  Stream stream_;
  Buffer arena_;
  Workspace workspace_;
  std::unique_ptr<SideBranch> branch_;  // on a device
  ExecContext exec_;
  Step step_;
  TensorView token_slots_;  // i32 [tokens]: whose last token this one is, or -1
  TensorView last_tokens_;
  StepBuffer tables_;
  Buffer hidden_, chosen_, logits_;
  Buffer drafted_[2];               // hidden states of the module before and of this one, in turns
  std::vector<int32_t> draft_ids_;  // of the last pass
  int drafts_ = 0;                  // modules that this step has been through
  TensorView step_logits_;
  std::vector<RowLogits> logits_rows_;
  PinnedBuffer host_logits_;
  Kernel<ConvertRowsArgs> gather_;
  // Steps of these shapes have run, and are recordings if they are not empty. Goes when an address changes.
  std::map<Shape, Graph> recorded_;
};

}  // namespace medley
