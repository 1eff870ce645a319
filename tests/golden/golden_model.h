// What the tests over golden checkpoints share: the folders, their expectations, and runs through the real engine.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/engine_core.h"

namespace medley {

struct GoldenCase {
  std::vector<int32_t> prompt;
  std::vector<float> logits;  // [T, vocab]
  std::vector<int32_t> greedy;
  std::vector<float> greedy_gap;  // between the two best logits of each greedy step
  std::vector<float> mtp_logits;  // [T - 1, vocab]; empty: not recorded
};

// $MEDLEY_BACKEND, or "cpu": where the tests' models run.
std::string test_backend();
std::string plain_kernels();  // the level of that backend's plainest kernels

// Folders with an expected.safetensors: of tests/golden and models/, or of $MEDLEY_GOLDEN (a folder of such folders,
// all of families that medley knows).
std::vector<std::filesystem::path> golden_folders();
std::string folder_name(const testing::TestParamInfo<std::filesystem::path>& folder);  // as a test's name
std::vector<GoldenCase> read_golden(const std::filesystem::path& folder);

bool records_mtp(const std::filesystem::path& folder);

// Logits of every position [T, vocab]; with EngineOptions::mtp the module's too [T - 1, vocab].
struct PromptLogits {
  std::vector<float> main, mtp;
};
PromptLogits run_prompt(EngineCore& engine, const std::vector<int32_t>& prompt);
inline std::vector<float> run_logits(EngineCore& engine, const std::vector<int32_t>& prompt) {
  return run_prompt(engine, prompt).main;
}
// Runs the requests together to their ends; outputs in order of id (1, 2, ...). Counts the steps.
std::vector<std::vector<int32_t>> run_requests(EngineCore& engine, std::vector<Request> requests,
                                               int64_t* steps = nullptr);
Request greedy_request(RequestId id, const std::vector<int32_t>& prompt, int32_t tokens);

// Bytes of a cache that holds about `requests` requests of `tokens` tokens of the model in `folder`.
size_t memory_for(const std::filesystem::path& folder, const std::string& dtype, int64_t requests, int64_t tokens,
                  bool mtp = false);

struct Comparison {
  double max_error = 0;  // of the logits
  double deviation = 0;  // standard deviation of the expected logits
};
Comparison compare(const std::vector<float>& got, const std::vector<float>& expected);

}  // namespace medley
