// A config.json: is refused, or describes a model whose every tensor and cache group can be listed.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"
#include "comm/communicator.h"
#include "models/registry.h"

using namespace medley;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto model = make_model(parse_json(text, "config.json", JsonFloats::python), "config.json");
    WeightLoader weights{Shard{}};
    KernelSelector kernels(Device::cpu);
    const auto comm = make_self_comm();
    static ThreadPool threads(1);
    LoadContext context{weights, kernels, *comm, threads, DType::bf16, false};
    model->load(context, {});
    for (const KvCacheSpec& spec : model->cache_specs())
      if (spec.bytes_per_token() < 0 || spec.bytes_per_request() < 0) std::abort();
  } catch (const Error&) {
    // refused
  }
  return 0;
}
