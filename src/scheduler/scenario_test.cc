// Runs every tests/scenarios/*.scenario: a script of requests, steps and what each step must be. The format is
// described in tests/scenarios/README.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "scheduler/fake_runner.h"
#include "scheduler/scheduler.h"

namespace medley {
namespace {

constexpr int32_t eos = 1 << 20;  // no token of FakeRunner's

// A statement's words after the first, with the key=value ones apart. Each must be used.
class Words {
 public:
  explicit Words(std::istringstream& line) {
    for (std::string word; line >> word;) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        plain_.push_back(word);
      } else {
        values_[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
  }

  std::string next() {
    if (plain_.empty()) fail("a word is missing");
    const std::string word = plain_.front();
    plain_.erase(plain_.begin());
    return word;
  }
  std::optional<std::string> text(const std::string& key) {
    const auto node = values_.extract(key);
    return node.empty() ? std::nullopt : std::optional(node.mapped());
  }
  int64_t number(const std::string& key, std::optional<int64_t> otherwise = std::nullopt) {
    const auto value = text(key);
    if (!value && !otherwise) fail("{}= is missing", key);
    return value ? std::stoll(*value) : *otherwise;
  }
  std::vector<std::string> rest() { return std::exchange(plain_, {}); }
  void check_all_used() const {
    if (!plain_.empty()) fail("unexpected \"{}\"", plain_.front());
    if (!values_.empty()) fail("unexpected \"{}=\"", values_.begin()->first);
  }

 private:
  std::vector<std::string> plain_;
  std::map<std::string, std::string> values_;
};

class Scenario {
 public:
  void run(const std::filesystem::path& path) {
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      SCOPED_TRACE(fmt::format("{}:{}: {}", path.filename().string(), number, line));
      line = line.substr(0, line.find('#'));
      std::istringstream words(line);
      std::string statement;
      if (!(words >> statement)) continue;
      try {
        execute(statement, words);
      } catch (const std::exception& error) {
        FAIL() << error.what();
      }
      if (testing::Test::HasFailure()) return;
    }
    SCOPED_TRACE(path.filename().string() + ": at the end");
    ASSERT_TRUE(scheduler_) << "no scheduler";
    EXPECT_FALSE(scheduler_->has_work());
    EXPECT_EQ(arena_->free_extents(), arena_->geometry().extents);
  }

 private:
  void execute(const std::string& statement, std::istringstream& line) {
    if (statement == "step" || statement == "refuse") {  // these end in free text
      std::string text;
      std::getline(line, text);
      return statement == "step" ? step(text) : refuse(text);
    }
    Words words(line);
    if (statement == "arena") {
      geometry_ = {words.number("extent_bytes"), int32_t(words.number("extents"))};
    } else if (statement == "group") {
      specs_.push_back(group(words));
    } else if (statement == "scheduler") {
      make_scheduler(words);
    } else if (statement == "add") {
      EXPECT_EQ(add(words), std::nullopt);
    } else if (statement == "cancel") {
      EXPECT_TRUE(scheduler_->cancel(id(words.next())));
      collect();
    } else if (statement == "stop") {
      EXPECT_TRUE(scheduler_->end(id(words.next()), FinishReason::stop));
      collect();
    } else if (statement == "decode") {
      decode(words);
    } else if (statement == "blocks") {
      blocks(words);
    } else if (statement == "states") {
      states(words);
    } else if (statement == "slots") {
      for (const std::string& name : words.rest()) fail("slots wants name=slot, not {}", name);
      for (const auto& [name, request] : ids_) {
        const auto slot = words.text(name);
        if (slot) {
          EXPECT_EQ(find(name).sampling_slot, std::stoi(*slot)) << name;
        }
      }
    } else if (statement == "free") {
      EXPECT_EQ(arena_->free_extents(), std::stoi(words.next()));
    } else {
      fail("unknown statement");
    }
    words.check_all_used();
  }

  static KvCacheSpec group(Words& words) {
    const std::string kind = words.next();
    KvCacheSpec spec;
    spec.name = words.next();
    spec.num_layers = int32_t(words.number("layers"));
    if (kind == "state") {
      spec.kind = CacheKind::state;
      spec.row_bytes = words.number("bytes");
      return spec;
    }
    if (kind != "full" && kind != "window") fail("unknown kind {}", kind);
    spec.tokens_per_block = int32_t(words.number("block"));
    spec.row_bytes = words.number("row");
    if (kind == "window") {
      spec.kind = CacheKind::window;
      spec.window = int32_t(words.number("window"));
    }
    return spec;
  }

