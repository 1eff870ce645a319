// Matrix products with weights in the layout their kernel asked for. Column-parallel layers give each rank some of the
// outputs; row-parallel ones give it some of the inputs and sum over the ranks.
#pragma once

#include <string>
#include <vector>

#include "kernels/gate.h"
#include "kernels/linear.h"
#include "layers/load_context.h"
#include "layers/parameter.h"

namespace medley {

// A stored tensor's part that becomes rows of a (merged) matrix.
struct LinearPart {
  std::string weight;  // tensor name, [out, in]
  std::string bias;    // empty: none
  int64_t out = 0;     // rows of the whole tensor
  int64_t in = 0;      // columns of the whole tensor
  Slice slice;         // rows (dim 0) or columns (dim 1) taken, and how ranks share them
  float scale = 1;     // multiplies these rows' outputs, bias included
};

// Packs `slots` matrices [n, k] of the views given (slot by slot, each a list of row parts) as kernels read them.
struct PackedMatrices {
  WeightView view;
  Buffer storage;
};
PackedMatrices pack_matrices(LoadContext& context, WeightLayout layout,
                             const std::vector<std::vector<TensorView>>& slots);
// The dtype a view is packed in: its own; of blocks the model's where they are expanded, else f32 where they run along
// the rows' other dimension (a transposed view).
DType packed_dtype(const LoadContext& context, const TensorView& part);

// The parts of a merged matrix may be stored in different types (in GGUF files they often are). Runs of parts of one
// type become one segment: a matrix with its own kernel, which writes its columns of y.
class Linear {
 public:
  Linear() = default;
  // The parts one under another: [sum of the rank's rows, the rank's columns].
  Linear(LoadContext& context, const std::vector<LinearPart>& parts);

  // x [tokens, in] of the model's dtype, y [tokens, out] f32 or bf16.
  void operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const;
  // y += the product; y f32.
  void accumulate(const TensorView& x, const TensorView& y, ExecContext& exec) const;
  int64_t in() const { return in_; }
  int64_t out() const { return out_; }
  // The matrix as its kernel reads it, when it is one segment: for an embedding tied to it.
  const WeightView& weight() const;

 private:
  struct Segment {
    Kernel<LinearArgs> kernel;
    std::shared_ptr<const PackedMatrices> packed;
    int64_t first = 0;  // column of y
  };
  void run(const TensorView& x, const TensorView& y, bool accumulate, ExecContext& exec) const;

  int64_t in_ = 0, out_ = 0;
  std::vector<Segment> segments_;
  Parameter bias_;
  Parameter scale_;  // [out], when any is not 1
  Kernel<ScaleColumnsArgs> scale_columns_;
};

// The same for one matrix per expert, with grouped_linear: [slots][sum of the parts' rows, k].
class ExpertLinear {
 public:
  ExpertLinear() = default;
  // By slot, its row parts; bias [slots, rows of all parts] or empty.
  ExpertLinear(LoadContext& context, const std::vector<std::vector<TensorView>>& slots, const std::vector<float>& bias);

  // `args` without weight and bias.
  void operator()(GroupedLinearArgs args, ExecContext& exec) const;
  int64_t slots() const { return slots_; }

  // Of gate over up: asks for a kernel that has the activation in it, y of this dtype. Where there is one, gated() may
  // stand for the product and the activation.
  void find_gated(LoadContext& context, Activation activation, DType y);
  bool has_gated() const { return gated_.run != nullptr; }
  void gated(GatedGroupedLinearArgs args, ExecContext& exec) const;

 private:
  struct Segment {
    Kernel<GroupedLinearArgs> kernel;
    PackedMatrices packed;
    Parameter bias;     // [slots, the segment's rows]
    int64_t first = 0;  // column of y
  };
  int64_t slots_ = 0;
  std::vector<Segment> segments_;
  GroupedLinearDesc desc_;  // of the last segment
  Kernel<GatedGroupedLinearArgs> gated_;
};

// y holds the rank's own outputs.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear() = default;
  ColumnParallelLinear(LoadContext& context, const std::vector<LinearPart>& parts) : linear_(context, parts) {}
  void operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const { linear_(x, y, exec); }
  int64_t in() const { return linear_.in(); }
  int64_t out() const { return linear_.out(); }  // of this rank

 private:
  Linear linear_;
};

// x holds the rank's own inputs; y (f32) is complete on every rank. Only rank 0 adds the bias.
class RowParallelLinear {
 public:
  RowParallelLinear() = default;
  RowParallelLinear(LoadContext& context, LinearPart part);
  void operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const;
  int64_t in() const { return linear_.in(); }  // of this rank
  int64_t out() const { return linear_.out(); }

 private:
  Linear linear_;
  Communicator* comm_ = nullptr;
};

}  // namespace medley
