#include "cli/expected.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "weights/safetensors.h"

namespace medley::cli {
namespace {

class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : file_(path) {}

  const SafetensorsFile& file() const { return file_; }

  // Of any size where `shape` says -1.
  const TensorView& take(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    const auto at = file_.tensors().find(name);
    if (at == file_.tensors().end()) fail("{}: tensor {} is missing", file_.path(), name);
    const StoredTensor& tensor = at->second;
    if (!tensor.readable || tensor.view.dtype != dtype)
      fail("{}: tensor {} is {}, {} is wanted", file_.path(), name, tensor.dtype_name, name_of(dtype));
    const auto fits = [&](int64_t found, int64_t wanted) { return wanted < 0 || found == wanted; };
    const std::span<const int64_t> found(tensor.view.shape.data(), size_t(tensor.view.rank));
    if (!std::equal(found.begin(), found.end(), shape.begin(), shape.end(), fits))
      fail("{}: tensor {} has shape {}, {} is wanted (-1: any)", file_.path(), name, describe_shape(found),
           describe_shape(shape));
    taken_.insert(name);
    return tensor.view;
  }

  std::vector<int32_t> ids(const std::string& name) {
    const TensorView& view = take(name, DType::i64, {-1});
    const auto* values = view.as<int64_t>();
    for (int64_t i = 0; i < view.elements(); ++i)
      if (values[i] < 0 || values[i] > INT32_MAX)
        fail("{}: tensor {} holds {}, which is no token id", file_.path(), name, values[i]);
    return {values, values + view.elements()};
  }

  std::vector<float> floats(const std::string& name, std::vector<int64_t> shape) {
    const TensorView& view = take(name, DType::f32, std::move(shape));
    const auto* values = view.as<float>();
    return {values, values + view.elements()};
  }

  std::vector<std::string> rest() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file_.tensors())
      if (!taken_.contains(name)) names.push_back(name);
    return names;
  }

 private:
  SafetensorsFile file_;
  std::set<std::string> taken_;
};

}  // namespace

Expected read_expected(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    fail("{}: is not there; it holds the logits to compare with (input_ids.K, logits.K, greedy.K, greedy_gap.K)",
         path.string());
  Reader reader(path);
  Expected expected;
  expected.vocab = -1;
  const std::string prefix = "input_ids.";
  for (const auto& [name, tensor] : reader.file().tensors()) {
    if (!name.starts_with(prefix)) continue;
    ExpectedCase one;
    one.name = name.substr(prefix.size());
    one.input_ids = reader.ids(name);
    const auto length = int64_t(one.input_ids.size());
    one.logits = reader.floats("logits." + one.name, {length, expected.vocab});
    if (length == 0) fail("{}: tensor {} is empty", path.string(), name);
    expected.vocab = int64_t(one.logits.size()) / length;
    one.greedy = reader.ids("greedy." + one.name);
    one.greedy_gap = reader.floats("greedy_gap." + one.name, {int64_t(one.greedy.size())});
    if (reader.file().tensors().contains("mtp_logits." + one.name))
      one.mtp_logits = reader.floats("mtp_logits." + one.name, {length - 1, expected.vocab});
    expected.mtp |= !one.mtp_logits.empty();
    expected.cases.push_back(std::move(one));
  }
  if (expected.cases.empty()) fail("{}: has no tensor input_ids.K, so there is nothing to compare", path.string());
  expected.ignored = reader.rest();
  return expected;
}

LogitError compare_logits(const std::vector<float>& got, const std::vector<float>& expected) {
  MEDLEY_CHECK(got.size() == expected.size() && !got.empty());
  LogitError result;
  double sum = 0, squares = 0, error_squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double(got[i]) - expected[i]);
    if (!(error <= result.max) && !std::isnan(result.max)) result.max = error;  // a NaN stays
    error_squares += error * error;
    sum += expected[i];
    squares += double(expected[i]) * expected[i];
  }
  const auto n = double(expected.size());
  result.deviation = std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
  result.rms = std::sqrt(error_squares / n);
  return result;
}

std::vector<size_t> equal_rows(const std::vector<float>& one, const std::vector<float>& other, size_t vocab) {
  MEDLEY_CHECK(one.size() == other.size());
  std::vector<size_t> rows;
  for (size_t row = 0; row < one.size() / vocab; ++row)
    if (std::memcmp(&one[row * vocab], &other[row * vocab], vocab * sizeof(float)) == 0) rows.push_back(row);
  return rows;
}

std::vector<float> rows_of(const std::vector<float>& logits, const std::vector<size_t>& rows, size_t vocab) {
  std::vector<float> taken;
  for (const size_t row : rows)
    taken.insert(taken.end(), logits.begin() + std::ptrdiff_t(row * vocab),
                 logits.begin() + std::ptrdiff_t((row + 1) * vocab));
  return taken;
}

Bars bars_for(DType dtype, bool int8, int layers) {
  if (dtype == DType::f32 && !int8) return {.aim = 1e-4, .bar = 1e-3, .largest = 1e-3};
  // Each of a layer's two parts rounds about four times to bf16 (its input, what it caches, the heads or the gate, the
  // input of its last product), by up to 2^-9 of a value each. Roundings are independent, so their root mean square
  // grows with the root of their number. Norms over small values (Jamba's dt, B and C) and other experts carry that to
  // ten times as much in the golden set (worst: jamba, one token, 10.0), to twice without either. The largest of some
  // thousand errors is about four times their root mean square.
  // In int8 a value is off by up to half a step, and 127 steps are the largest of its 32 values, twice as large as they
  // are on the whole: 0.5 % of that, where bf16 has 0.1. (Golden GGUF files: three to four times as far off as with
  // bf16, up to twenty times where a router turns to other experts.)
  const double rms = std::sqrt(8.0 * layers + 2) * (int8 ? 0x1p-7 : 0x1p-9);
  return {.by_rms = true, .aim = 4 * rms, .bar = 16 * rms, .largest = 64 * rms};
}

GreedyMatch match_greedy(const std::vector<int32_t>& got, const ExpectedCase& expected, double allowed_error) {
  GreedyMatch match;
  for (size_t step = 0; step < expected.greedy.size(); ++step) {
    if (!(expected.greedy_gap[step] >= 2 * allowed_error)) {
      match.undecided_from = int(step);
      break;
    }
    if (step >= got.size() || got[step] != expected.greedy[step]) {
      match.wrong_at = int(step);
      break;
    }
    ++match.matched;
  }
  return match;
}

}  // namespace medley::cli
