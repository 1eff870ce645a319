// Rows into the paged cache, and out of it.
#include "kernels/attention.h"
#include "kernels/cuda/launch.h"

namespace medley::cuda {
namespace {

constexpr int threads = 256;

template <class T>
__global__ void write_rows(const float* a, int64_t a_stride, int64_t a_dim, const float* b, int64_t b_stride,
                           int64_t b_dim, const int64_t* slots, std::byte* base, int64_t row_bytes) {
  follow_previous();
  const int64_t t = blockIdx.x, i = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (i >= a_dim + b_dim || slots[t] < 0) return;
  T* to = reinterpret_cast<T*>(base + slots[t] * row_bytes);
  store(to + i, i < a_dim ? a[t * a_stride + i] : b[t * b_stride + i - a_dim]);
}

void run_write(const CacheWriteArgs& a, ExecContext& context) {
  const int64_t tokens = a.a.size(0), dim = a.a.size(1) + a.b.size(1);
  if (tokens * dim == 0) return;
  with_float_type(a.cache.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("cache_write", write_rows<T>, {dim3(unsigned(tokens), blocks_for(dim, threads)), threads}, context,
                  data_of<float>(a.a), a.a.strides[0], a.a.size(1), data_of<float>(a.b), a.b.strides[0], a.b.size(1),
                  data_of<int64_t>(a.cache.slot_mapping), a.cache.base, a.cache.row_bytes);
  });
}

template <class T>
__global__ void gather_rows(const std::byte* base, int64_t row_bytes, const int32_t* block_table, int tokens_per_block,
                            int64_t first, int64_t dim, T* y, int64_t y_stride) {
  follow_previous();
  const int64_t i = blockIdx.x, d = int64_t(blockIdx.y) * threads + threadIdx.x;
  if (d >= dim) return;
  const int64_t token = first + i;
  const int64_t row = block_table[token / tokens_per_block] + token % tokens_per_block;
  y[i * y_stride + d] = reinterpret_cast<const T*>(base + row * row_bytes)[d];
}

void run_gather(const CacheGatherArgs& a, ExecContext& context) {
  if (a.y.elements() == 0) return;
  const int32_t* table = data_of<int32_t>(a.cache.block_table) + a.row * a.cache.block_table.strides[0];
  with_float_type(a.cache.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    launch_kernel("cache_gather", gather_rows<T>,
                  {dim3(unsigned(a.y.size(0)), blocks_for(a.y.size(1), threads)), threads}, context, a.cache.base,
                  a.cache.row_bytes, table, a.cache.tokens_per_block, a.first, a.y.size(1), data_of<T>(a.y),
                  a.y.strides[0]);
  });
}

}  // namespace

extern const Implementation<CacheWriteDesc, CacheWriteArgs> cache_write{"cuda.cache_write", Level::cuda, any,
                                                                        run_write};
extern const Implementation<CacheGatherDesc, CacheGatherArgs> cache_gather{"cuda.cache_gather", Level::cuda, any,
                                                                           run_gather};

}  // namespace medley::cuda
