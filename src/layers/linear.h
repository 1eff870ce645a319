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

class Linear {
 public:
  Linear() = default;
  // The parts one under another: [sum of the rank's rows, the rank's columns].
  Linear(LoadContext& context, const std::vector<LinearPart>& parts);

  // x [tokens, in] of the model's dtype, y [tokens, out] f32 or bf16.
  void operator()(const TensorView& x, const TensorView& y, ExecContext& exec) const;
  // y += the product; y f32.
  void accumulate(const TensorView& x, const TensorView& y, ExecContext& exec) const;
  int64_t in() const { return weight_.k; }
  int64_t out() const { return weight_.n; }

 private:
  Kernel<LinearArgs> kernel_;
  WeightView weight_;
  std::shared_ptr<const PackedMatrices> storage_;
  Parameter bias_;
  Parameter scale_;  // [out], when any is not 1
  Kernel<ScaleColumnsArgs> scale_columns_;
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
