#include "golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "models/registry.h"
#include "weights/safetensors.h"

namespace medley {
namespace {

template <class To, class From>
std::vector<To> values(const SafetensorsFile& file, const std::string& name) {
  const TensorView& view = file.tensors().at(name).view;
  const From* data = view.as<From>();
  return std::vector<To>(data, data + view.elements());
}

}  // namespace

std::string test_backend() {
  const char* backend = std::getenv("MEDLEY_BACKEND");
  return backend != nullptr ? backend : "cpu";
}

std::string plain_kernels() {
  return test_backend() == "cuda" ? "cuda" : "ref";
}

std::vector<std::filesystem::path> golden_folders() {
  std::vector<std::filesystem::path> folders;
  const std::filesystem::path source(MEDLEY_SOURCE_DIR);
  std::vector<std::filesystem::path> roots{source / "tests/golden", source / "models"};
  if (const char* other = std::getenv("MEDLEY_GOLDEN")) roots = {other};
  for (const auto& root : roots)
    for (const auto& entry : std::filesystem::directory_iterator(root))
      if (std::filesystem::exists(entry.path() / "expected.safetensors")) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string folder_name(const testing::TestParamInfo<std::filesystem::path>& folder) {
  std::string name = folder.param.filename().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

size_t memory_for(const std::filesystem::path& folder, const std::string& dtype, int64_t requests, int64_t tokens,
                  bool mtp) {
  const auto model = make_model(read_config(folder), folder.string());
  WeightLoader weights(Shard{});
  KernelSelector kernels(Device::cpu);
  const auto comm = make_self_comm();
  ThreadPool threads(1);
  LoadContext context{weights, kernels, *comm, threads, dtype == "bf16" ? DType::bf16 : DType::f32};
  model->load(context, {.mtp = mtp});
  int64_t bytes = 0;
  for (const KvCacheSpec& spec : model->cache_specs()) {
    const int64_t block = std::max(spec.tokens_per_block, 1);
    bytes += requests * (spec.bytes_per_token() * ((tokens + block - 1) / block * block) + spec.bytes_per_request());
  }
  return size_t(bytes);
}

std::vector<GoldenCase> read_golden(const std::filesystem::path& folder) {
  const SafetensorsFile file(folder / "expected.safetensors");
  std::vector<GoldenCase> cases;
  for (int k = 0; file.tensors().contains(fmt::format("input_ids.{}", k)); ++k) {
    cases.push_back({values<int32_t, int64_t>(file, fmt::format("input_ids.{}", k)),
                     values<float, float>(file, fmt::format("logits.{}", k)),
                     values<int32_t, int64_t>(file, fmt::format("greedy.{}", k)),
                     values<float, float>(file, fmt::format("greedy_gap.{}", k)),
                     {}});
    const std::string mtp = fmt::format("mtp_logits.{}", k);
    if (file.tensors().contains(mtp)) cases.back().mtp_logits = values<float, float>(file, mtp);
  }
  return cases;
}

bool records_mtp(const std::filesystem::path& folder) {
  const std::vector<GoldenCase> cases = read_golden(folder);
  return std::any_of(cases.begin(), cases.end(), [](const GoldenCase& one) { return !one.mtp_logits.empty(); });
}

PromptLogits run_prompt(EngineCore& engine, const std::vector<int32_t>& prompt) {
  const auto vocab = size_t(engine.info().vocab_size);
  PromptLogits all{std::vector<float>(prompt.size() * vocab, NAN), {}};
  if (engine.mtp()) all.mtp.assign((prompt.size() - 1) * vocab, NAN);
  Request request;
  request.id = 1;
  request.prompt = prompt;
  request.sampling.max_tokens = 0;
  request.logits = LogitsWanted::all;
  const auto refused = engine.add(std::move(request));
  if (refused) fail("{}", *refused);
  const auto keep_in = [&](std::vector<float>& values) {
    return [&values, vocab](const StepPlan&, const StepLogits& step) {
      for (const RowLogits& row : step.rows) {
        ASSERT_LE(size_t(row.position + row.count) * vocab, values.size());
        if (row.count > 0)
          std::copy_n(step.logits.row<float>(row.first), size_t(row.count) * vocab,
                      values.begin() + row.position * int64_t(vocab));
      }
    };
  };
  StepObserver observer;
  observer.on_logits = keep_in(all.main);
  observer.on_draft_logits = keep_in(all.mtp);
  observer.on_finish = [](const Request&, const std::string& error) {
    if (!error.empty()) fail("{}", error);
  };
  while (engine.has_work()) engine.step(observer);
  return all;
}

std::vector<std::vector<int32_t>> run_requests(EngineCore& engine, std::vector<Request> requests, int64_t* steps) {
  std::map<RequestId, std::vector<int32_t>> outputs;
  for (Request& request : requests)
    if (const auto refused = engine.add(std::move(request))) fail("{}", *refused);
  StepObserver observer;
  observer.on_step = [&](const StepPlan&) {
    if (steps != nullptr) ++*steps;
  };
  observer.on_finish = [&](const Request& request, const std::string& error) {
    if (!error.empty()) fail("{}", error);
    outputs[request.id] = request.outputs;
  };
  while (engine.has_work()) engine.step(observer);
  std::vector<std::vector<int32_t>> ordered;
  for (auto& [id, tokens] : outputs) ordered.push_back(std::move(tokens));
  return ordered;
}

Request greedy_request(RequestId id, const std::vector<int32_t>& prompt, int32_t tokens) {
  Request request;
  request.id = id;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = tokens;
  request.sampling.ignore_eos = true;
  return request;
}

Comparison compare(const std::vector<float>& got, const std::vector<float>& expected) {
  Comparison result;
  double sum = 0, squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double(got[i]) - expected[i]);
    if (!(error <= result.max_error)) result.max_error = error;  // NaN too
    sum += expected[i];
    squares += double(expected[i]) * expected[i];
  }
  const double n = double(expected.size());
  result.deviation = std::sqrt(squares / n - (sum / n) * (sum / n));
  return result;
}

}  // namespace medley
