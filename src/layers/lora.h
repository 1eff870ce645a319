// A low-rank addition to a projection, y += B(A x): an adapter that belongs to one use of shared weights (Zamba2).
#pragma once

#include "layers/linear.h"

namespace medley {

class Lora {
 public:
  Lora() = default;
  // A is `prefix`0.weight [rank, in], on every rank; B is `prefix`1.weight [out, rank], of which `slices` are taken.
  Lora(LoadContext& context, const std::string& prefix, int64_t in, int64_t rank, int64_t out,
       const std::vector<Slice>& slices);
  // x [tokens, in] of the model's dtype; y f32 [tokens, the slices' rows].
  void add(const TensorView& x, const TensorView& y, ExecContext& exec) const;

 private:
  DType dtype_ = DType::f32;
  Linear a_, b_;
};

}  // namespace medley
