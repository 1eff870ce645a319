#include "models/block.h"

namespace medley {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

}  // namespace

Block::Mixer Block::load_mixer(LoadContext& context, const MixerSpec& spec, CacheLayout& cache) {
  return std::visit(Overloaded{[](std::monostate) -> Mixer { return {}; },
                               [&](const GqaSpec& s) -> Mixer { return Gqa(context, s, cache); },
                               [&](const MlaSpec& s) -> Mixer { return Mla(context, s, cache); },
                               [&](const MambaSpec& s) -> Mixer { return Mamba(context, s, cache); },
                               [&](const Mamba2Spec& s) -> Mixer { return Mamba2(context, s, cache); },
                               [&](const ShortConvSpec& s) -> Mixer { return ShortConv(context, s, cache); },
                               [&](const GatedDeltaNetSpec& s) -> Mixer { return GatedDeltaNet(context, s, cache); },
                               [&](const KdaSpec& s) -> Mixer { return Kda(context, s, cache); },
                               [&](const LightningSpec& s) -> Mixer { return Lightning(context, s, cache); },
                               [&](const ParallelSpec& s) -> Mixer { return Parallel(context, s, cache); }},
                    spec);
}

Block::FeedForward Block::load_feed_forward(LoadContext& context, const FeedForwardSpec& spec) {
  return std::visit(Overloaded{[](std::monostate) -> FeedForward { return {}; },
                               [&](const MlpSpec& s) -> FeedForward { return Mlp(context, s); },
                               [&](const MoeSpec& s) -> FeedForward { return Moe(context, s); }},
                    spec);
}

std::string kind_of(const MixerSpec& spec) {
  return std::visit(
      Overloaded{[](std::monostate) -> std::string { return ""; },
                 [](const GqaSpec& s) -> std::string {
                   return s.window > 0 ? fmt::format("GQA attention, window {}", s.window) : "GQA attention";
                 },
                 [](const MlaSpec& s) -> std::string {
                   return s.indexer ? fmt::format("MLA attention, best {} keys", s.indexer->top_k) : "MLA attention";
                 },
                 [](const MambaSpec&) -> std::string { return "Mamba"; },
                 [](const Mamba2Spec&) -> std::string { return "Mamba2"; },
                 [](const ShortConvSpec&) -> std::string { return "short convolution"; },
                 [](const GatedDeltaNetSpec&) -> std::string { return "gated delta net"; },
                 [](const KdaSpec&) -> std::string { return "Kimi delta attention"; },
                 [](const LightningSpec&) -> std::string { return "lightning attention"; },
                 [](const ParallelSpec&) -> std::string { return "attention beside Mamba2"; }},
      spec);
}

std::string kind_of(const FeedForwardSpec& spec) {
  return std::visit(Overloaded{[](std::monostate) -> std::string { return ""; },
                               [](const MlpSpec&) -> std::string { return "dense MLP"; },
                               [](const MoeSpec& s) {
                                 return fmt::format("MoE, {} of {} experts{}", s.rule.top_k, s.rule.experts,
                                                    s.shared ? " + shared" : "");
                               }},
                    spec);
}

Block::Block(LoadContext& context, const BlockSpec& spec, int64_t hidden, NormRule norm, CacheLayout& cache) {
  const auto load_joint = [&](const std::string& name, const std::string& post, const ResidualRule& rule) {
    Joint joint{RmsNorm(context, name, hidden, norm), {}, rule};
    if (!post.empty()) joint.post_norm.emplace(context, post, hidden, norm);
    return joint;
  };
  if (spec.aside) aside_.emplace(context, *spec.aside, cache);
  if (!std::holds_alternative<std::monostate>(spec.mixer)) {
    mixer_joint_ = load_joint(spec.mixer_norm, spec.mixer_post_norm, spec.mixer_residual);
    mixer_ = load_mixer(context, spec.mixer, cache);
  }
  if (!std::holds_alternative<std::monostate>(spec.feed_forward)) {
    feed_forward_joint_ = load_joint(spec.feed_forward_norm, spec.feed_forward_post_norm, spec.feed_forward_residual);
    feed_forward_ = load_feed_forward(context, spec.feed_forward);
  }
  for (const ResidualRule& rule : {spec.mixer_residual, spec.feed_forward_residual}) {
    if (rule.after_norm) to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = context.dtype});
    if (rule.keep != 1) scale_ = context.kernels.resolve(scale_op(), {});
    if (rule.keep != 1 || rule.add != 1 || spec.aside) add_ = context.kernels.resolve(add_op(), {});
  }
}

// The mixer's norm reads the stream and what the block aside made of it; the stream stays as it is.
void Block::enter_beside(const Step& step, ResidualStream& stream, std::span<const StepRope> ropes,
                         ExecContext& exec) const {
  if (stream.delta) add_({.x = stream.delta, .y = stream.x}, exec);
  stream.delta = {};
  aside_->forward(step, stream.x, stream.embedding, ropes, stream.made, exec);
  add_({.x = stream.x, .y = stream.made}, exec);
  mixer_joint_.norm(stream.made, stream.normed, exec);
}

void Block::enter(const Joint& joint, ResidualStream& stream, ExecContext& exec) const {
  if (!joint.rule.after_norm) {
    joint.norm.add(stream.x, stream.delta, stream.normed, exec);
  } else {
    joint.norm.add(stream.x, stream.delta, stream.x, exec);
    to_dtype_({.x = stream.x, .y = stream.normed}, exec);
  }
  stream.delta = {};
}

void Block::leave(const Joint& joint, ResidualStream& stream, ExecContext& exec) const {
  if (joint.post_norm) (*joint.post_norm)(stream.made, stream.made, exec);
  if (joint.rule.keep == 1 && joint.rule.add == 1) {
    stream.delta = stream.made;
    return;
  }
  if (joint.rule.keep != 1) scale_({.x = stream.x, .scale = joint.rule.keep}, exec);
  add_({.x = stream.made, .scale = joint.rule.add, .y = stream.x}, exec);
}

void Block::forward(const Step& step, ResidualStream& stream, std::span<const StepRope> ropes,
                    ExecContext& exec) const {
  if (!std::holds_alternative<std::monostate>(mixer_)) {
    if (aside_) {
      enter_beside(step, stream, ropes, exec);
    } else {
      enter(mixer_joint_, stream, exec);
    }
    std::visit(Overloaded{[](std::monostate) {},
                          [&](const Gqa& mixer) { mixer.forward(step, stream.normed, ropes, stream.made, exec); },
                          [&](const Mla& mixer) { mixer.forward(step, stream.normed, ropes, stream.made, exec); },
                          [&](const Parallel& mixer) { mixer.forward(step, stream.normed, ropes, stream.made, exec); },
                          [&](const auto& mixer) { mixer.forward(step, stream.normed, stream.made, exec); }},
               mixer_);
    leave(mixer_joint_, stream, exec);
  }
  if (!std::holds_alternative<std::monostate>(feed_forward_)) {
    enter(feed_forward_joint_, stream, exec);
    std::visit(
        Overloaded{[](std::monostate) {}, [&](const auto& part) { part.forward(stream.normed, stream.made, exec); }},
        feed_forward_);
    leave(feed_forward_joint_, stream, exec);
  }
}

}  // namespace medley
