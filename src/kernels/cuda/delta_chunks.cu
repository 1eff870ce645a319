// The gated delta rule by chunks of 64 tokens (Gated DeltaNet, Yang et al. 2024, section 3.3), for heads of 128 x up to
// 128. With b = sigmoid(beta), d[i] the decay's logarithm summed up to token i of the chunk and S the state before it,
// the change that token i makes is k[i] n[i]^T where
//   n[i] = b[i] (v[i] - e^d[i] S^T k[i] - sum over j < i of e^(d[i] - d[j]) (k[i] . k[j]) n[j]).
// That is linear in S: n = U - W S, where U and W solve the same triangular system for b v and b e^d k.
//
// `prepare` solves it for every chunk at once, by blocks of 16 tokens with operands split into two f16. `walk` then
// goes through the chunks of a head in order, 32 columns of the state a block:
//   n = U - W S,   y = e^d Q S + P n,   S = e^d[63] S + K^T (e^(d[63] - d) n)
// with P[i, j] = e^(d[i] - d[j]) (q[i] . k[j]). Products take operands rounded to f16 (11 bits, as TF32; nothing here
// but v and S, whose size v bounds, can be large) and add in float32. Chunks begin at a row's first new token: bits
// depend on the row's own chunk alone.
#include "kernels/cuda/delta_chunks.h"

#include "kernels/cuda/delta_tiles.h"

namespace medley::cuda {
namespace {

using namespace delta;

// The step's number of the first chunk of a row.
__device__ int first_chunk(const Chunks& a, int row) {
  int sum = 0;
  for (int at = threadIdx.x % 32; at < row; at += 32)
    sum += chunks_of(a.state.row_offsets[at + 1] - a.state.row_offsets[at]);
  return int(__reduce_add_sync(all, unsigned(sum)));
}

struct Stage {
  KeyPart keys;
  HeadPart head;
  ValuePart values;
};
constexpr int stages = 2;
struct Walk {
  Stage stage[stages];
  __half state[key_dim * slice_stride];
  __half fresh[2][chunk * slice_stride];  // n, and n with the decay to the chunk's end
  uint64_t full[stages];
};

// A contiguous piece to shared memory: on Hopper by the copy engine, asked for by one thread.
__device__ void copy_piece(void* to, const void* from, int bytes, uint64_t* full) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(full))
                 : "memory");
#else
  for (int i = int(threadIdx.x) * 16; i < bytes; i += threads * 16)
    copy_sixteen(static_cast<std::byte*>(to) + i, static_cast<const std::byte*>(from) + i);
#endif
}

__device__ void load_chunk(const Chunks& a, Walk& shared, int which, int64_t index, int head, int slice_index) {
  Stage& stage = shared.stage[which];
  uint64_t* full = &shared.full[which];
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(full)),
                 "r"(uint32_t(sizeof(Stage)))
                 : "memory");
#endif
  const int64_t item = index * a.heads + head;
  copy_piece(&stage.keys, &a.key_parts[index * a.key_heads + head / (a.heads / a.key_heads)], sizeof stage.keys, full);
  copy_piece(&stage.head, &a.head_parts[item], sizeof stage.head, full);
  copy_piece(&stage.values, &a.value_parts[item * (a.v_dim / slice) + slice_index], sizeof stage.values, full);
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until this chunk has come. Others' copies are seen after a barrier of the block.
__device__ void await_chunk(Walk& shared, int which, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;}" ::"r"(shared_address(&shared.full[which])),
      "r"(parity)
      : "memory");
#else
  asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
}

