#include "layers/norm.h"

namespace medley {

RmsNorm::RmsNorm(LoadContext& context, const std::string& name, int64_t dim, NormRule rule, const Slice& slice)
    : dim_(dim), rule_(rule) {
  if (!name.empty()) {
    weight_ = take_parameter(context, name, {dim}, slice);
    dim_ = weight_.size();
  }
  f32_ = context.kernels.resolve(rms_norm_op(), {.dim = dim_, .y = DType::f32});
  act_ = context.kernels.resolve(rms_norm_op(), {.dim = dim_, .y = context.dtype});
}

void RmsNorm::run(RmsNormArgs args, ExecContext& exec) const {
  args.weight = weight_.data();
  args.eps = rule_.eps;
  args.weight_offset = rule_.weight_offset;
  (args.y.dtype == DType::f32 ? f32_ : act_)(args, exec);
}

}  // namespace medley
