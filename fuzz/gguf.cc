// A GGUF file: is refused, or its config describes a model, its tensors lie inside it and its tokenizer takes text.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/communicator.h"
#include "models/gguf/source.h"
#include "models/registry.h"
#include "scratch_file.h"

using namespace medley;

namespace {

// Runs `part`; a file may be refused in one and be fine in the next.
template <class Part>
void attempt(Part&& part) {
  try {
    part();
  } catch (const Error&) {
    // refused
  }
}

void plan(const ModelSource& source) {
  const auto model = make_model(source.config(), "fuzz.gguf");
  WeightLoader weights{Shard{}};
  KernelSelector kernels(Device::cpu);
  const auto comm = make_self_comm();
  static ThreadPool threads(1);
  LoadContext context{weights, kernels, *comm, threads, DType::bf16, false};
  model->load(context, {});
}

void read_tensors(const ModelSource& source) {
  unsigned sum = 0;
  const auto checkpoint = source.checkpoint();
  for (const auto& [name, entry] : checkpoint->tensors()) {
    if (!entry.converted.fill) {
      for (const std::byte byte : entry.tensor.bytes) sum += unsigned(byte);
    } else if (entry.tensor.view.bytes() < size_t(1) << 24) {
      Buffer made(entry.tensor.view.bytes());
      entry.converted.fill(made.data());
    }
  }
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

void use_tokenizer(const ModelSource& source) {
  const std::optional<Tokenizer> tokenizer = source.tokenizer();
  if (!tokenizer) return;
  tokenizer->decode(tokenizer->encode("Hello, w\u00f6rld! 12  \n", true), false);
  source.chat_template(*tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::ScratchFile scratch({data, size});
  attempt([&] {
    const auto source = open_gguf_model(scratch.path());
    attempt([&] { plan(*source); });
    attempt([&] { read_tensors(*source); });
    attempt([&] { use_tokenizer(*source); });
    attempt([&] { source->generation_config(); });
  });
  return 0;
}
