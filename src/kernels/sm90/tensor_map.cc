#include "kernels/sm90/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/error.h"

namespace medley::sm90 {
namespace {

// The driver's function, found at run time: linking libcuda would keep the program from starting without a driver.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess)
    fail("this CUDA driver has no cuTensorMapEncodeTiled; version 12 or later has it");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

template <int rank>
CUtensorMap encode(const void* base, const cuuint64_t (&sizes)[rank], const cuuint64_t (&strides)[rank - 1],
                   const cuuint32_t (&box)[rank]) {
  static const PFN_cuTensorMapEncodeTiled_v12000 function = encoder();
  cuuint32_t steps[rank];
  std::fill_n(steps, rank, 1);
  CUtensorMap map{};
  const CUresult status = function(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(base), sizes,
                                   strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail("cuTensorMapEncodeTiled: error {} for rows of {} bytes at {}", int(status), strides[0], base);
  return map;
}

}  // namespace

CUtensorMap rows_map(const void* base, int64_t columns, int64_t row_bytes, int box_columns, int box_rows) {
  return matrix_map(base, INT32_MAX, columns, row_bytes, box_columns, box_rows);
}

CUtensorMap matrix_map(const void* base, int64_t rows, int64_t columns, int64_t row_bytes, int box_columns,
                       int box_rows) {
  return encode<2>(base, {cuuint64_t(columns), cuuint64_t(rows)}, {cuuint64_t(row_bytes)},
                   {cuuint32_t(box_columns), cuuint32_t(box_rows)});
}

CUtensorMap gated_map(const void* base, int64_t slots, int64_t width, int64_t columns, int box_columns, int box_rows) {
  const cuuint64_t row = cuuint64_t(columns) * 2;
  return encode<5>(base, {cuuint64_t(columns), 8, 2, cuuint64_t(width / 8), cuuint64_t(slots)},
                   {row, row * cuuint64_t(width), row * 8, row * 2 * cuuint64_t(width)},
                   {cuuint32_t(box_columns), 8, 2, cuuint32_t(box_rows / 16), 1});
}

}  // namespace medley::sm90
