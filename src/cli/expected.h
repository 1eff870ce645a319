// expected.safetensors beside a checkpoint: what another implementation computed for it, and how close is close enough.
//   input_ids.K i64 [T]; logits.K f32 [T, vocabulary]; greedy.K i64 [n], the greedy continuation;
//   greedy_gap.K f32 [n], the distance between the two largest logits at that step;
//   mtp_logits.K f32 [T - 1, vocabulary], optional: of the module for multi-token prediction
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace medley::cli {

struct ExpectedCase {
  std::string name;  // "0", the K of its tensors
  std::vector<int32_t> input_ids;
  std::vector<float> logits;  // [input_ids, vocab]
  std::vector<int32_t> greedy;
  std::vector<float> greedy_gap;
  std::vector<float> mtp_logits;  // [input_ids - 1, vocab]; empty: not recorded
};

struct Expected {
  int64_t vocab = 0;
  std::vector<ExpectedCase> cases;
  bool mtp = false;                  // some case has mtp_logits
  std::vector<std::string> ignored;  // tensors that nothing is compared with
};

// Throws Error naming the file and the tensor that is missing or has another dtype or shape than the above.
Expected read_expected(const std::filesystem::path& file);

struct LogitError {
  double max = 0;        // NaN when a logit is NaN
  double rms = 0;        // root of the mean square
  double deviation = 0;  // standard deviation of the expected logits
};
LogitError compare_logits(const std::vector<float>& got, const std::vector<float>& expected);

// The rows that two runs have alike in every bit, ascending.
std::vector<size_t> equal_rows(const std::vector<float>& one, const std::vector<float>& other, size_t vocab);
std::vector<float> rows_of(const std::vector<float>& logits, const std::vector<size_t>& rows, size_t vocab);

// How close is close enough, as shares of the expected logits' standard deviation. In f32 the largest error is held
// against them, in bf16 the root of the mean square: there a token that stands between two experts may take the other
// one, and what that does to a single logit says nothing.
struct Bars {
  bool by_rms = false;
  double aim = 0;      // missed: said, but passed
  double bar = 0;      // missed: failed
  double largest = 0;  // error of a single logit that greedy choices must survive
};
Bars bars_for(DType dtype, bool int8, int layers);

struct GreedyMatch {
  int matched = 0;
  int undecided_from = -1;  // first step whose gap is too small to decide; -1: none
  int wrong_at = -1;        // first decided step with another token; -1: none
};
// A step is decided when the two best logits lie at least twice the allowed error apart.
GreedyMatch match_greedy(const std::vector<int32_t>& got, const ExpectedCase& expected, double allowed_error);

}  // namespace medley::cli
