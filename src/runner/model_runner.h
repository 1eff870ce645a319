// Runs one step: turns a StepPlan into a Step (views in buffers that stay), calls the model, and returns the logits
// that were asked for. Owns the cache's memory.
//
// On a device a step in which every row decodes one token is padded to one of a few shapes and, from the second of its
// shape on, recorded and replayed as a graph. Pads belong to no row, so no kernel reads or writes a cache for them.
#pragma once

#include <map>
#include <memory>
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
  TensorView logits;            // f32 [n, vocab_size], in host memory; valid until the next step
  std::vector<RowLogits> rows;  // one per plan row, in order; count 0 where none were wanted
};

class ModelRunner {
 public:
  ModelRunner(Model& model, const ArenaGeometry& geometry, ThreadPool& threads, Device device, bool graphs = true);

  StepLogits run(const StepPlan& plan);

  // The same in two parts, for who does not want the logits on the host: start() leaves them on the device.
  void start(const StepPlan& plan);
  const TensorView& device_logits() const { return step_logits_; }  // f32 [rows of logits, padded; vocab_size]
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
  Shape shape_of(const StepPlan& plan) const;
  void pad(Shape& shape) const;
  size_t table_bytes(const Shape& shape) const;

  void build_rows(const StepPlan& plan, const Shape& shape);
  void build_groups(const StepPlan& plan, const Shape& shape);
  void build_pages(const StepPlan& plan, const Shape& shape, size_t group);
  void build_states(const StepPlan& plan, const Shape& shape, size_t group);
  void build_logits_rows(const StepPlan& plan, const Shape& shape);
  TensorView grown(Buffer& buffer, int64_t rows, int64_t width);
  void compute(const TensorView& hidden, const TensorView& chosen);

  Model& model_;
  Device device_;
  bool graphs_;
  Stream stream_;
  Buffer arena_;
  Workspace workspace_;
  std::unique_ptr<SideBranch> branch_;  // on a device
  ExecContext exec_;
  Step step_;
  StepBuffer tables_;
  Buffer hidden_, chosen_, logits_;
  TensorView step_logits_;
  PinnedBuffer host_logits_;
  Kernel<ConvertRowsArgs> gather_;
  // Steps of these shapes have run, and are recordings if they are not empty. Goes when an address changes.
  std::map<Shape, Graph> recorded_;
};

}  // namespace medley
