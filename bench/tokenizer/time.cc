// Times encoding on one thread, a round at a time, so that a script can alternate it with another program's.
//   tokenizer_time MODEL FILE    FILE: texts, each ended by a zero byte
// Each line of stdin asks for a round: "encode" prints seconds and tokens, "load" seconds.
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "tokenizer/tokenizer.h"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(const char* model, const char* file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(stream), {});
  std::vector<std::string> texts;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    texts.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  std::optional<medley::Tokenizer> tokenizer;
  for (std::string command; std::getline(std::cin, command);) {
    const auto start = std::chrono::steady_clock::now();
    if (command == "load") {
      tokenizer.emplace(medley::Tokenizer::load(model));
      std::cout << seconds_since(start) << std::endl;
    } else {
      if (!tokenizer) tokenizer.emplace(medley::Tokenizer::load(model));
      const auto begin = std::chrono::steady_clock::now();
      size_t tokens = 0;
      for (const std::string& text : texts) tokens += tokenizer->encode(text, false).size();
      std::cout << seconds_since(begin) << " " << tokens << std::endl;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: tokenizer_time MODEL FILE\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
