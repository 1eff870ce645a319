// The library's public API: load a model, submit requests, receive text and tokens by callback, cancel.
//
//   auto engine = medley::Engine::load("models/demo-jamba");
//   engine->submit({.prompt = "Once upon a time"}, [](const medley::Event& event) { std::cout << event.text; });
//   engine->wait();
//
// The engine runs its own thread; requests are batched as they come. A request's result does not depend on what else is
// running, nor on the number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "medley/sampling_params.h"

namespace medley {

struct EngineOptions {
  std::string backend = "auto";  // where the model runs: "cpu", "cuda", "auto" (a CUDA device when there is one)
  std::string dtype = "auto";    // inputs of matrix products and the cache: "f32", "bf16", "auto" (as stored)
  // What linear layers multiply: as `dtype` says, or, where weights are quantised in blocks (GGUF files), "int8".
  std::string activations = "auto";
  // Block-quantised weights (GGUF). "keep": they stay in blocks; "expand": they are stored as dtype when loaded, two to
  // eight times the memory; "auto": keep on the CPU, expand on a device, whose kernels read no blocks.
  std::string blocks = "auto";
  int threads = 0;                   // 0: one per processor
  uint64_t memory = 0;               // bytes for the cache; 0: what is useful of the memory that is free
  int64_t max_batched_tokens = 512;  // in one step, of all requests
  int max_running = 64;              // requests at a time
  bool reproducible = false;         // the same bits however a prompt is chunked, also after a preemption
  bool mtp = false;                  // load and run the module for multi-token prediction, where a model has one
  std::string kernels;  // highest level of kernels: "ref", "simd", "avx512"; "cuda", "sm90"; empty: the best there is
  bool graphs = true;   // CUDA: steps that only decode are recorded and replayed
  // Launch a step before the tokens of the last one are read. Unset: where the launch returns before it is computed,
  // that is on a CUDA device. Changes no token.
  std::optional<bool> overlap;
  bool random_weights = false;  // none are read, they are made up: for measuring, from a config.json alone
  // Of keys with equal index scores DeepSeek-V3.2's indexer takes the later ones, not the earlier: for a comparison
  // that must know which results hang on such a choice.
  bool later_ties = false;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;  // of loading
};

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Exactly one of prompt, prompt_ids and messages.
struct GenerationRequest {
  std::string prompt;               // text, encoded with the special tokens its tokenizer adds
  std::vector<int32_t> prompt_ids;  // token ids, as they are
  std::vector<Message> messages;    // a conversation, through the model's chat template
  SamplingParams sampling;
};

enum class Finish : uint8_t { none, stop, length, cancelled, error };

struct Token {
  int32_t id = 0;
  std::optional<float> logprob;                // with SamplingParams::logprobs
  std::vector<std::pair<int32_t, float>> top;  // best tokens and their log-probabilities
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  double seconds_to_first_token = 0;  // from submit()
  double seconds = 0;                 // from submit() to the end
};

// Called on the engine's thread, in order: one event for each new token, and a last one with `finish` set. Must not
// block for long, and may call submit() and cancel(). With SamplingParams::n above 1 the samples' events come mixed,
// and each sample has a last one.
struct Event {
  uint64_t request = 0;
  int32_t sample = 0;         // which of the request's texts: 0 to n - 1
  std::string text;           // valid UTF-8; may be empty while a character or a stop string is incomplete
  std::vector<Token> tokens;  // what was chosen since the last event
  Finish finish = Finish::none;
  std::string error;  // with Finish::error
  Usage usage;        // with finish
};
using EventCallback = std::function<void(const Event&)>;

struct Submitted {
  uint64_t id = 0;
  std::string error;  // why the request was refused; then no callback comes
  explicit operator bool() const { return error.empty(); }
};

struct CacheStats {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;
  int64_t preemptions = 0;
};

class MEDLEY_API Engine {
 public:
  // `model` is a folder in the layout of a Hugging Face checkpoint, or a GGUF file. Throws std::runtime_error with what
  // is wrong, where, and what would work. Files are read through a mapping: the first load installs a handler of SIGBUS
  // that turns a file cut short meanwhile into such an error and passes every other SIGBUS on to the handler before it.
  static std::unique_ptr<Engine> load(const std::filesystem::path& model, const EngineOptions& options = {});
  virtual ~Engine() = default;  // cancels what is running

  // Thread-safe. Refused at once when the request can never run (the reason says why). The n samples of a request are
  // scheduled one by one, so n may be more than max_running; each computes the prompt itself.
  virtual Submitted submit(GenerationRequest request, EventCallback callback) = 0;
  // All of its samples that have not ended. False when they all have.
  virtual bool cancel(uint64_t request) = 0;
  // Returns when everything that was submitted has ended.
  virtual void wait() = 0;

  // Defaults of generation_config.json, where there is one.
  virtual SamplingParams default_sampling() const = 0;
  virtual std::vector<int32_t> tokenize(const std::string& text) const = 0;
  virtual std::string detokenize(const std::vector<int32_t>& ids) const = 0;
  virtual CacheStats cache() const = 0;
  // "cpu", or "cuda (NVIDIA H200)".
  virtual std::string backend() const = 0;
  // "avx512.linear x f32, weight bf16 [192, 64]": which kernels were chosen.
  virtual std::vector<std::string> kernels() const = 0;

 protected:
  Engine() = default;
};

}  // namespace medley
