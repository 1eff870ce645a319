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
    if (!spec_.stored_prefix.empty()) context.weights.rename("model.", spec_.stored_prefix);
    load_embedding(context);
    for (const RopeSpec& rope : spec_.ropes) ropes_.emplace_back(context, rope);
    CacheLayout cache(options.tokens_per_block);
    for (const BlockSpec& block : spec_.blocks)
      blocks_.emplace_back(context, block, spec_.info.hidden_size, spec_.norm, cache);
    final_norm_ = RmsNorm(context, spec_.final_norm, spec_.info.hidden_size, spec_.norm);
    load_mtp(context, options, cache);
    for (const std::string& name : spec_.derived) context.weights.ignore(name);
    for (const std::string& prefix : spec_.foreign) context.weights.ignore_prefix(prefix);
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
    const std::vector<StepRope> ropes = step_ropes(step, exec);
    embed(step, stream.x, exec);
    if (wants_embedding()) {
      stream.embedding = exec.workspace.alloc(DType::f32, {tokens, width});
      copy_({.x = stream.x, .y = stream.embedding}, exec);
    }
    for (const Block& block : blocks_) block.forward(step, stream, ropes, exec);
    final_norm_.add(stream.x, stream.delta, hidden, exec);
  }

  void draft(const Step& step, const TensorView& previous, const TensorView& hidden, int module,
             ExecContext& exec) override {
    MEDLEY_CHECK(module >= 0 && module < int(mtp_.size()));
    const Workspace::Scope scope(exec.workspace);
    const TensorView embedding = exec.workspace.alloc(DType::f32, {step.num_tokens, spec_.info.hidden_size});
    embed(step, embedding, exec);
    mtp_[size_t(module)].forward(step, embedding, previous, step_ropes(step, exec), hidden, exec);
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
  bool wants_embedding() const {
    const auto wants = [](const BlockSpec& block) { return block.aside.has_value(); };
    return std::any_of(spec_.blocks.begin(), spec_.blocks.end(), wants);
  }
  bool scales_logits() const { return spec_.logits_scale != 1 || spec_.logits_softcap != 0; }

  void load_embedding(LoadContext& context) {
    const std::vector<int64_t> shape{spec_.info.vocab_size, spec_.info.hidden_size};
    const TensorView table = context.weights.take(spec_.embedding, shape);
    const DType stored = packed_dtype(context, table);
    embed_ = context.kernels.resolve(embedding_op(), {.dim = shape[1], .weight = stored});
    const std::string& head = spec_.tied ? spec_.embedding : spec_.head;
    if (spec_.tied) context.weights.ignore(spec_.head);
    head_ = Linear(context, {{head, "", shape[0], shape[1], {}}});
    // Rows are gathered from a table of their own, but for blocks: those are dequantised anyway, from any layout.
    if (spec_.tied && is_block(stored)) {
      embedding_.view = head_.weight();
    } else {
      embedding_ = pack_matrices(context, WeightLayout::row_major, {{table}});
    }
    to_dtype_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = dtype_});
    if (wants_embedding()) copy_ = context.kernels.resolve(convert_rows_op(), {.x = DType::f32, .y = DType::f32});
    if (scales_logits()) scale_ = context.kernels.resolve(scale_op(), {.softcap = spec_.logits_softcap != 0});
  }

  void embed(const Step& step, const TensorView& y, ExecContext& exec) const {
    embed_({.ids = step.token_ids, .table = embedding_.view, .scale = spec_.embedding_scale, .y = y}, exec);
  }
  std::vector<StepRope> step_ropes(const Step& step, ExecContext& exec) const {
    std::vector<StepRope> ropes;
    for (const Rope& rope : ropes_) ropes.push_back({&rope, rope.table(step, exec)});
    return ropes;
  }

  // Without ModelOptions::mtp the modules are only checked, when the files have them (exports of transformers leave
  // them out), or planned, for inspect.
  void load_mtp(LoadContext& context, const ModelOptions& options, CacheLayout& cache) {
    if (options.mtp && spec_.mtp.empty())
      fail("config.json: {} has no module for multi-token prediction", spec_.info.model_type);
    CacheLayout beside(options.tokens_per_block);
    const bool over_files = !context.weights.planning();
    context.weights.set_mtp(true);
    context.weights.set_check_only(!options.mtp);
    for (const MtpSpec& spec : spec_.mtp) {
      if (over_files && !context.weights.has_prefix(spec.prefix)) {
        if (options.mtp) fail("the module for multi-token prediction is not in the files: no tensor {}*", spec.prefix);
        continue;
      }
      MtpModule module(context, spec, spec_.info.hidden_size, spec_.norm, options.mtp ? cache : beside);
      if (options.mtp) mtp_.push_back(std::move(module));
    }
    context.weights.set_check_only(false);
    context.weights.set_mtp(false);
    cache_specs_ = cache.specs();
    mtp_cache_specs_ = beside.specs();
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
  std::vector<MtpModule> mtp_;
  std::vector<KvCacheSpec> cache_specs_, mtp_cache_specs_;
};

}  // namespace

std::unique_ptr<Model> make_decoder(DecoderSpec spec) {
  return std::make_unique<Decoder>(std::move(spec));
}

}  // namespace medley
