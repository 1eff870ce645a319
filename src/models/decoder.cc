#include "models/decoder.h"

#include <map>

#include "kernels/pointwise.h"

namespace medley {
namespace {

using Mixer = std::variant<Gqa, Mla, Mamba, Mamba2>;
using FeedForward = std::variant<std::monostate, Mlp, Moe>;

struct Block {
  RmsNorm mixer_norm;
  Mixer mixer;
  RmsNorm feed_forward_norm;
  FeedForward feed_forward;
};

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

Mixer load_mixer(LoadContext& context, const MixerSpec& spec, CacheLayout& cache) {
  return std::visit(Overloaded{[&](const GqaSpec& s) -> Mixer { return Gqa(context, s, cache); },
                               [&](const MlaSpec& s) -> Mixer { return Mla(context, s, cache); },
                               [&](const MambaSpec& s) -> Mixer { return Mamba(context, s, cache); },
                               [&](const Mamba2Spec& s) -> Mixer { return Mamba2(context, s, cache); }},
                    spec);
}

FeedForward load_feed_forward(LoadContext& context, const FeedForwardSpec& spec) {
  return std::visit(Overloaded{[&](std::monostate) -> FeedForward { return {}; },
                               [&](const MlpSpec& s) -> FeedForward { return Mlp(context, s); },
                               [&](const MoeSpec& s) -> FeedForward { return Moe(context, s); }},
                    spec);
}

std::string kind_of(const MixerSpec& spec) {
  return std::visit(Overloaded{[](const GqaSpec& s) -> std::string {
                                 return s.window > 0 ? fmt::format("GQA attention, window {}", s.window)
                                                     : "GQA attention";
                               },
                               [](const MlaSpec&) -> std::string { return "MLA attention"; },
                               [](const MambaSpec&) -> std::string { return "Mamba"; },
                               [](const Mamba2Spec&) -> std::string { return "Mamba2"; }},
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

class Decoder : public Model {
 public:
  explicit Decoder(DecoderSpec spec) : spec_(std::move(spec)) {
    const auto count = [&](const std::string& kind) {
      for (auto& [name, layers] : spec_.info.layers)
        if (name == kind) return void(++layers);
      if (!kind.empty()) spec_.info.layers.emplace_back(kind, 1);
    };
    for (const BlockSpec& block : spec_.blocks) count(kind_of(block.mixer));
    for (const BlockSpec& block : spec_.blocks) count(kind_of(block.feed_forward));
  }

  const ModelInfo& info() const override { return spec_.info; }
  const std::vector<KvCacheSpec>& cache_specs() const override { return cache_specs_; }
  const std::vector<KvCacheSpec>& mtp_cache_specs() const override { return mtp_cache_specs_; }

  void load(LoadContext& context, const ModelOptions& options) override {
    if (!spec_.info.quantization.empty() && !context.weights.planning())
      fail(
          "config.json: quantization_config says the weights are quantised ({}); medley reads bf16, f16 and f32 "
          "checkpoints so far",
          spec_.info.quantization);
    dtype_ = context.dtype;
    load_embedding(context);
    if (spec_.rope) rope_ = Rope(context, *spec_.rope);
    CacheLayout cache(options.tokens_per_block);
    for (const BlockSpec& block : spec_.blocks) blocks_.push_back(load_block(context, block, cache));
    final_norm_ = RmsNorm(context, spec_.final_norm, spec_.info.hidden_size, spec_.norm_eps);
    cache_specs_ = cache.specs();
    load_mtp(context, options);
    for (const std::string& name : spec_.derived) context.weights.ignore(name);
  }

  void forward(const Step& step, const TensorView& hidden, ExecContext& exec) override {
    const Workspace::Scope scope(exec.workspace);
    const int64_t tokens = step.num_tokens, width = spec_.info.hidden_size;
    const TensorView residual = exec.workspace.alloc(DType::f32, {tokens, width});
    const TensorView normed = exec.workspace.alloc(dtype_, {tokens, width});
    const TensorView made = exec.workspace.alloc(DType::f32, {tokens, width});  // by a block's part, not yet added
    const TensorView rope_table = spec_.rope ? rope_.table(step, exec) : TensorView();
    embed_({.ids = step.token_ids, .table = embedding_.view, .y = residual}, exec);
    TensorView delta;  // nothing to add before the first block
    for (const Block& block : blocks_) {
      block.mixer_norm.add(residual, delta, normed, exec);
      mix(block, step, normed, rope_table, made, exec);
      delta = made;
      if (std::holds_alternative<std::monostate>(block.feed_forward)) continue;
      block.feed_forward_norm.add(residual, delta, normed, exec);
      feed_forward(block, normed, made, exec);
    }
    final_norm_.add(residual, delta, hidden, exec);
  }

  void logits(const TensorView& hidden, const TensorView& logits, ExecContext& exec) override {
    const Workspace::Scope scope(exec.workspace);
    TensorView input = hidden;
    if (dtype_ != DType::f32) {
      input = exec.workspace.alloc(dtype_, {hidden.size(0), hidden.size(1)});
      to_dtype_({.x = hidden, .y = input}, exec);
    }
    head_(input, logits, exec);
  }

 private:
  struct Mtp {
    RmsNorm embedding_norm, hidden_norm, head_norm;
    Linear eh_proj;
    Block block;
  };

  void load_embedding(LoadContext& context) {
    const std::vector<int64_t> shape{spec_.info.vocab_size, spec_.info.hidden_size};
    const TensorView table = context.weights.take(spec_.embedding, shape);
    embedding_ = pack_matrices(context, WeightLayout::row_major, {{table}});
    embed_ = context.kernels.resolve(embedding_op(), {.dim = shape[1], .weight = table.dtype});
    const std::string& head = spec_.tied ? spec_.embedding : spec_.head;
    if (spec_.tied) context.weights.ignore(spec_.head);
    head_ = Linear(context, {{head, "", shape[0], shape[1], {}}});
    to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = dtype_});
  }

  Block load_block(LoadContext& context, const BlockSpec& spec, CacheLayout& cache) const {
    const int64_t width = spec_.info.hidden_size;
    Block block{
        RmsNorm(context, spec.mixer_norm, width, spec_.norm_eps), load_mixer(context, spec.mixer, cache), {}, {}};
    if (std::holds_alternative<std::monostate>(spec.feed_forward)) return block;
    block.feed_forward_norm = RmsNorm(context, spec.feed_forward_norm, width, spec_.norm_eps);
    block.feed_forward = load_feed_forward(context, spec.feed_forward);
    return block;
  }

  // Kept when the files have it (published exports of transformers leave it out); planned always, for inspect.
  void load_mtp(LoadContext& context, const ModelOptions& options) {
    CacheLayout cache(options.tokens_per_block);
    context.weights.set_mtp(true);
    for (const MtpSpec& spec : spec_.mtp) {
      if (!context.weights.planning() && !context.weights.has_prefix(spec.prefix)) {
        mtp_missing_ = true;
        continue;
      }
      const int64_t width = spec_.info.hidden_size;
      const auto norm = [&](const char* name) { return RmsNorm(context, spec.prefix + name, width, spec_.norm_eps); };
      mtp_.push_back({norm("enorm.weight"), norm("hnorm.weight"), norm("shared_head.norm.weight"),
                      Linear(context, {{spec.prefix + "eh_proj.weight", "", width, 2 * width, {}}}),
                      load_block(context, spec.block, cache)});
      // Published files repeat the model's own embedding and head under the module's names.
      context.weights.ignore(spec.prefix + "embed_tokens.weight");
      context.weights.ignore(spec.prefix + "shared_head.head.weight");
    }
    context.weights.set_mtp(false);
    mtp_cache_specs_ = cache.specs();
  }

  void mix(const Block& block, const Step& step, const TensorView& x, const TensorView& rope_table, const TensorView& y,
           ExecContext& exec) const {
    std::visit(Overloaded{[&](const Gqa& mixer) { mixer.forward(step, x, rope_, rope_table, y, exec); },
                          [&](const Mla& mixer) { mixer.forward(step, x, rope_, rope_table, y, exec); },
                          [&](const auto& mixer) { mixer.forward(step, x, y, exec); }},
               block.mixer);
  }

  static void feed_forward(const Block& block, const TensorView& x, const TensorView& y, ExecContext& exec) {
    std::visit(Overloaded{[&](std::monostate) {}, [&](const auto& part) { part.forward(x, y, exec); }},
               block.feed_forward);
  }

  DecoderSpec spec_;
  DType dtype_ = DType::f32;
  PackedMatrices embedding_;
  Kernel<EmbeddingArgs> embed_;
  Kernel<ConvertRowsArgs> to_dtype_;
  Rope rope_;
  std::vector<Block> blocks_;
  RmsNorm final_norm_;
  Linear head_;
  std::vector<Mtp> mtp_;
  bool mtp_missing_ = false;
  std::vector<KvCacheSpec> cache_specs_, mtp_cache_specs_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(DecoderSpec spec) {
  return std::make_unique<Decoder>(std::move(spec));
}

}  // namespace medley
