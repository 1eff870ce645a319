// The public Engine: a thread around EngineCore, text around its tokens, events to callbacks.
//
// The core belongs to the engine's thread alone. What other threads ask (submit, cancel) is a call that this thread
// makes between two steps; callbacks run on it too, between steps, so they may ask the same things directly.
#include "medley/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "engine/engine_core.h"
#include "engine/engine_text.h"
#include "engine/generation_config.h"
#include "models/model_source.h"

namespace medley {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Finish finish_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return Finish::stop;
    case FinishReason::length: return Finish::length;
    case FinishReason::cancelled: return Finish::cancelled;
    default: return Finish::error;
  }
}

// One sample of a request between submit() and its last event. To the core each sample is a request of its own, with
// the id request + sample.
struct Active {
  uint64_t request = 0;
  int32_t sample = 0;
  std::shared_ptr<EventCallback> callback;  // of all its samples
  RequestText text;
  SamplingParams sampling;
  Clock::time_point submitted;
  Usage usage;
  std::string failure;  // of its callback or its text: it gets its last event and no other
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(const std::filesystem::path& model, const EngineOptions& options)
      : EngineImpl(*open_model(model), options) {}

  EngineImpl(const ModelSource& model, const EngineOptions& options)
      : text_(model),
        defaults_(read_generation_config(model.generation_config(), model.generation_origin())),
        core_(EngineCore::load(model, options)) {
    count_cache();
    thread_ = std::thread([this] { run(); });
  }

  ~EngineImpl() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  Submitted submit(GenerationRequest request, EventCallback callback) override;
  bool cancel(uint64_t request) override {
    return on_engine([&] { return cancel_samples(request); });
  }
  void wait() override;

  SamplingParams default_sampling() const override { return defaults_; }
  std::vector<int32_t> tokenize(const std::string& text) const override { return text_.encode(text); }
  std::string detokenize(const std::vector<int32_t>& ids) const override { return text_.decode(ids); }
  std::vector<std::string> kernels() const override { return core_->kernels(); }
  std::string backend() const override { return core_->backend(); }
  CacheStats cache() const override {
    const std::lock_guard lock(mutex_);
    return cache_;
  }

 private:
  bool on_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  bool going_away() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }
  template <class Call>
  std::invoke_result_t<Call> on_engine(const Call& call);

  bool cancel_samples(uint64_t request);
  void run();
  bool take_calls(std::vector<std::function<void()>>& calls);
  void step();
  void deliver();
  void deliver(Event& event);
  void fail_all(const std::string& why);

  bool on_token(const Sampled& sampled);
  void on_finish(const Request& request, const std::string& error);
  bool ends_text(const SamplingParams& sampling, int32_t token) const;
  void count_cache();

  EngineText text_;
  SamplingParams defaults_;

  // Touched by the engine's thread only, once it runs.
  std::unique_ptr<EngineCore> core_;
  std::unordered_map<uint64_t, Active> active_;
  std::vector<Event> events_;  // of the step, not yet delivered
  uint64_t next_id_ = 1;
  std::string broken_;  // why no step can run any more

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_, idle_;
  std::vector<std::function<void()>> calls_;
  bool stopping_ = false;
  size_t unfinished_ = 0;  // size of active_
  CacheStats cache_;

  std::thread thread_;
};

// Runs `call` on the engine's thread and returns what it returns.
template <class Call>
std::invoke_result_t<Call> EngineImpl::on_engine(const Call& call) {
  if (on_own_thread()) return call();
  const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Call>()>>(call);
  auto result = task->get_future();
  {
    const std::lock_guard lock(mutex_);
    calls_.emplace_back([task] { (*task)(); });
  }
  wake_.notify_all();
  return result.get();
}

Submitted EngineImpl::submit(GenerationRequest request, EventCallback callback) {
  const Clock::time_point now = Clock::now();
  if (std::string problem = request.sampling.problem(core_->info().vocab_size); !problem.empty()) return {0, problem};
  EngineText::Prompt prompt = text_.read(request);
  if (!prompt.error.empty()) return {0, prompt.error};
  const int32_t samples = std::exchange(request.sampling.n, 1);
  const auto shared_callback = std::make_shared<EventCallback>(std::move(callback));
  return on_engine([&]() -> Submitted {
    if (going_away()) return {0, "the engine is going away"};
    if (!broken_.empty()) return {0, "the engine has stopped: " + broken_};
    const uint64_t id = next_id_;
    for (int32_t sample = 0; sample < samples; ++sample) {
      Request queued;
      queued.id = id + uint64_t(sample);
      queued.prompt = prompt.ids;
      queued.sampling = request.sampling;
      queued.sampling.sample += sample;
      // What is refused is refused for its lengths, which are all the same: the first says it for all.
      const std::optional<std::string> refusal = core_->add(std::move(queued));
      MEDLEY_CHECK(!refusal || sample == 0);
      if (refusal) return {0, *refusal};
      Active active{id, sample, shared_callback, RequestText(text_, request.sampling), request.sampling, now, {}, {}};
      active.usage.prompt_tokens = int64_t(prompt.ids.size());
      active_.emplace(id + uint64_t(sample), std::move(active));
    }
    next_id_ += uint64_t(samples);
    const std::lock_guard lock(mutex_);
    unfinished_ = active_.size();
    return {id, {}};
  });
}

