#include "layers/gated_delta_net.h"

#include "layers/mamba.h"

namespace medley {

// The rank's rows of the stored projections in the order that forward() reads: q, k, v, z, b, a.
std::vector<LinearPart> GatedDeltaNet::input_parts(const HeadRange& mine) const {
  const GatedDeltaNetSpec& s = spec_;
  const int64_t key_rows = s.key_heads * s.k_dim, value_rows = s.heads * s.v_dim;
  std::vector<LinearPart> parts;
  const auto take = [&](const char* name, int64_t rows, int64_t begin, int64_t count) {
    parts.push_back({s.prefix + name + ".weight", "", rows, s.hidden, {.dim = 0, .begin = begin, .count = count}});
  };
  if (s.layout == DeltaNetLayout::separate) {
    const int64_t qkv_rows = 2 * key_rows + value_rows;
    for (const int64_t begin : {int64_t(0), key_rows})
      take("in_proj_qkv", qkv_rows, begin + mine.groups.begin * s.k_dim, mine.groups.count * s.k_dim);
    take("in_proj_qkv", qkv_rows, 2 * key_rows + mine.heads.begin * s.v_dim, mine.heads.count * s.v_dim);
    take("in_proj_z", value_rows, mine.heads.begin * s.v_dim, mine.heads.count * s.v_dim);
    take("in_proj_b", s.heads, mine.heads.begin, mine.heads.count);
    take("in_proj_a", s.heads, mine.heads.begin, mine.heads.count);
    return parts;
  }
  const int64_t share = s.heads / s.key_heads, stride = 2 * s.k_dim + 2 * share * s.v_dim;
  const int64_t qkvz_rows = s.key_heads * stride, ba_rows = 2 * s.heads;
  const auto by_key_head = [&](int64_t offset) {
    for (int64_t g = mine.groups.begin; g < mine.groups.begin + mine.groups.count; ++g)
      take("in_proj_qkvz", qkvz_rows, g * stride + offset, s.k_dim);
  };
  const auto by_head = [&](const char* name, int64_t rows, int64_t group_stride, int64_t offset, int64_t width) {
    for (int64_t h = mine.heads.begin; h < mine.heads.begin + mine.heads.count; ++h)
      take(name, rows, h / share * group_stride + offset + h % share * width, width);
  };
  by_key_head(0);
  by_key_head(s.k_dim);
  by_head("in_proj_qkvz", qkvz_rows, stride, 2 * s.k_dim, s.v_dim);
  by_head("in_proj_qkvz", qkvz_rows, stride, 2 * s.k_dim + share * s.v_dim, s.v_dim);
  by_head("in_proj_ba", ba_rows, 2 * share, 0, 1);
  by_head("in_proj_ba", ba_rows, 2 * share, share, 1);
  return parts;
}

GatedDeltaNet::GatedDeltaNet(LoadContext& context, const GatedDeltaNetSpec& spec, CacheLayout& cache) : spec_(spec) {
  const std::string& at = spec.prefix;
  if (context.weights.has(at + "in_proj_qkv.weight")) spec_.layout = DeltaNetLayout::separate;  // as GGUF files have it
  const HeadRange mine = heads_of(context.shard(), spec.heads, spec.key_heads, at + "linear attention");
  sizes_ = {.heads = mine.heads.count,
            .key_heads = mine.groups.count,
            .k_dim = spec.k_dim,
            .v_dim = spec.v_dim,
            .conv_width = spec.conv_width};
  in_ = ColumnParallelLinear(context, input_parts(mine));
  const int64_t key_rows = spec.key_heads * spec.k_dim, value_rows = spec.heads * spec.v_dim;
  const auto section = [](int64_t begin, UnitRange range, int64_t width) {
    return Slice{.dim = 0, .begin = begin + range.begin * width, .count = range.count * width};
  };
  DeltaRuleWeights weights;
  std::vector<float> conv;
  for (const Slice& slice : {section(0, mine.groups, spec.k_dim), section(key_rows, mine.groups, spec.k_dim),
                             section(2 * key_rows, mine.heads, spec.v_dim)}) {
    const auto weight =
        context.weights.take_floats(at + "conv1d.weight", {2 * key_rows + value_rows, 1, spec.conv_width}, slice);
    conv.insert(conv.end(), weight.begin(), weight.end());
  }
  weights.conv = Parameter(context, conv);
  const Slice by_head = section(0, mine.heads, 1);
  weights.a =
      Parameter(context, negative_exponential(context.weights.take_floats(at + "A_log", {spec.heads}, by_head)));
  weights.dt_bias = take_parameter(context, at + "dt_bias", {spec.heads}, by_head);
  weights.norm = RmsNorm(context, at + "norm.weight", spec.v_dim, NormRule{spec.norm_eps});
  weights.out = RowParallelLinear(context, {.weight = at + "out_proj.weight",
                                            .out = spec.hidden,
                                            .in = value_rows,
                                            .slice = section(0, mine.heads, spec.v_dim)});
  rule_ = DeltaRule(context, "delta net", sizes_, std::move(weights), cache);
}

void GatedDeltaNet::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t channels = sizes_.channels(), values = sizes_.values(), heads = sizes_.heads;
  const TensorView projected = exec.workspace.alloc(DType::f32, {step.num_tokens, in_.out()});
  in_(x, projected, exec);
  const TensorView z = projected.slice(1, channels, values);
  const TensorView beta = projected.slice(1, channels + values, heads);
  const TensorView decay = projected.slice(1, channels + values + heads, heads);
  rule_.forward(step, projected.slice(1, 0, channels), decay, beta, z, y, exec);
}

}  // namespace medley
