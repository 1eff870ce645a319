// What the subcommands share. Each lives in a file of its own, which adds its options to the command line and says what
// to do once they are parsed.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"

namespace CLI {
class App;
}

namespace medley::cli {

enum ExitCode : int { done = 0, failed = 1, wrong_usage = 2, interrupted = 130 };

// What the command line asks for: runs and returns the exit code. May throw.
using Action = std::function<int()>;

void add_run(CLI::App& app, Action& action);
void add_logits(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_bench_kernels(CLI::App& bench, Action& action);

// Options that each are fine but do not go together, or a value that only the whole shows to be wrong.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace medley::cli
