// A .safetensors file: whatever the header says is either refused or lies inside the file.
#include "weights/safetensors.h"

#include "base/error.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const medley::fuzz::ScratchFile scratch({data, size});
  try {
    const medley::SafetensorsFile file(scratch.path());
    unsigned sum = 0;  // every byte that a tensor claims must be there to read
    for (const auto& [name, tensor] : file.tensors())
      for (const std::byte byte : tensor.bytes) sum += unsigned(byte);
    [[maybe_unused]] static volatile unsigned sink;
    sink = sum;
  } catch (const medley::Error&) {
    // refused
  }
  return 0;
}
