#include "kernels/sm90/tensor_map.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

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

}  // namespace

CUtensorMap rows_map(const void* base, int64_t columns, int64_t row_bytes, int box_columns, int box_rows) {
  return matrix_map(base, INT32_MAX, columns, row_bytes, box_columns, box_rows);
}

CUtensorMap matrix_map(const void* base, int64_t rows, int64_t columns, int64_t row_bytes, int box_columns,
                       int box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = encoder();
  const cuuint64_t sizes[] = {cuuint64_t(columns), cuuint64_t(rows)};
  const cuuint64_t strides[] = {cuuint64_t(row_bytes)};
  const cuuint32_t box[] = {cuuint32_t(box_columns), cuuint32_t(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map{};
  const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), sizes, strides,
                                 box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    fail("cuTensorMapEncodeTiled: error {} for rows of {} bytes at {}", int(status), row_bytes, base);
  return map;
}

}  // namespace medley::sm90
