// A program that times others' kernels on the cases of this benchmark (peers.py), run beside it so that the two take
// turns on one device.
//   to it:    a case a line, a name and its numbers: "mla 16 128 4096"
//   from it:  for each, the microseconds and who was timed, "362.1 torch naive"; "-" and why where there is none
// Its first line is "ready".
#pragma once

#include <cstdio>
#include <memory>
#include <string>

namespace medley::bench {

struct PeerTime {
  double us = 0;  // 0: nothing was timed
  std::string who;
};

class Peer {
 public:
  explicit Peer(const std::string& command);  // empty: none
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  PeerTime time(const std::string& what);

 private:
  std::string line();

  struct Close {
    void operator()(FILE* file) const { fclose(file); }
  };
  std::unique_ptr<FILE, Close> to_, from_;
  int process_ = 0;
};

}  // namespace medley::bench