// Block (32 columns of a head, row). Warp w holds the state's rows 16 w to 16 w + 15; warps 0 to 3 make n and 4 to 7 y,
// 16 tokens each.
__global__ void __launch_bounds__(threads, 1) walk(Chunks a) {
  extern __shared__ __align__(16) std::byte memory[];
  auto& shared = *reinterpret_cast<Walk*>(memory);
  follow_previous();
  const int slices = a.v_dim / slice, head = blockIdx.x / slices, first_column = blockIdx.x % slices * slice;
  const int row = blockIdx.y, begin = a.state.row_offsets[row], fresh = a.state.row_offsets[row + 1] - begin;
  const int chunks = chunks_of(fresh);
  if (chunks == 0) return;
  const int64_t first = first_chunk(a, row);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const float* read = a.state.at(a.state.read[row]);
  float* write = a.state.at(a.state.write[row]);
  // The thread's two rows of the state, columns 8 n + 2 quad and the next.
  const int64_t offset = (int64_t(head) * key_dim + warp * 16 + g) * a.v_dim + first_column + quad * 2;
  float state[slice / 8][4] = {};
  if (read != nullptr)
    for (int n = 0; n < slice / 8; ++n)
      for (int half = 0; half < 2; ++half) {
        const float2 two = *reinterpret_cast<const float2*>(read + offset + int64_t(half) * 8 * a.v_dim + n * 8);
        state[n][half * 2] = two.x, state[n][half * 2 + 1] = two.y;
      }
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0)
    for (uint64_t& full : shared.full)
      asm volatile(
          "mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(shared_address(&full))
          : "memory");
  __syncthreads();
#endif
  load_chunk(a, shared, 0, first, head, first_column / slice);
  for (int c = 0; c < chunks; ++c) {
    const Stage& stage = shared.stage[c % stages];
#pragma unroll
    for (int n = 0; n < slice / 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<__half2*>(&shared.state[(warp * 16 + g + half * 8) * slice_stride + n * 8 + quad * 2]) =
            to_halves(state[n][half * 2], state[n][half * 2 + 1]);
    await_chunk(shared, c % stages, c / stages & 1);
    __syncthreads();  // and nobody reads the stage of the chunk before any more
    if (c + 1 < chunks) load_chunk(a, shared, (c + 1) % stages, first + c + 1, head, first_column / slice);

    const int token = warp % 4 * 16;
    float sums[slice / 8][4] = {};
#pragma unroll
    for (int k = 0; k < key_dim; k += 16) {
      uint32_t left[4], right[4];
      if (warp < 4) {
        load_rows_transposed(left, &stage.head.w[k * pair_stride + token], pair_stride);
      } else {
        load_rows(left, &stage.keys.q[token * key_stride + k], key_stride);
      }
#pragma unroll
      for (int n = 0; n < slice / 8; n += 2) {
        load_columns(right, &shared.state[k * slice_stride + n * 8], slice_stride);
        multiply(sums[n], left, right[0], right[1]);
        multiply(sums[n + 1], left, right[2], right[3]);
      }
    }
    if (warp < 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = token + g + half * 8;
        const float decay = stage.head.from[i];
#pragma unroll
        for (int n = 0; n < slice / 8; ++n) {
          const float* u = &stage.values.u[(n * 8 + quad * 2) * token_stride + i];
          const float x = u[0] - sums[n][half * 2], y = u[token_stride] - sums[n][half * 2 + 1];
          const int at = i * slice_stride + n * 8 + quad * 2;
          *reinterpret_cast<__half2*>(&shared.fresh[0][at]) = to_halves(x, y);
          *reinterpret_cast<__half2*>(&shared.fresh[1][at]) = to_halves(x * decay, y * decay);
        }
      }
    } else {
      const float upto[2] = {stage.head.upto[token + g], stage.head.upto[token + g + 8]};
#pragma unroll
      for (int n = 0; n < slice / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][e] *= upto[e / 2];
    }
    __syncthreads();

    const float decay = stage.head.upto[chunk - 1];
#pragma unroll
    for (int n = 0; n < slice / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) state[n][e] *= decay;
#pragma unroll
    for (int t = 0; t < chunk; t += 16) {
      uint32_t left[4], right[4];
      load_rows_transposed(left, &stage.keys.k[t * key_stride + warp * 16], key_stride);
#pragma unroll
      for (int n = 0; n < slice / 8; n += 2) {
        load_columns(right, &shared.fresh[1][t * slice_stride + n * 8], slice_stride);
        multiply(state[n], left, right[0], right[1]);
        multiply(state[n + 1], left, right[2], right[3]);
      }
    }
    if (warp >= 4) {
#pragma unroll
      for (int t = 0; t < chunk; t += 16) {
        uint32_t left[4], right[4];
        load_rows(left, &stage.head.p[token * pair_stride + t], pair_stride);
#pragma unroll
        for (int n = 0; n < slice / 8; n += 2) {
          load_columns(right, &shared.fresh[0][t * slice_stride + n * 8], slice_stride);
          multiply(sums[n], left, right[0], right[1]);
          multiply(sums[n + 1], left, right[2], right[3]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int i = c * chunk + token + g + half * 8;
        if (i >= fresh) continue;
        float* y = a.y + int64_t(begin + i) * a.y_token + head * a.y_head + first_column + quad * 2;
#pragma unroll
        for (int n = 0; n < slice / 8; ++n)
          *reinterpret_cast<float2*>(y + n * 8) = make_float2(sums[n][half * 2], sums[n][half * 2 + 1]);
      }
    }
  }
  if (write == nullptr) return;
  for (int n = 0; n < slice / 8; ++n)
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(write + offset + int64_t(half) * 8 * a.v_dim + n * 8) =
          make_float2(state[n][half * 2], state[n][half * 2 + 1]);
}

bool in_fours(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.strides[0] % 4 == 0 && view.strides[1] % 4 == 0;
}

}  // namespace

