// What a config.json says of a model: layers, parameters, what the cache costs. Needs no weights: the model's own load
// code runs over a loader that only keeps the record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "models/model.h"

namespace medley::cli {

struct ParameterCounts {
  int64_t total = 0;                      // every tensor once, without the MTP module
  int64_t active = 0;                     // without the routed experts that a token does not choose
  int64_t active_without_embedding = 0;   // and without the input embedding, unless it is the output head too
  int64_t mtp_total = 0, mtp_active = 0;  // of the multi-token-prediction module
};

// How many tokens or requests a cache of some size holds.
struct CacheRoom {
  uint64_t memory = 0;
  std::optional<int64_t> tokens;  // of one request alone; none: any number (states only)
  int64_t request_tokens = 0;
  int64_t requests = 0;  // of request_tokens tokens each
};

struct StoredWeights {
  uint64_t bytes = 0;
  bool has_mtp = false;
};

struct ModelReport {
  std::string origin;  // the config.json
  ModelInfo info;
  DType dtype = DType::bf16;  // of the cache
  ParameterCounts parameters;
  std::vector<KvCacheSpec> cache, mtp_cache;
  CacheRoom room;
  std::string backend;               // where `kernels` run
  std::vector<std::string> kernels;  // that would be chosen, in order of choice
  std::optional<StoredWeights> stored;  // nothing when there is only a config.json
};

struct ReportOptions {
  DType dtype = DType::bf16;
  uint64_t memory = 0;
  int64_t request_tokens = 4096;
  Device device = Device::cpu;  // whose kernels to name; need not be there
};
// `model` is a checkpoint's folder or a config.json.
ModelReport make_report(const std::filesystem::path& model, const ReportOptions& options);

int64_t bytes_per_token(const std::vector<KvCacheSpec>& specs);
int64_t bytes_per_request(const std::vector<KvCacheSpec>& specs);

std::string to_text(const ModelReport& report);
std::string to_json(const ModelReport& report);

}  // namespace medley::cli
