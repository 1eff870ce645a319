// Memory of the CUDA device and copies to and from it, for code that sees no CUDA header. device_memory.cc needs the
// toolkit; a build without it takes no_device_memory.cc, in which every call throws what is missing.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace medley {

// Empty when this process can use a CUDA device; else what is missing (toolkit, driver, device).
std::string cuda_missing();

std::byte* device_allocate(size_t bytes);  // plain cudaMalloc; throws Error with the bytes asked for and free
void device_free(std::byte* data) noexcept;

// Between any two memories, after what `stream` (cudaStream_t; null: the default stream) holds; done on return.
void copy_bytes(void* to, const void* from, size_t bytes, void* stream = nullptr);
void fill_bytes(void* to, int value, size_t bytes, Device device);
void synchronize(void* stream = nullptr);

}  // namespace medley
