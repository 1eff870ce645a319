#include "engine/backend.h"

#include "tensor/device_memory.h"

namespace medley {

Device choose_device(const std::string& backend) {
  if (backend == "cpu") return Device::cpu;
  if (backend != "cuda" && backend != "auto") fail("backend \"{}\" is not known; use cpu, cuda or auto", backend);
  const std::string missing = cuda_missing();
  if (missing.empty()) return Device::cuda;
  if (backend == "cuda") fail("backend cuda cannot be used: {}", missing);
  return Device::cpu;
}

}  // namespace medley
