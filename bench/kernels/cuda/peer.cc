#include "peer.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.h"

namespace medley::bench {
namespace {

using Pipe = std::array<int, 2>;

Pipe make_pipe() {
  Pipe ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("[bench] no pipe to the peers' program: {}", std::strerror(errno));
  return ends;
}

}  // namespace

Peer::Peer(const std::string& command) {
  if (command.empty()) return;
  signal(SIGPIPE, SIG_IGN);  // a program that ended is told about with words
  const Pipe cases = make_pipe(), times = make_pipe();
  process_ = fork();
  if (process_ < 0) fail("[bench] the peers' program was not started: {}", std::strerror(errno));
  if (process_ == 0) {
    dup2(cases[0], STDIN_FILENO);
    dup2(times[1], STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  close(cases[0]);
  close(times[1]);
  to_.reset(fdopen(cases[1], "w"));
  from_.reset(fdopen(times[0], "r"));
  if (const std::string first = line(); first != "ready")
    fail("[bench] \"{}\" began with \"{}\", not with \"ready\"", command, first);
}

Peer::~Peer() {
  to_.reset();  // it ends when nobody asks any more
  from_.reset();
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

std::string Peer::line() {
  std::string text;
  for (int c = 0; (c = fgetc(from_.get())) != '\n'; text += char(c))
    if (c == EOF) fail("[bench] the peers' program ended; what it said is on stderr");
  return text;
}

PeerTime Peer::time(const std::string& what) {
  if (!to_ || what.empty()) return {};
  fprintf(to_.get(), "%s\n", what.c_str());
  fflush(to_.get());
  const std::string answer = line();
  const size_t space = answer.find(' ');
  if (space == std::string::npos) fail("[bench] the peers' program said \"{}\" to \"{}\"", answer, what);
  PeerTime time{.us = 0, .who = answer.substr(space + 1)};
  if (answer[0] != '-') time.us = std::strtod(answer.c_str(), nullptr);
  return time;
}

}  // namespace medley::bench
