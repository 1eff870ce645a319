#include "layers/gated_delta_net.h"

#include <cmath>

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

GatedDeltaNet::GatedDeltaNet(LoadContext& context, const GatedDeltaNetSpec& spec, CacheLayout& cache)
    : spec_(spec), dtype_(context.dtype) {
  const std::string& at = spec.prefix;
  const HeadRange mine = heads_of(context.shard(), spec.heads, spec.key_heads, at + "linear attention");
  heads_ = mine.heads.count;
  key_heads_ = mine.groups.count;
  in_ = ColumnParallelLinear(context, input_parts(mine));
  const int64_t key_rows = spec.key_heads * spec.k_dim, value_rows = spec.heads * spec.v_dim;
  const auto section = [](int64_t begin, UnitRange range, int64_t width) {
    return Slice{.dim = 0, .begin = begin + range.begin * width, .count = range.count * width};
  };
  std::vector<float> conv_weight;
  for (const Slice& slice : {section(0, mine.groups, spec.k_dim), section(key_rows, mine.groups, spec.k_dim),
                             section(2 * key_rows, mine.heads, spec.v_dim)}) {
    const auto weight =
        context.weights.take_floats(at + "conv1d.weight", {2 * key_rows + value_rows, 1, spec.conv_width}, slice);
    conv_weight.insert(conv_weight.end(), weight.begin(), weight.end());
  }
  conv_weight_ = Parameter(context, conv_weight);
  const Slice by_head = section(0, mine.heads, 1);
  a_ = Parameter(context, negative_exponential(context.weights.take_floats(at + "A_log", {spec.heads}, by_head)));
  dt_bias_ = take_parameter(context, at + "dt_bias", {spec.heads}, by_head);
  norm_ = RmsNorm(context, at + "norm.weight", spec.v_dim, NormRule{spec.norm_eps});
  out_ = RowParallelLinear(context, {.weight = at + "out_proj.weight",
                                     .out = spec.hidden,
                                     .in = value_rows,
                                     .slice = section(0, mine.heads, spec.v_dim)});

  const int64_t channels = 2 * key_heads_ * spec.k_dim + heads_ * spec.v_dim;
  place_ =
      cache.add_state("delta net", conv_state_bytes(channels, spec.conv_width) + heads_ * spec.k_dim * spec.v_dim * 4,
                      fmt::format("convolution {} x {} + recurrent {} x {} x {}, f32", spec.conv_width - 1, channels,
                                  heads_, spec.k_dim, spec.v_dim));
  conv_ = context.kernels.resolve(causal_conv_op(), {.channels = channels, .width = spec.conv_width});
  scan_ = context.kernels.resolve(gated_delta_op(),
                                  {.heads = heads_, .key_heads = key_heads_, .k_dim = spec.k_dim, .v_dim = spec.v_dim});
}

void GatedDeltaNet::forward(const Step& step, const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const int64_t tokens = step.num_tokens, keys = key_heads_ * spec_.k_dim, values = heads_ * spec_.v_dim;
  const int64_t channels = 2 * keys + values;
  const RaggedRows rows = ragged_rows(step);

  const TensorView projected = exec.workspace.alloc(DType::f32, {tokens, in_.out()});
  in_(x, projected, exec);
  const TensorView z = projected.slice(1, channels, values);
  const TensorView beta = projected.slice(1, channels + values, heads_);
  const TensorView dt = projected.slice(1, channels + values + heads_, heads_);
  const TensorView convolved = exec.workspace.alloc(DType::f32, {tokens, channels});
  conv_({.x = projected.slice(1, 0, channels),
         .weight = conv_weight_.data(),
         .width = spec_.conv_width,
         .rows = rows,
         .state = state_slots(step, place_),
         .y = convolved},
        exec);

  const TensorView scanned = exec.workspace.alloc(DType::f32, {tokens, heads_, spec_.v_dim});
  scan_({.q = convolved.slice(1, 0, keys).split_last(key_heads_, spec_.k_dim),
         .k = convolved.slice(1, keys, keys).split_last(key_heads_, spec_.k_dim),
         .v = convolved.slice(1, 2 * keys, values).split_last(heads_, spec_.v_dim),
         .dt = dt.split_last(heads_, 1),
         .beta = beta,
         .a = a_.data(),
         .dt_bias = dt_bias_.data(),
         .scale = float(1 / std::sqrt(double(spec_.k_dim))),
         .rows = rows,
         .state = state_slots(step, place_, conv_state_bytes(channels, spec_.conv_width)),
         .y = scanned},
        exec);
  const TensorView normed = exec.workspace.alloc(dtype_, {tokens, values});
  norm_.gated(scanned.reshape({tokens, values}), z, NormGate::after, normed, exec);
  out_(normed, y, exec);
}

}  // namespace medley