  void make_scheduler(Words& words) {
    SchedulerConfig config;
    config.max_batched_tokens = words.number("max_batched_tokens");
    config.max_running = int32_t(words.number("max_running"));
    config.max_chunk = words.number("max_chunk", 0);
    config.max_model_len = words.number("max_model_len", 0);
    config.eos_token_ids = {eos};
    arena_ = std::make_unique<Arena>(geometry_);
    cache_ = std::make_unique<KvCacheCoordinator>(specs_, *arena_, config.max_step_tokens());
    scheduler_ = std::make_unique<Scheduler>(config, *cache_);
    runner_ = std::make_unique<FakeRunner>(specs_, geometry_);
  }

  std::optional<std::string> add(Words& words) {
    const std::string name = words.next();
    Request request;
    request.id = ids_.size() + 1;
    for (int64_t i = words.number("prompt"); i > 0; --i) request.prompt.push_back(int32_t(request.id * 1000 + i));
    request.sampling.max_tokens = int32_t(words.number("max_tokens"));
    eos_at_[request.id] = words.number("eos_at", 0);
    const std::string logits = words.text("logits").value_or("none");
    request.logits = logits == "all" ? LogitsWanted::all : logits == "last" ? LogitsWanted::last : LogitsWanted::none;
    ids_[name] = request.id;
    names_[request.id] = name;
    return scheduler_->add(std::move(request));
  }

  void refuse(const std::string& text) {
    const size_t colon = text.find(" : ");
    if (colon == std::string::npos) fail("refuse wants : and a part of the message");
    std::istringstream line(text.substr(0, colon));
    Words words(line);
    const auto refusal = add(words);
    words.check_all_used();
    ASSERT_TRUE(refusal) << "was accepted";
    EXPECT_NE(refusal->find(text.substr(colon + 3)), std::string::npos) << *refusal;
  }

  // "rows ; preempts names ; cancels names ; finishes name reason, ...": `cancels` acts while the step runs, the rest
  // is compared with what happened.
  void step(const std::string& text) {
    std::vector<std::string> expected;
    std::vector<std::string> cancels;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ';');) {
      std::istringstream words(part);
      std::vector<std::string> list;
      for (std::string word; words >> word;) list.push_back(word);
      expected.push_back(join(list, " "));
      if (!list.empty() && list[0] == "cancels") cancels.assign(list.begin() + 1, list.end());
    }
    EXPECT_EQ(run_step(cancels), join(expected, " ; "));
  }

  void decode(Words& words) {
    const int64_t steps = std::stoll(words.next());
    const std::vector<std::string> names = words.rest();
    for (int64_t i = 0; i < steps; ++i) {
      std::vector<std::string> rows;
      for (const std::string& name : names) rows.push_back(fmt::format("{} {}+1*", name, find(name).computed));
      EXPECT_EQ(run_step({}), join(rows, ", ")) << "step " << i + 1 << " of " << steps;
    }
  }

  std::string run_step(const std::vector<std::string>& cancels) {
    std::map<RequestId, int32_t> before;
    const auto each = [&](const auto& visit) {
      for (const auto* list : {&scheduler_->running(), &scheduler_->waiting()}) {
        for (const Request& request : *list) visit(request);
      }
    };
    each([&](const Request& request) { before[request.id] = request.preemptions; });
    plan_ = scheduler_->schedule();
    std::vector<std::string> rows;
    for (const PlanRow& row : plan_.rows) {
      rows.push_back(fmt::format("{} {}+{}{}{}", names_.at(row.request), row.computed, row.new_tokens,
                                 row.sample ? "*" : "", row.logits == LogitsWanted::all ? " all" : ""));
    }
    std::string happened = join(rows, ", ");
    std::vector<std::string> preempted;
    each([&](const Request& request) {
      if (request.preemptions > before.at(request.id)) preempted.push_back(names_.at(request.id));
    });
    if (!preempted.empty()) happened += " ; preempts " + join(preempted, " ");

    StepResult result = runner_->run(plan_);
    EXPECT_EQ(runner_->error, "");
    for (Sampled& sampled : result.sampled) {
      const auto outputs = int64_t(scheduler_->find(sampled.request)->outputs.size());
      if (outputs + 1 == eos_at_[sampled.request]) sampled.token = eos;
    }
    for (const std::string& name : cancels) EXPECT_TRUE(scheduler_->cancel(id(name)));
    if (!cancels.empty()) happened += " ; cancels " + join(cancels, " ");
    scheduler_->finish(result);
    EXPECT_EQ(scheduler_->check_integrity(), "");
    const std::string finished = collect();
    return finished.empty() ? happened : happened + " ; finishes " + finished;
  }

