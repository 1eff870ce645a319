// The gated delta rule for many new tokens, by chunks (delta_chunks.cu), beside the scan in token order.
#pragma once

#include "kernels/linear_attention.h"

namespace medley::cuda {

// Rows with at least so many new tokens go by chunks where delta_by_chunks() takes their shape, else in token order.
constexpr int chunk_tokens = 64;

bool delta_takes_chunks(const GatedDeltaArgs& args);
void delta_by_chunks(const GatedDeltaArgs& args, ExecContext& context);

}  // namespace medley::cuda
