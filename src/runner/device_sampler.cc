#include "runner/device_sampler.h"

#include <algorithm>
#include <cstring>

#include "sampling/philox.h"

namespace medley {

static_assert(sizeof(SampledToken) == 3 * sizeof(int32_t) && sizeof(CountTokens) == 4 * sizeof(int32_t));

DeviceSampler::DeviceSampler(int64_t vocab_size, int32_t slots, ThreadPool& threads, void* stream)
    : vocab_size_(vocab_size),
      exec_{threads, workspace_, stream},
      host_(vocab_size, threads),
      slots_(size_t(slots)),
      last_(size_t(slots) * sizeof(int32_t), Device::cuda),
      chosen_(size_t(slots) * sizeof(SampledToken), Device::cuda) {
  fill_bytes(last_.data(), 0, last_.bytes(), Device::cuda);
  for (Launch& launch : launches_) launch.chosen = PinnedBuffer(chosen_.bytes(), Device::cuda);
}

void DeviceSampler::start(int32_t slot, const SamplingParams& params, std::span<const int32_t> prompt,
                          std::span<const int32_t> output) {
  auto state = std::make_unique<State>();
  state->params = params;
  state->written = int64_t(output.size());
  state->on_host = params.logprobs.has_value();
  state->counted = !state->on_host && wants_penalties(params);
  if (state->on_host) host_.start(slot, params, prompt, output);
  if (state->counted) {
    if (counts_.bytes() == 0) counts_ = Buffer(slots_.size() * size_t(vocab_size_) * sizeof(int32_t), Device::cuda);
    std::erase_if(starts_, [&](const CountTokens& start) { return start.slot == slot; });
    if (params.repetition_penalty == 1.0f) prompt = {};
    starts_.push_back({slot, int32_t(start_tokens_.size()), int32_t(prompt.size()), int32_t(output.size())});
    start_tokens_.insert(start_tokens_.end(), prompt.begin(), prompt.end());
    start_tokens_.insert(start_tokens_.end(), output.begin(), output.end());
  }
  slots_.at(size_t(slot)) = std::move(state);
}

void DeviceSampler::finish(int32_t slot) {
  MEDLEY_CHECK(slots_.at(size_t(slot)));
  if (slots_[size_t(slot)]->on_host) host_.finish(slot);
  slots_[size_t(slot)].reset();
}

SampleChoice DeviceSampler::choice(const Row& row, int64_t first_bias) const {
  const State& state = *slots_[size_t(row.row.slot)];
  const SamplingParams& params = state.params;
  return {.logits_row = int32_t(row.row.logits_row),
          .slot = row.row.slot,
          .temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .repetition = params.repetition_penalty,
          .presence = params.presence_penalty,
          .frequency = params.frequency_penalty,
          .counted = state.counted ? 1 : 0,
          .first_bias = int32_t(first_bias),
          .num_biases = int32_t(params.logit_bias.size()),
          .uniform = philox_uniform(params.seed, uint64_t(row.written), 0, uint32_t(params.sample))};
}

DeviceSampler::Tables DeviceSampler::send_tables(Launch& launch) {
  int64_t rows = 0, biases = 0;
  for (const Row& row : launch.rows) {
    if (row.on_host) continue;
    ++rows;
    biases += int64_t(slots_[size_t(row.row.slot)]->params.logit_bias.size());
  }
  const auto starts = int64_t(starts_.size()), tokens = int64_t(start_tokens_.size());
  launch.tables.begin(size_t(rows) * sizeof(SampleChoice) + size_t(8 * biases + 16 * starts + 4 * tokens) +
                      5 * StepBuffer::alignment);
  const auto choices = launch.tables.add_i64({rows, int64_t(sizeof(SampleChoice) / 8)});
  const auto bias_tokens = launch.tables.add_i32({biases}), bias_values = launch.tables.add_i32({biases});
  const auto start_table = launch.tables.add_i32({starts, 4}), token_table = launch.tables.add_i32({tokens});
  size_t bias = 0;
  bool all_plain = true;
  for (const Row& row : launch.rows) {
    if (row.on_host) continue;
    const SampleChoice one = choice(row, int64_t(bias));
    all_plain = all_plain && one.plain();
    std::memcpy(choices.values.data() + size_t(row.place) * sizeof(one) / 8, &one, sizeof(one));
    // Biases of one token stand together, in their order.
    auto sorted = slots_[size_t(row.row.slot)]->params.logit_bias;
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [token, value] : sorted) {
      bias_tokens.values[bias] = token;
      std::memcpy(&bias_values.values[bias++], &value, sizeof(value));
    }
  }
  if (starts > 0) std::memcpy(start_table.values.data(), starts_.data(), start_table.values.size_bytes());
  std::copy(start_tokens_.begin(), start_tokens_.end(), token_table.values.begin());
  starts_.clear();
  start_tokens_.clear();
  launch.tables.send(exec_.stream);
  return {choices.view, bias_tokens.view, bias_values.view, start_table.view, token_table.view, all_plain};
}

