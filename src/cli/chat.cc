#include "cli/chat.h"

#include <unistd.h>

#include <iostream>

#include "base/error.h"
#include "cli/command.h"
#include "cli/generate.h"

namespace medley::cli {
namespace {

constexpr const char* help =
    "Type a line and press Enter. /reset forgets the conversation, /quit or Ctrl-D ends it, Ctrl-C cuts an answer "
    "short.";

class Conversation {
 public:
  Conversation(const RunOptions& options, Engine& engine, Terminal& terminal)
      : options_(options), engine_(engine), terminal_(terminal) {
    reset();
  }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  void ask(const std::string& line) {
    messages_.push_back({"user", line});
    GenerationRequest request;
    request.messages = messages_;
    request.sampling = options_.sampling(engine_.default_sampling());
    Generated answer;
    try {
      answer = generate(engine_, std::move(request), !options_.max_tokens,
                        [](const Event& event) { std::cout << event.text << std::flush; });
    } catch (const Error&) {  // too long by now, most likely: the conversation before this line is still good
      messages_.pop_back();
      throw;
    }
    std::cout << "\n" << std::flush;
    messages_.push_back({"assistant", answer.text});
    terminal_.line(figures(answer.usage, engine_));
  }

 private:
  const RunOptions& options_;
  Engine& engine_;
  Terminal& terminal_;
  std::vector<Message> messages_;
};

}  // namespace

int chat(const RunOptions& options, Engine& engine, Terminal& terminal) {
  // The prompt sign is for people: a script that pipes lines in reads answers only.
  const bool prompting = isatty(STDIN_FILENO) == 1 && terminal.watched();
  if (prompting) terminal.line(help);
  Conversation conversation(options, engine, terminal);
  std::string line;
  const auto ask = [&](const std::string& question) {
    try {
      conversation.ask(question);
    } catch (const Error& error) {
      if (!prompting) throw;
      terminal.line(fmt::format("medley: {}\n/reset starts a new conversation", error.what()));
    }
  };
  if (options.prompt) ask(*options.prompt);
  for (;;) {
    if (prompting) terminal.text("> ");
    if (!std::getline(std::cin, line) || line == "/quit") break;
    if (line == "/reset") {
      conversation.reset();
    } else if (line == "/help") {
      terminal.line(help);
    } else if (line.find_first_not_of(" \t\r") != std::string::npos) {
      ask(line);
    }
  }
  if (prompting) terminal.text("\n");
  return done;
}

}  // namespace medley::cli
