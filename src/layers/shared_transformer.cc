#include "layers/shared_transformer.h"

namespace medley {

SharedTransformer::SharedTransformer(LoadContext& context, const SharedTransformerSpec& spec, CacheLayout& cache)
    : hidden_(spec.hidden),
      dtype_(context.dtype),
      attention_norm_(context, spec.prefix + "input_layernorm.weight", 2 * spec.hidden, spec.norm),
      mlp_norm_(context, spec.prefix + "pre_ff_layernorm.weight", spec.hidden, spec.norm),
      attention_(context, spec.attention, cache),
      mlp_(context, spec.mlp),
      projection_(context, {{spec.projection, "", spec.hidden, spec.hidden, {}}}) {
  copy_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = DType::f32});
  to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = dtype_});
}

void SharedTransformer::forward(const Step& step, const TensorView& stream, const TensorView& embedding,
                                std::span<const StepRope> ropes, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens;
  const TensorView both = exec.workspace.alloc(DType::f32, {tokens, 2 * hidden_});
  copy_({.x = stream, .y = both.slice(1, 0, hidden_)}, exec);
  copy_({.x = embedding, .y = both.slice(1, hidden_, hidden_)}, exec);
  const TensorView wide = exec.workspace.alloc(dtype_, {tokens, 2 * hidden_});
  attention_norm_(both, wide, exec);
  attention_.forward(step, wide, ropes, y, exec);
  const TensorView input = exec.workspace.alloc(dtype_, {tokens, hidden_});
  mlp_norm_(y, input, exec);
  mlp_.forward(input, y, exec);
  to_dtype_({.x = y, .y = input}, exec);
  projection_(input, y, exec);
}

}  // namespace medley
