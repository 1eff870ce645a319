// A build without CUDA: the tables name the CUDA kernels and give this as the reason why none is taken.
#include "kernels/attention.h"
#include "kernels/gate.h"
#include "kernels/linear.h"
#include "kernels/linear_attention.h"
#include "kernels/moe.h"
#include "kernels/norm.h"
#include "kernels/pointwise.h"
#include "kernels/random.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "kernels/sample.h"
#include "kernels/sparse_attention.h"
#include "kernels/state_space.h"
#include "tensor/device_memory.h"

namespace medley {
namespace {

template <class Desc>
std::string not_built(const Desc&) {
  return "this build of medley has no CUDA kernels (configure it with -DMEDLEY_CUDA=ON)";
}

}  // namespace

namespace cuda {

void fill_random(const TensorView&, uint64_t, float) {
  fail("{}", cuda_missing());
}

void rebase_offsets(const TensorView&, const TensorView&, ExecContext&) {
  fail("{}", cuda_missing());
}

void sample(const SampleArgs&, ExecContext&) {
  fail("{}", cuda_missing());
}

void count_tokens(const CountTokensArgs&, ExecContext&) {
  fail("{}", cuda_missing());
}

void take_tokens(const TakeTokensArgs&, ExecContext&) {
  fail("{}", cuda_missing());
}

extern const Implementation<LinearDesc, LinearArgs> linear{"cuda.linear", Level::cuda, not_built, nullptr};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{"cuda.headwise_linear", Level::cuda,
                                                                                    not_built, nullptr};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{"cuda.grouped_linear", Level::cuda,
                                                                                 not_built, nullptr};
extern const Implementation<RmsNormDesc, RmsNormArgs> rms_norm{"cuda.rms_norm", Level::cuda, not_built, nullptr};
extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding{"cuda.embedding", Level::cuda, not_built, nullptr};
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation{"cuda.gated_activation",
                                                                                       Level::cuda, not_built, nullptr};
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows{"cuda.convert_rows", Level::cuda, not_built,
                                                                           nullptr};
extern const Implementation<AddDesc, AddArgs> add{"cuda.add", Level::cuda, not_built, nullptr};
extern const Implementation<RopeAnglesDesc, RopeAnglesArgs> rope_angles{"cuda.rope_angles", Level::cuda, not_built,
                                                                        nullptr};
extern const Implementation<RopeDesc, RopeArgs> rope{"cuda.rope", Level::cuda, not_built, nullptr};
extern const Implementation<CacheWriteDesc, CacheWriteArgs> cache_write{"cuda.cache_write", Level::cuda, not_built,
                                                                        nullptr};
extern const Implementation<CacheGatherDesc, CacheGatherArgs> cache_gather{"cuda.cache_gather", Level::cuda, not_built,
                                                                           nullptr};
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> paged_attention{"cuda.paged_attention", Level::cuda,
                                                                                    not_built, nullptr};
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention{"cuda.piece_attention", Level::cuda,
                                                                                    not_built, nullptr};
extern const Implementation<RouteDesc, RouteArgs> route{"cuda.route", Level::cuda, not_built, nullptr};
extern const Implementation<AlignDesc, AlignArgs> align{"cuda.align", Level::cuda, not_built, nullptr};
extern const Implementation<WeightedSumDesc, WeightedSumArgs> weighted_sum{"cuda.weighted_sum", Level::cuda, not_built,
                                                                           nullptr};
extern const Implementation<CausalConvDesc, CausalConvArgs> causal_conv{"cuda.causal_conv", Level::cuda, not_built,
                                                                        nullptr};
extern const Implementation<SelectiveScanDesc, SelectiveScanArgs> selective_scan{"cuda.selective_scan", Level::cuda,
                                                                                 not_built, nullptr};
extern const Implementation<SsdScanDesc, SsdScanArgs> ssd_scan{"cuda.ssd_scan", Level::cuda, not_built, nullptr};
extern const Implementation<ScaleDesc, ScaleArgs> scale{"cuda.scale", Level::cuda, not_built, nullptr};
extern const Implementation<GateDesc, GateArgs> gate{"cuda.gate", Level::cuda, not_built, nullptr};
extern const Implementation<ScaleColumnsDesc, ScaleColumnsArgs> scale_columns{"cuda.scale_columns", Level::cuda,
                                                                              not_built, nullptr};
extern const Implementation<LayerNormDesc, LayerNormArgs> layer_norm{"cuda.layer_norm", Level::cuda, not_built,
                                                                     nullptr};
extern const Implementation<GatedDeltaDesc, GatedDeltaArgs> gated_delta{"cuda.gated_delta_scan", Level::cuda, not_built,
                                                                        nullptr};
extern const Implementation<LightningDesc, LightningArgs> lightning{"cuda.lightning_scan", Level::cuda, not_built,
                                                                    nullptr};
extern const Implementation<IndexSelectDesc, IndexSelectArgs> index_select{"cuda.index_select", Level::cuda, not_built,
                                                                           nullptr};
extern const Implementation<SparseAttentionDesc, SparseAttentionArgs> sparse_attention{"cuda.sparse_attention",
                                                                                       Level::cuda, not_built, nullptr};
}  // namespace cuda

namespace sm90 {
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> mla_decode{"sm90.mla_decode", Level::sm90,
                                                                               not_built, nullptr};
extern const Implementation<PagedAttentionDesc, PagedAttentionArgs> gqa_attention{"sm90.gqa_attention", Level::sm90,
                                                                                  not_built, nullptr};
extern const Implementation<PieceAttentionDesc, PieceAttentionArgs> piece_attention{"sm90.piece_attention", Level::sm90,
                                                                                    not_built, nullptr};
extern const Implementation<LinearDesc, LinearArgs> linear{"sm90.linear", Level::sm90, not_built, nullptr};
extern const Implementation<HeadwiseLinearDesc, HeadwiseLinearArgs> headwise_linear{"sm90.headwise_linear", Level::sm90,
                                                                                    not_built, nullptr};
extern const Implementation<GroupedLinearDesc, GroupedLinearArgs> grouped_linear{"sm90.grouped_linear", Level::sm90,
                                                                                 not_built, nullptr};
extern const Implementation<GatedGroupedLinearDesc, GatedGroupedLinearArgs> gated_grouped_linear{
    "sm90.gated_grouped_linear", Level::sm90, not_built, nullptr};
}  // namespace sm90

}  // namespace medley
