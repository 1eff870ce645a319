#include "models/mtp.h"

namespace medley {

MtpModule::MtpModule(LoadContext& context, const MtpSpec& spec, int64_t hidden, NormRule norm, CacheLayout& cache)
    : dtype_(context.dtype),
      embedding_norm_(context, spec.prefix + spec.embedding_norm, hidden, norm),
      hidden_norm_(context, spec.prefix + spec.hidden_norm, hidden, norm),
      norm_(context, spec.prefix + spec.norm, hidden, norm),
      projection_(context, {{spec.prefix + spec.projection, "", hidden, 2 * hidden, {}}}),
      block_(context, spec.block, hidden, norm, cache) {
  // Published files repeat the model's own embedding and head under the module's names.
  context.weights.ignore(spec.prefix + "embed_tokens.weight");
  context.weights.ignore(spec.prefix + "shared_head.head.weight");
}

void MtpModule::forward(const Step& step, const TensorView& embedding, const TensorView& previous,
                        std::span<const StepRope> ropes, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, hidden = previous.size(1);
  const TensorView both = exec.workspace.alloc(dtype_, {tokens, 2 * hidden});
  embedding_norm_(embedding, both.slice(1, 0, hidden), exec);
  hidden_norm_(previous, both.slice(1, hidden, hidden), exec);
  ResidualStream stream{.x = exec.workspace.alloc(DType::f32, {tokens, hidden}),
                        .normed = exec.workspace.alloc(dtype_, {tokens, hidden}),
                        .made = exec.workspace.alloc(DType::f32, {tokens, hidden})};
  projection_(both, stream.x, exec);
  block_.forward(step, stream, ropes, exec);
  norm_.add(stream.x, stream.delta, y, exec);
}

}  // namespace medley
