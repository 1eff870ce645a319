#include "models/decoder.h"

#include <algorithm>

#include "kernels/pointwise.h"

namespace medley {
namespace {

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
    for (const RopeSpec& rope : spec_.ropes) ropes_.emplace_back(context, rope);
    CacheLayout cache(options.tokens_per_block);
    for (const BlockSpec& block : spec_.blocks) blocks_.push_back(load_block(context, block, cache));
    final_norm_ = RmsNorm(context, spec_.final_norm, spec_.info.hidden_size, spec_.norm);
    cache_specs_ = cache.specs();
    load_mtp(context, options);
    for (const std::string& name : spec_.derived) context.weights.ignore(name);
  }

  // A sparse indexer takes another path for contexts above its top_k.
  bool decode_can_be_recorded() const override {
    const auto selects = [](const BlockSpec& block) {
      const auto* mla = std::get_if<MlaSpec>(&block.mixer);
      return mla != nullptr && mla->indexer.has_value();
    };
    return std::none_of(spec_.blocks.begin(), spec_.blocks.end(), selects);
  }

  void forward(const Step& step, const TensorView& hidden, ExecContext& exec) override {
    const Workspace::Scope scope(exec.workspace);
    const int64_t tokens = step.num_tokens, width = spec_.info.hidden_size;
    ResidualStream stream{.x = exec.workspace.alloc(DType::f32, {tokens, width}),
                          .delta = {},
                          .normed = exec.workspace.alloc(dtype_, {tokens, width}),
                          .made = exec.workspace.alloc(DType::f32, {tokens, width})};
    std::vector<StepRope> ropes;
    for (const Rope& rope : ropes_) ropes.push_back({&rope, rope.table(step, exec)});
    embed_({.ids = step.token_ids, .table = embedding_.view, .scale = spec_.embedding_scale, .y = stream.x}, exec);
    if (wants_embedding()) {
      stream.embedding = exec.workspace.alloc(DType::f32, {tokens, width});
      copy_({.x = stream.x, .y = stream.embedding}, exec);
    }
    for (const Block& block : blocks_) block.forward(step, stream, ropes, exec);
    final_norm_.add(stream.x, stream.delta, hidden, exec);
  }

  void logits(const TensorView& hidden, const TensorView& logits, ExecContext& exec) override {
    const Workspace::Scope scope(exec.workspace);
    TensorView input = hidden;
    if (dtype_ != DType::f32) {
      input = exec.workspace.alloc(dtype_, {hidden.size(0), hidden.size(1)});
      to_dtype_({.x = hidden, .y = input}, exec);
    }
    head_(input, logits, exec);
    if (scales_logits()) scale_({.x = logits, .scale = spec_.logits_scale, .softcap = spec_.logits_softcap}, exec);
  }

 private:
  struct Mtp {
    RmsNorm embedding_norm, hidden_norm, head_norm;
    Linear eh_proj;
    Block block;
  };

  bool wants_embedding() const {
    const auto wants = [](const BlockSpec& block) { return block.aside.has_value(); };
    return std::any_of(spec_.blocks.begin(), spec_.blocks.end(), wants);
  }
  bool scales_logits() const { return spec_.logits_scale != 1 || spec_.logits_softcap != 0; }

  void load_embedding(LoadContext& context) {
    const std::vector<int64_t> shape{spec_.info.vocab_size, spec_.info.hidden_size};
    const TensorView table = context.weights.take(spec_.embedding, shape);
    embedding_ = pack_matrices(context, WeightLayout::row_major, {{table}});
    embed_ = context.kernels.resolve(embedding_op(), {.dim = shape[1], .weight = table.dtype});
    const std::string& head = spec_.tied ? spec_.embedding : spec_.head;
    if (spec_.tied) context.weights.ignore(spec_.head);
    head_ = Linear(context, {{head, "", shape[0], shape[1], {}}});
    to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = dtype_});
    if (wants_embedding()) copy_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = DType::f32});
    if (scales_logits()) scale_ = context.kernels.resolve(scale_op(), {.softcap = spec_.logits_softcap != 0});
  }

  Block load_block(LoadContext& context, const BlockSpec& spec, CacheLayout& cache) const {
    return {context, spec, spec_.info.hidden_size, spec_.norm, cache};
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
      const auto norm = [&](const char* name) { return RmsNorm(context, spec.prefix + name, width, spec_.norm); };
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

  DecoderSpec spec_;
  DType dtype_ = DType::f32;
  PackedMatrices embedding_;
  Kernel<EmbeddingArgs> embed_;
  Kernel<ConvertRowsArgs> to_dtype_, copy_;
  Kernel<ScaleArgs> scale_;
  std::vector<Rope> ropes_;
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
