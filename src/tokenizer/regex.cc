#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "tokenizer/unicode.h"

namespace medley {
namespace {

constexpr uint32_t match_limit = 20'000'000;  // backtracks for one match; published patterns need a handful
constexpr uint32_t heap_limit = 256 * 1024;   // KiB, of the interpreter

// What a thread needs to run matches, made once.
struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr);

  MatchState() {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context, match_limit);
    pcre2_set_heap_limit(context, heap_limit);
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
};

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  const uint8_t* first_bytes =
      nullptr;  // bits of the bytes that begin a match, null if not known or a match may be empty
  std::string where, pattern;

  Code() = default;
  Code(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }

  static std::shared_ptr<const Code> compile(const std::string& pattern, const std::string& where, uint32_t options) {
    auto self = std::make_shared<Code>();
    self->where = where;
    self->pattern = pattern;
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
        pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // Ruby's "." and "$" know no other
    pcre2_set_max_pattern_length(context.get(), 64 * 1024);
    self->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options | PCRE2_UTF,
                               &error, &offset, context.get());
    if (!self->code)
      fail("{}: the regex {} does not compile: {} at offset {}", where, pattern, message_of(error), offset);
    self->jit = pcre2_jit_compile(self->code, PCRE2_JIT_COMPLETE) == 0;  // not on every CPU: the interpreter still is
    uint32_t shortest = 0;
    pcre2_pattern_info(self->code, PCRE2_INFO_MINLENGTH, &shortest);
    if (shortest > 0) pcre2_pattern_info(self->code, PCRE2_INFO_FIRSTBITMAP, static_cast<void*>(&self->first_bytes));
    return self;
  }
};

bool pcre_compiles(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

Regex::Regex(std::string_view pattern, const std::string& where)
    : code_(Code::compile(pcre_from_oniguruma(pattern, where), where,
                          // In Ruby "^" and "$" match at every line.
                          PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C)) {}

Regex Regex::literal(std::string_view text, const std::string& where) {
  return Regex(Code::compile(std::string(text), where, PCRE2_LITERAL));
}

bool Regex::find(std::string_view text, size_t from, Match& match) const {
  static thread_local MatchState state;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) result = pcre2_jit_match(code_->code, subject, text.size(), from, 0, state.data, state.context);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its frames on the heap and can go farther
    result = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, state.data,
                         state.context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    fail("{}: the regex {} gave up on a text of {} bytes: {}", code_->where, code_->pattern, text.size(),
         message_of(result));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
  match = {bounds[0], bounds[1]};
  if (match.end < match.begin) match.end = match.begin;  // "\K" in a lookahead can do that
  return true;
}

bool Regex::begins_nowhere_in(std::string_view text) const {
  const uint8_t* bits = code_->first_bytes;
  return bits && std::none_of(text.begin(), text.end(), [&](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return (bits[byte / 8] >> byte % 8 & 1) != 0;
         });
}

bool RegexMatches::next(Regex::Match& match) {
  while (from_ <= text_.size()) {
    if (!regex_.find(text_, from_, match)) return false;
    if (match.begin == match.end && match.end == last_end_) {
      if (from_ >= text_.size()) return false;
      from_ += unicode::length_of(text_[from_]);
      continue;
    }
    from_ = last_end_ = match.end;
    return true;
  }
  return false;
}

}  // namespace medley
