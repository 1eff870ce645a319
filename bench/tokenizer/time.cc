// Times encoding on one thread, a round at a time, so that a script can alternate it with another program's.
//   tokenizer_time MODEL
// Each line of stdin asks for a round: "encode FILE" (texts, each ended by a zero byte) prints seconds and tokens,
// "load" seconds. Seconds are the thread's own: what else the machine does takes no part.
#include <time.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "tokenizer/tokenizer.h"

namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

std::vector<std::string> texts_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(stream), {});
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  return texts;
}

int run(const char* model) {
  std::optional<medley::Tokenizer> tokenizer;
  std::string file;
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "load" || !tokenizer) {
      const double start = thread_seconds();
      tokenizer.emplace(medley::Tokenizer::load(model));
      if (line == "load") std::cout << thread_seconds() - start << std::endl;
    }
    if (!line.starts_with("encode ")) continue;
    if (line.substr(7) != file) texts = texts_of(file = line.substr(7));
    const double start = thread_seconds();
    size_t tokens = 0;
    for (const std::string& text : texts) tokens += tokenizer->encode(text, false).size();
    std::cout << thread_seconds() - start << " " << tokens << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tokenizer_time MODEL\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
