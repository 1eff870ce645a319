// medley run -i: a conversation, line by line.
#pragma once

#include "cli/run_options.h"
#include "cli/terminal.h"

namespace medley::cli {

// Returns the exit code when stdin ends.
int chat(const RunOptions& options, Engine& engine, Terminal& terminal);

}  // namespace medley::cli