  // What has finished, each with the tokens it must have.
  std::string collect() {
    std::vector<std::string> finished;
    for (const Request& request : scheduler_->take_finished()) {
      static const std::map<FinishReason, std::string> reasons{{FinishReason::stop, "stop"},
                                                               {FinishReason::length, "length"},
                                                               {FinishReason::cancelled, "cancelled"},
                                                               {FinishReason::error, "error"}};
      finished.push_back(names_.at(request.id) + " " + reasons.at(request.finish_reason));
      std::vector<int32_t> tokens = request.prompt;
      for (int32_t token : request.outputs) {
        if (token != eos) {
          EXPECT_EQ(token, FakeRunner::next_token(tokens)) << names_.at(request.id);
        }
        tokens.push_back(token);
      }
    }
    return join(finished, ", ");
  }

  // A group's number and a request's row in the last step.
  std::pair<size_t, size_t> locate(Words& words) const {
    const std::string group_name = words.next();
    const std::string request_name = words.next();
    const auto group =
        std::find_if(specs_.begin(), specs_.end(), [&](const KvCacheSpec& spec) { return spec.name == group_name; });
    if (group == specs_.end()) fail("no group {}", group_name);
    const auto row = std::find_if(plan_.rows.begin(), plan_.rows.end(),
                                  [&](const PlanRow& candidate) { return candidate.request == id(request_name); });
    if (row == plan_.rows.end()) fail("{} has no row in the last step", request_name);
    return {size_t(group - specs_.begin()), size_t(row - plan_.rows.begin())};
  }

  void blocks(Words& words) {
    const auto [g, r] = locate(words);
    const PlanGroup& group = plan_.groups[g];
    std::vector<std::string> actual;
    for (int32_t b = group.block_offsets.at(r); b < group.block_offsets.at(r + 1); ++b) {
      actual.push_back(std::to_string(group.blocks[size_t(b)]));
    }
    EXPECT_EQ(join(actual, " "), join(words.rest(), " "));
  }

  void states(Words& words) {
    const auto [g, r] = locate(words);
    std::vector<std::string> in, out;
    for (size_t at = r; at < plan_.groups[g].state_out.size(); at += plan_.rows.size()) {
      in.push_back(std::to_string(plan_.groups[g].state_in[at]));
      out.push_back(std::to_string(plan_.groups[g].state_out[at]));
    }
    EXPECT_EQ(join(in, " ") + " -> " + join(out, " "), join(words.rest(), " "));
  }

  RequestId id(const std::string& name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) fail("no request {}", name);
    return found->second;
  }
  const Request& find(const std::string& name) const {
    const Request* request = scheduler_->find(id(name));
    if (request == nullptr) fail("request {} is neither waiting nor running", name);
    return *request;
  }

  std::vector<KvCacheSpec> specs_;
  ArenaGeometry geometry_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<KvCacheCoordinator> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<FakeRunner> runner_;
  StepPlan plan_;
  std::map<std::string, RequestId> ids_;
  std::map<RequestId, std::string> names_;
  std::map<RequestId, int64_t> eos_at_;
};

const std::filesystem::path folder = std::filesystem::path(MEDLEY_SOURCE_DIR) / "tests/scenarios";

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".scenario") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ScenarioTest : public testing::TestWithParam<std::string> {};

TEST_P(ScenarioTest, GoesAsWritten) {
  Scenario().run(folder / (GetParam() + ".scenario"));
}

INSTANTIATE_TEST_SUITE_P(Files, ScenarioTest, testing::ValuesIn(scenario_names()),
                         [](const auto& scenario) { return scenario.param; });

}  // namespace
}  // namespace medley
