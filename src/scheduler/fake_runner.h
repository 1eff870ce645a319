// For tests: a runner whose "model" writes recognisable bytes into a real arena and checks, step by step, that every
// row finds what a model would read: all of its own earlier tokens (full), those in its windows (window), its own
// state (state). A unit handed out twice, dropped too early or left over from another request shows at once.
//
// The next token is a hash of all tokens so far, so that a request has one right output, alone or in company.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cache/arena.h"
#include "core/kv_cache_spec.h"
#include "core/step_plan.h"

namespace medley {

class FakeRunner {
 public:
  FakeRunner(std::vector<KvCacheSpec> specs, const ArenaGeometry& geometry)
      : specs_(std::move(specs)), memory_(size_t(geometry.bytes()), 0xee) {}

  static int32_t next_token(const std::vector<int32_t>& tokens) {
    uint64_t hash = 1;
    for (int32_t token : tokens) hash = mix(hash, uint64_t(token));
    return int32_t(hash % 1000);
  }

  // Runs the step; on a broken plan or wrong memory contents `error` says what.
  StepResult run(const StepPlan& plan) {
    StepResult result{plan.step, {}};
    check_shape(plan);
    if (!error.empty()) return result;
    for (const PlanRow& row : plan.rows) remember(plan, row);
    for (const bool writing : {true, false}) {  // all of a step's rows are written before any is read
      for (size_t g = 0; g < specs_.size(); ++g) {
        for (size_t r = 0; r < plan.rows.size(); ++r) visit(plan, g, r, writing);
      }
    }
    for (const PlanRow& row : plan.rows) {
      if (!row.sample) continue;
      result.sampled.push_back({row.request, next_token(tokens_[row.request])});
      last_[row.sampling_slot] = {row.request, result.sampled.back().token};
    }
    return result;
  }

  std::string error;

 private:
  static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
  }

  void report(const std::string& problem) {
    if (error.empty()) error = problem;
  }

  void check_shape(const StepPlan& plan) {
    size_t tokens = 0;
    std::set<int32_t> slots;
    std::set<RequestId> requests;
    for (const PlanRow& row : plan.rows) {
      if (size_t(row.first_token) != tokens || row.new_tokens < 1) report("rows do not tile token_ids");
      tokens += size_t(row.new_tokens);
      if (!slots.insert(row.sampling_slot).second) report(fmt::format("slot {} twice", row.sampling_slot));
      if (!requests.insert(row.request).second) report(fmt::format("request {} twice", row.request));
      if (row.sample && row.logits == LogitsWanted::none) report("a row samples without logits");
    }
    if (tokens != plan.token_ids.size()) report("token_ids has other tokens than the rows");
    if (plan.groups.size() != specs_.size()) report("groups are missing");
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const PlanGroup& group = plan.groups[g];
      const size_t states = specs_[g].paged() ? 0 : size_t(specs_[g].num_layers) * plan.rows.size();
      if (group.state_in.size() != states || group.state_out.size() != states)
        report("a state table has no [layer, row]");
      if (group.block_offsets.size() != (specs_[g].paged() ? plan.rows.size() + 1 : 0))
        report("block_offsets is short");
    }
  }

  // Tokens come one chunk at a time; a request that starts over sends the same ones again.
  void remember(const StepPlan& plan, const PlanRow& row) {
    std::vector<int32_t>& tokens = tokens_[row.request];
    if (row.computed == 0) tokens.clear();
    if (int64_t(tokens.size()) != row.computed) report(fmt::format("request {} skips tokens", row.request));
    const auto first = plan.token_ids.begin() + row.first_token;
    tokens.insert(tokens.end(), first, first + row.new_tokens);
    if (tokens.back() != token_of_last_step) return;
    const auto [owner, last] = last_[row.sampling_slot];
    if (owner != row.request) report(fmt::format("request {} takes another's token", row.request));
    tokens.back() = last;
  }

  void visit(const StepPlan& plan, size_t g, size_t r, bool writing) {
    if (specs_[g].paged()) {
      visit_pages(plan, g, r, writing);
    } else {
      visit_states(plan, g, r, writing);
    }
  }

  void visit_pages(const StepPlan& plan, size_t g, size_t r, bool writing) {
    const KvCacheSpec& spec = specs_[g];
    const PlanRow& row = plan.rows[r];
    const int32_t first = plan.groups[g].block_offsets[r];
    const int32_t blocks = plan.groups[g].block_offsets[r + 1] - first;
    const int32_t end = row.computed + row.new_tokens;
    int32_t at = writing ? row.computed : 0;
    if (!writing && spec.kind == CacheKind::window) at = std::max(0, row.computed - spec.window + 1);
    for (; at < end; ++at) {
      if (at / spec.tokens_per_block >= blocks) return report(fmt::format("{}: table is short", spec.name));
      const int32_t block = plan.groups[g].blocks[size_t(first + at / spec.tokens_per_block)];
      if (block < 0)
        return report(fmt::format("{}: position {} of request {} was dropped", spec.name, at, row.request));
      for (int32_t layer = 0; layer < spec.num_layers; ++layer) {
        const int64_t cell = block + int64_t(layer) * spec.tokens_per_block + at % spec.tokens_per_block;
        const uint64_t mark = mix(mix(mix(g + 1, row.request), uint64_t(at)), uint64_t(layer));
        touch(cell * spec.row_bytes, spec.row_bytes, mix(mark, uint64_t(tokens_[row.request][size_t(at)])), writing,
              fmt::format("{}: position {} of request {}", spec.name, at, row.request));
      }
    }
  }

  // Reads state_in before anything is written, so the pass that writes checks the old state first.
  void visit_states(const StepPlan& plan, size_t g, size_t r, bool writing) {
    const KvCacheSpec& spec = specs_[g];
    const PlanRow& row = plan.rows[r];
    for (int32_t layer = 0; layer < spec.num_layers; ++layer) {
      const size_t entry = size_t(layer) * plan.rows.size() + r;
      const int64_t in = plan.groups[g].state_in[entry];
      const int64_t out = plan.groups[g].state_out[entry];
      if ((in < 0) != (row.computed == 0)) return report(fmt::format("{}: wrong zero state", spec.name));
      const auto state_after = [&](int32_t tokens) {
        return mix(mix(mix(g + 1, row.request), uint64_t(layer)), uint64_t(tokens));
      };
      const std::string what = fmt::format("{}: layer {} of request {}", spec.name, layer, row.request);
      if (writing && in >= 0) touch(in * state_granule, spec.row_bytes, state_after(row.computed), false, what);
      touch(out * state_granule, spec.row_bytes, state_after(row.computed + row.new_tokens), writing, what);
    }
  }

  void touch(int64_t address, int64_t bytes, uint64_t mark, bool writing, const std::string& what) {
    if (address < 0 || address + bytes > int64_t(memory_.size())) return report(what + " lies outside the arena");
    for (int64_t i = 0; i < bytes; ++i) {
      const auto expected = uint8_t(mark >> (i % 8 * 8));
      uint8_t& byte = memory_[size_t(address + i)];
      if (writing) byte = expected;
      if (byte != expected) return report(what + " was overwritten");
    }
  }

  std::vector<KvCacheSpec> specs_;
  std::vector<uint8_t> memory_;
  std::map<RequestId, std::vector<int32_t>> tokens_;
  std::map<int32_t, std::pair<RequestId, int32_t>> last_;  // by slot: who chose which token
};

}  // namespace medley
