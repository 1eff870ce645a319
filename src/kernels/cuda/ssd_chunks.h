// Mamba2's scan for many new tokens, by chunks (ssd_chunks.cu), beside the scan in token order.
#pragma once

#include "kernels/state_space.h"

namespace medley::cuda {

// Rows with at least so many new tokens go by chunks where ssd_by_chunks() takes their shape, else in token order.
constexpr int ssd_chunked_from = 64;

bool ssd_takes_chunks(const SsdScanArgs& args);
void ssd_by_chunks(const SsdScanArgs& args, ExecContext& context);

}  // namespace medley::cuda
