// What llama.cpp computes for a GGUF file, for tools/gguf_check.py, which compiles it against an installed llama.cpp;
// no part of medley.
//
//   logits FILE tokens        lines of JSON-free text on stdin, each "N\n" and N bytes: prints the token ids of each
//   logits FILE logits OUT    lines of token ids on stdin: writes float32 [tokens, vocab] of each to OUT, one after
//   another logits FILE greedy N      lines of token ids on stdin: prints N greedy tokens, each as id:gap between the
//   two best
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::vector<llama_token> read_ids(const std::string& line) {
  std::vector<llama_token> ids;
  std::istringstream in(line);
  for (llama_token id; in >> id;) ids.push_back(id);
  return ids;
}

llama_context* make_context(llama_model* model) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 1024;
  params.n_batch = params.n_ubatch = 1024;
  params.n_threads = params.n_threads_batch = 2;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.offload_kqv = false;
  return llama_init_from_model(model, params);
}

void decode(llama_context* context, const std::vector<llama_token>& ids, llama_pos begin, bool all) {
  llama_batch batch = llama_batch_init(int32_t(ids.size()), 0, 1);
  batch.n_tokens = int32_t(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.token[i] = ids[i];
    batch.pos[i] = begin + llama_pos(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = all || i + 1 == ids.size();
  }
  if (llama_decode(context, batch) != 0) {
    std::fprintf(stderr, "llama_decode failed\n");
    std::exit(1);
  }
  llama_batch_free(batch);
}

void print_tokens(const llama_vocab* vocab) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string text(size_t(std::stoul(line)), '\0');
    std::cin.read(text.data(), std::streamsize(text.size()));
    std::cin.ignore(1);
    std::vector<llama_token> ids(text.size() + 16);
    const int count =
        llama_tokenize(vocab, text.data(), int32_t(text.size()), ids.data(), int32_t(ids.size()), true, true);
    for (int i = 0; i < count; ++i) std::printf("%s%d", i > 0 ? " " : "", ids[size_t(i)]);
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR || std::getenv("LLAMA_VERBOSE")) std::fputs(text, stderr);
      },
      nullptr);
  const std::string mode = argv[2];
  llama_model_params params = llama_model_default_params();
  params.vocab_only = mode == "tokens";
  params.use_extra_bufts = false;  // no repacked weights, whose products round otherwise
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  if (mode == "tokens") {
    print_tokens(vocab);
    return 0;
  }
  const int words = llama_vocab_n_tokens(vocab);
  std::FILE* out = mode == "logits" ? std::fopen(argv[3], "wb") : nullptr;
  std::string line;
  while (std::getline(std::cin, line)) {
    llama_context* context = make_context(model);
    if (context == nullptr) return 1;
    const std::vector<llama_token> prompt = read_ids(line);
    decode(context, prompt, 0, mode == "logits");
    if (mode == "logits") {
      for (size_t i = 0; i < prompt.size(); ++i)
        std::fwrite(llama_get_logits_ith(context, int32_t(i)), sizeof(float), size_t(words), out);
    } else {
      auto position = llama_pos(prompt.size());
      for (int step = 0; step < std::atoi(argv[3]); ++step) {
        const float* logits = llama_get_logits_ith(context, -1);
        const auto best = llama_token(std::max_element(logits, logits + words) - logits);
        float second = -1e30f;
        for (int i = 0; i < words; ++i)
          if (i != best) second = std::max(second, logits[i]);
        std::printf("%s%d:%.6g", step > 0 ? " " : "", best, logits[best] - second);
        decode(context, {best}, position++, false);
      }
      std::printf("\n");
    }
    llama_free(context);
  }
  if (out != nullptr) std::fclose(out);
  llama_model_free(model);
  return 0;
}