bool delta_takes_chunks(const GatedDeltaArgs& a) {
  return !a.reproducible && a.k.size(2) == key_dim && a.v.size(2) % slice == 0 && a.v.size(2) <= 128 &&
         a.dt.size(2) == 1 && in_fours(a.q) && in_fours(a.k) && in_fours(a.v) && in_fours(a.y) &&
         (reinterpret_cast<uintptr_t>(a.state.base) + uintptr_t(a.state.offset_bytes)) % 16 == 0;
}

void delta_by_chunks(const GatedDeltaArgs& a, ExecContext& context) {
  Chunks args{.q = data_of<float>(a.q),
              .k = data_of<float>(a.k),
              .v = data_of<float>(a.v),
              .dt = data_of<float>(a.dt),
              .beta = data_of<float>(a.beta),
              .a = a.a,
              .dt_bias = a.dt_bias,
              .y = data_of<float>(a.y),
              .state = states_of(a.rows, a.state),
              .q_token = a.q.strides[0],
              .q_head = a.q.strides[1],
              .k_token = a.k.strides[0],
              .k_head = a.k.strides[1],
              .v_token = a.v.strides[0],
              .v_head = a.v.strides[1],
              .dt_token = a.dt.strides[0],
              .dt_head = a.dt.strides[1],
              .beta_token = a.beta.strides[0],
              .y_token = a.y.strides[0],
              .y_head = a.y.strides[1],
              .heads = int(a.v.size(1)),
              .key_heads = int(a.k.size(1)),
              .v_dim = int(a.v.size(2)),
              .num_rows = int(a.rows.num_rows),
              .scale = a.scale,
              .l2_eps = a.l2_eps};
  // A row of 64 tokens is a chunk; one of 65 is two.
  const int64_t chunks = a.rows.num_tokens / chunk + std::min(a.rows.num_rows, a.rows.num_tokens / chunk);
  const Workspace::Scope scope(context.workspace);
  const auto alloc = [&](int64_t items, size_t bytes) {
    return context.workspace.alloc(DType::f32, {items, int64_t(bytes / sizeof(float))}).data;
  };
  const int64_t slices = args.v_dim / slice;
  args.key_parts = static_cast<KeyPart*>(alloc(chunks * args.key_heads, sizeof(KeyPart)));
  args.head_parts = static_cast<HeadPart*>(alloc(chunks * args.heads, sizeof(HeadPart)));
  args.value_parts = static_cast<ValuePart*>(alloc(chunks * args.heads * slices, sizeof(ValuePart)));
  static const bool raised =
      cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Walk)) == cudaSuccess;
  MEDLEY_CHECK(raised);
  prepare_chunks(args, chunks, context);
  launch_kernel("gated_delta_scan", walk,
                {dim3(unsigned(args.heads * slices), unsigned(args.num_rows)), threads, sizeof(Walk)}, context, args);
}

}  // namespace medley::cuda