void DeviceSampler::launch(const TensorView& logits, std::span<const SampleRow> rows) {
  MEDLEY_CHECK(launched_ - collected_ < launches_.size() && rows.size() <= slots_.size());
  MEDLEY_CHECK(logits.device == Device::cuda && logits.size(1) == vocab_size_ && logits.strides[1] == 1);
  Launch& launch = launches_[launched_ % launches_.size()];
  launch.rows.clear();
  int64_t on_device = 0, on_host = 0;
  for (const SampleRow& row : rows) {
    State& state = *slots_.at(size_t(row.slot));
    MEDLEY_CHECK(row.logits_row >= 0 && row.logits_row < logits.size(0));
    launch.rows.push_back({row, state.written++, state.on_host ? on_host++ : on_device++, state.on_host});
  }
  const auto slots = int64_t(slots_.size());
  const Tables tables = send_tables(launch);
  const TensorView counts =
      counts_.bytes() > 0 ? counts_.view(DType::i32, {slots, vocab_size_}) : TensorView(nullptr, DType::i32, {0, 0});
  cuda::count_tokens({tables.starts, tables.tokens, counts}, exec_);
  cuda::sample({.logits = logits,
                .rows = tables.rows,
                .all_plain = tables.all_plain,
                .bias_tokens = tables.bias_tokens,
                .bias_values = tables.bias_values,
                .counts = counts,
                .last = last_tokens(),
                .chosen = chosen_.view(DType::i32, {slots, 3})},
               exec_);
  const auto row_bytes = size_t(vocab_size_) * sizeof(float), chosen_bytes = size_t(on_device) * sizeof(SampledToken);
  if (on_device > 0) copy_async(launch.chosen.data(), chosen_.data(), chosen_bytes, exec_.stream);
  if (launch.logits.bytes() < size_t(on_host) * row_bytes)
    launch.logits = PinnedBuffer(std::max(size_t(on_host) * row_bytes, 2 * launch.logits.bytes()), Device::cuda);
  for (const Row& row : launch.rows) {
    if (!row.on_host) continue;
    copy_async(launch.logits.data() + size_t(row.place) * row_bytes, logits.row<float>(row.row.logits_row), row_bytes,
               exec_.stream);
  }
  launch.done.record(exec_.stream);
  tokens_in_place_ = on_host == 0;
  ++launched_;
}

std::vector<Sampled> DeviceSampler::collect() {
  MEDLEY_CHECK(collected_ < launched_);
  const Launch& launch = launches_[collected_++ % launches_.size()];
  launch.done.wait();
  std::vector<SampleRow> host_rows;
  for (const Row& row : launch.rows)
    if (row.on_host) host_rows.push_back({row.row.request, row.row.slot, row.place});
  std::vector<Sampled> from_host;
  if (!host_rows.empty()) {
    const TensorView logits(launch.logits.data(), DType::f32, {int64_t(host_rows.size()), vocab_size_});
    from_host = host_.sample(logits, host_rows);
  }
  std::vector<Sampled> sampled;
  sampled.reserve(launch.rows.size());
  for (const Row& row : launch.rows)
    sampled.push_back(row.on_host ? std::move(from_host[size_t(row.place)]) : result(launch, row));
  return sampled;
}

Sampled DeviceSampler::result(const Launch& launch, const Row& row) {
  SampledToken chosen;
  std::memcpy(&chosen, launch.chosen.data() + size_t(row.place) * sizeof(chosen), sizeof(chosen));
  Sampled sampled{.request = row.row.request, .token = std::max(chosen.token, 0)};
  if (chosen.token >= 0) return sampled;
  const SamplingParams& params = slots_[size_t(row.row.slot)]->params;
  sampled.error = chosen.not_finite >= 0 ? not_finite_error(row.written, chosen.not_finite, chosen.logit, params)
                                         : all_masked_error(row.written);
  return sampled;
}

std::unique_ptr<Sampler> make_sampler(Device device, int64_t vocab_size, int32_t slots, ThreadPool& threads,
                                      void* stream) {
  if (device == Device::cpu) return std::make_unique<HostSampler>(vocab_size, threads);
  return std::make_unique<DeviceSampler>(vocab_size, slots, threads, stream);
}

}  // namespace medley
