// A tokenizer.json and, after a zero byte, a text: what is encoded decodes, and decodes to the same in pieces.
#include "tokenizer/tokenizer.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tokenizer/stream_decoder.h"

using namespace medley;

namespace {

// Tokenizer::load reads a folder.
class ScratchFolder {
 public:
  ScratchFolder() : path_(std::filesystem::temp_directory_path() / ("medley_fuzz_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void use(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text, true);
  const std::string whole = tokenizer.decode(ids, false);
  StreamDecoder stream(tokenizer, false);
  std::string pieces;
  for (const int32_t id : ids) pieces += stream.push(id);
  pieces += stream.finish();
  if (pieces != whole) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFolder folder;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view json = input.substr(0, end);
  const std::string_view text = end == std::string_view::npos ? "Hello, w\u00f6rld! 12  \n" : input.substr(end + 1);
  std::ofstream(folder.path() / "tokenizer.json", std::ios::binary) << json;
  try {
    use(Tokenizer::load(folder.path()), text);
  } catch (const Error&) {
    // refused
  }
  return 0;
}