bool EngineImpl::cancel_samples(uint64_t request) {
  bool any = false;
  for (const auto& [id, active] : active_)
    if (active.request == request) any |= core_->cancel(id);
  return any;
}

void EngineImpl::wait() {
  if (on_own_thread()) throw Error("Engine::wait() was called from a callback, where it would wait for itself");
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return unfinished_ == 0; });
}

// Sleeps until there is something to do. False: the engine is going away.
bool EngineImpl::take_calls(std::vector<std::function<void()>>& calls) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return stopping_ || !calls_.empty() || !active_.empty(); });
  calls.swap(calls_);
  return !stopping_;
}

void EngineImpl::run() {
  std::vector<std::function<void()>> calls;
  for (bool going_on = true; going_on || !active_.empty();) {
    going_on = take_calls(calls);
    for (const auto& call : calls) call();
    calls.clear();
    if (!going_on)
      for (const auto& [id, active] : active_) core_->cancel(id);
    if (active_.empty()) continue;
    step();
    deliver();
  }
}

void EngineImpl::step() {
  StepObserver observer;
  observer.on_step = [this](const StepPlan&) { count_cache(); };  // while the requests hold it
  observer.on_token = [this](const Sampled& sampled) { return on_token(sampled); };
  observer.on_finish = [this](const Request& request, const std::string& error) { on_finish(request, error); };
  try {
    core_->step(observer);
  } catch (const std::exception& error) {
    fail_all(error.what());
  }
  count_cache();
}

bool EngineImpl::on_token(const Sampled& sampled) {
  Active& active = active_.at(sampled.request);
  if (active.usage.generated_tokens++ == 0) active.usage.seconds_to_first_token = seconds_since(active.submitted);
  Event event{.request = active.request, .sample = active.sample};
  Token& token = event.tokens.emplace_back(Token{.id = sampled.token});
  if (active.sampling.logprobs) {
    token.logprob = sampled.logprob;
    for (const TokenLogprob& top : sampled.top) token.top.emplace_back(top.token, top.logprob);
  }
  RequestText::Piece piece;
  try {
    if (!ends_text(active.sampling, sampled.token)) piece = active.text.push(sampled.token);
  } catch (const std::exception& error) {
    active.failure = error.what();
    piece.stopped = true;
  }
  event.text = std::move(piece.text);
  events_.push_back(std::move(event));
  return piece.stopped;
}

// The token that ends a request is no part of its text.
bool EngineImpl::ends_text(const SamplingParams& sampling, int32_t token) const {
  const auto among = [token](const std::vector<int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  return (!sampling.ignore_eos && among(core_->eos_ids())) || among(sampling.stop_token_ids);
}

void EngineImpl::on_finish(const Request& request, const std::string& error) {
  Active& active = active_.at(request.id);
  active.usage.seconds = seconds_since(active.submitted);
  events_.push_back({.request = active.request,
                     .sample = active.sample,
                     .text = active.failure.empty() ? active.text.finish() : "",
                     .finish = finish_of(request.finish_reason),
                     .error = error,
                     .usage = active.usage});
}

void EngineImpl::fail_all(const std::string& why) {
  broken_ = why;
  events_.clear();
  for (auto& [id, active] : active_)
    events_.push_back({.request = active.request,
                       .sample = active.sample,
                       .finish = Finish::error,
                       .error = why,
                       .usage = active.usage});
}

void EngineImpl::deliver() {
  // A callback may submit and cancel, which makes no events before the next step.
  for (Event& event : events_) deliver(event);
  events_.clear();
}

void EngineImpl::deliver(Event& event) {
  const uint64_t id = event.request + uint64_t(event.sample);
  Active& active = active_.at(id);
  const bool last = event.finish != Finish::none;
  if (!active.failure.empty()) {
    if (!last) return;
    event.finish = Finish::error;
    event.error = active.failure;
    event.text.clear();
  }
  const auto threw = [&](const std::string& what) {
    for (auto& [other, sample] : active_)
      if (sample.request == event.request && (other != id || !last)) sample.failure = "its callback threw: " + what;
    cancel_samples(event.request);
  };
  try {
    if (*active.callback) (*active.callback)(event);
  } catch (const std::exception& error) {
    threw(error.what());
  } catch (...) {
    threw("not a std::exception");
  }
  if (!last) return;
  active_.erase(id);
  {
    const std::lock_guard lock(mutex_);
    unfinished_ = active_.size();
  }
  idle_.notify_all();
}

void EngineImpl::count_cache() {
  const CacheUsage usage = core_->cache_usage();
  const std::lock_guard lock(mutex_);
  cache_.capacity_bytes = uint64_t(usage.capacity_bytes);
  cache_.used_bytes = uint64_t(usage.in_use_bytes + usage.reserved_bytes);
  cache_.peak_bytes = std::max(cache_.peak_bytes, cache_.used_bytes);
  cache_.preemptions = core_->scheduler().preemptions();
}

}  // namespace

std::unique_ptr<Engine> Engine::load(const std::filesystem::path& model, const EngineOptions& options) {
  return std::make_unique<EngineImpl>(model, options);
}

}  // namespace medley
