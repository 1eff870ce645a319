// The sampler beside the model: logits stay on the device, ids come back. What a device does not compute (the
// log-probabilities that a request may ask for) is left to the host's sampler, for that request alone.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/sample.h"
#include "runner/step_buffer.h"
#include "sampling/sampler.h"

namespace medley {

class DeviceSampler final : public Sampler {
 public:
  // Works in `stream`, where the logits are computed.
  DeviceSampler(int64_t vocab_size, int32_t slots, ThreadPool& threads, void* stream);

  void start(int32_t slot, const SamplingParams& params, std::span<const int32_t> prompt,
             std::span<const int32_t> output = {}) override;
  void finish(int32_t slot) override;
  void launch(const TensorView& logits, std::span<const SampleRow> rows) override;
  std::vector<Sampled> collect() override;
  TensorView last_tokens() const override { return last_.view(DType::i32, {int64_t(slots_.size())}); }
  bool tokens_in_place() const override { return tokens_in_place_; }

 private:
  struct State {
    SamplingParams params;
    int64_t written = 0;
    bool counted = false;  // has counts on the device
    bool on_host = false;
  };
  // A row of a launch, and what its error would say.
  struct Row {
    SampleRow row;
    int64_t written = 0;
    int64_t place = 0;  // among the rows of the device, or of the host
    bool on_host = false;
  };
  // What one launch needs until it is collected.
  struct Launch {
    Launch() : tables(Device::cuda), done(Device::cuda) {}
    std::vector<Row> rows;
    StepBuffer tables;
    PinnedBuffer chosen;  // SampledToken
    PinnedBuffer logits;  // of the host's rows
    StreamMark done;
  };
  struct Tables {
    TensorView rows, bias_tokens, bias_values, starts, tokens;
    bool all_plain = true;
  };

  Tables send_tables(Launch& launch);
  SampleChoice choice(const Row& row, int64_t first_bias) const;
  Sampled result(const Launch& launch, const Row& row);

  int64_t vocab_size_;
  ExecContext exec_;
  Workspace workspace_{Device::cuda};
  HostSampler host_;
  std::vector<std::unique_ptr<State>> slots_;
  Buffer last_, counts_, chosen_;
  std::vector<CountTokens> starts_;  // since the last launch, for the next
  std::vector<int32_t> start_tokens_;
  std::array<Launch, 2> launches_;  // in turns
  size_t launched_ = 0, collected_ = 0;
  bool tokens_in_place_ = true;
};

// The sampler of a model that runs on `device`, in the stream of its runner.
std::unique_ptr<Sampler> make_sampler(Device device, int64_t vocab_size, int32_t slots, ThreadPool& threads,
                                      void* stream);

}  // namespace medley
