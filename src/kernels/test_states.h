// What the tests of ops with a state per request share: the states, a step that reads and writes them in every way,
// and the check that bits do not depend on where chunks end.
#pragma once

#include "core/kv_cache_spec.h"
#include "kernels/test_tensors.h"

namespace medley::test {

// States of one layer in units of state_granule, the op's part at an offset inside each.
struct States {
  int64_t elements, unit, count;
  Buffer memory;
  std::vector<int32_t> read, write;

  States(int64_t elements_in, int64_t count_in)
      : elements(elements_in),
        unit((64 + elements * 4 + state_granule - 1) / state_granule),
        count(count_in),
        memory(size_t(unit * count * state_granule)) {
    std::memset(memory.data(), 0xff, memory.bytes());
  }
  float* at(int64_t index) const { return reinterpret_cast<float*>(memory.data() + index * unit * state_granule + 64); }
  void fill(Rng& rng) {
    std::normal_distribution<float> normal;
    for (int64_t s = 0; s < count; ++s)
      for (int64_t i = 0; i < elements; ++i) at(s)[i] = normal(rng);
  }
  // Row r reads slot reads[r] and writes slot writes[r]; -1: none.
  StateSlots view(const std::vector<int32_t>& reads, const std::vector<int32_t>& writes) {
    read.clear();
    write.clear();
    for (int32_t slot : reads) read.push_back(slot < 0 ? -1 : int32_t(slot * unit));
    for (int32_t slot : writes) write.push_back(slot < 0 ? -1 : int32_t(slot * unit));
    return {memory.data(), read.data(), write.data(), 64};
  }
  std::vector<float> copy(int64_t slot) const { return {at(slot), at(slot) + elements}; }
};

// One step of four rows: from nothing, from a state in place, from a state without writing, and with no tokens.
inline const std::vector<RowSpec> step_rows = {{0, 7}, {9, 1}, {4, 3}, {2, 0}};
inline const std::vector<int32_t> step_reads = {-1, 1, 2, 3}, step_writes = {0, 1, -1, 4};

// A sequence in one chunk and in random chunks, the state handed on in alternating slots: outputs and the last state
// must have equal bits. `run(first, rows, states, machine, y)` runs one chunk.
template <class Run>
void expect_chunking_is_free(Rng& rng, int64_t tokens, int64_t state_elements, std::initializer_list<int64_t> y_shape,
                             Run&& run) {
  Tensor whole(DType::f32, y_shape), parts(DType::f32, y_shape);
  States states(state_elements, 3);
  Machine one;
  run(0, Rows({{0, int32_t(tokens)}}), states.view({-1}, {2}), one, whole.view());
  for (int threads = 1; threads <= 4; ++threads) {
    parts.poison();
    Machine machine(threads);
    int32_t slot = -1;
    for (int64_t at = 0; at < tokens;) {
      const int64_t count = std::min<int64_t>(tokens - at, threads == 1 ? 1 : 1 + int64_t(rng() % 20));
      const int32_t next = slot == 0 ? 1 : 0;
      run(at, Rows({{int32_t(at), int32_t(count)}}), states.view({slot}, {next}), machine,
          parts.view().slice(0, at, count));
      slot = next;
      at += count;
    }
    for (int64_t t = 0; t < tokens; ++t) ASSERT_TRUE(whole.row_bytes(t) == parts.row_bytes(t)) << "token " << t;
    ASSERT_EQ(std::memcmp(states.at(2), states.at(slot), size_t(state_elements) * 4), 0);
  }
}

}  // namespace medley::test
