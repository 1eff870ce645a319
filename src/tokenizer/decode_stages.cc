#include "tokenizer/decode_stages.h"

#include <algorithm>

#include "tokenizer/byte_level.h"
#include "tokenizer/unicode.h"

namespace medley::decode {
namespace {

constexpr std::string_view replacement_character = "\xef\xbf\xbd";

// The byte that "<0xE4>" stands for, -1 for other tokens.
int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at; (at = text.find(from)) != std::string_view::npos; text.remove_prefix(at + from.size()))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

}  // namespace

void JoinWithSpaces::push(std::string_view token, const TextSink& out) {
  if (!first_) out(" ");
  first_ = false;
  out(token);
}

void ByteLevel::push(std::string_view token, const TextSink& out) {
  const auto bytes = byte_level::decoded(token);
  held_ += bytes ? std::string_view(*bytes) : token;
  const size_t tail = unicode::incomplete_tail(held_);
  const std::string_view sure = std::string_view(held_).substr(0, held_.size() - tail);
  if (sure.empty()) return;
  unicode::is_valid(sure) ? out(sure) : out(unicode::repaired(sure));
  held_.erase(0, sure.size());
}

void ByteLevel::finish(const TextSink& out) {
  if (!held_.empty()) out(unicode::repaired(held_));
  held_.clear();
}

void ByteFallback::push(std::string_view token, const TextSink& out) {
  const int byte = fallback_byte(token);
  if (byte >= 0) {
    run_ += char(byte);
    return;
  }
  finish(out);
  out(token);
}

void ByteFallback::finish(const TextSink& out) {
  if (run_.empty()) return;
  if (unicode::is_valid(run_))
    out(run_);
  else
    for (size_t i = 0; i < run_.size(); ++i) out(replacement_character);
  run_.clear();
}

void BytePieces::push(std::string_view token, const TextSink& out) {
  const int byte = fallback_byte(token);
  if (byte >= 0) held_ += char(byte);
  flush(byte < 0, out);
  if (byte < 0) out(token);
}

void BytePieces::flush(bool at_end, const TextSink& out) {
  std::string_view rest = held_;
  while (!rest.empty() && (at_end || unicode::incomplete_tail(rest) < rest.size())) {
    const unicode::Char c = unicode::next(rest);
    out(c.valid ? rest.substr(0, c.bytes) : replacement_character);
    rest.remove_prefix(c.valid ? c.bytes : 1);
  }
  held_.erase(0, held_.size() - rest.size());
}

void ReplaceEach::push(std::string_view token, const TextSink& out) {
  RegexMatches matches(pattern_, token);
  Regex::Match match;
  std::string text;
  size_t done = 0;
  while (matches.next(match)) {
    text.append(token.substr(done, match.begin - done)).append(content_);
    done = match.end;
  }
  out(text.append(token.substr(done)));
}

void ReplaceText::push(std::string_view part, const TextSink& out) {
  held_ += part;
  std::string text;
  size_t done = 0;
  for (size_t at; (at = held_.find(from_, done)) != std::string::npos; done = at + from_.size())
    text.append(held_, done, at - done).append(to_);
  // Keep the longest end that may be the beginning of another match.
  size_t keep = std::min(held_.size() - done, from_.size() - 1);
  while (keep > 0 && held_.compare(held_.size() - keep, keep, from_, 0, keep) != 0) --keep;
  text.append(held_, done, held_.size() - keep - done);
  held_.erase(0, held_.size() - keep);
  if (!text.empty()) out(text);
}

void ReplaceText::finish(const TextSink& out) {
  if (!held_.empty()) out(held_);
  held_.clear();
}

void StripEach::push(std::string_view token, const TextSink& out) {
  for (size_t i = 0; i < start_ && token.starts_with(character_); ++i) token.remove_prefix(character_.size());
  for (size_t i = 0; i < stop_ && token.ends_with(character_); ++i) token.remove_suffix(character_.size());
  out(token);
}

void StripText::push(std::string_view part, const TextSink& out) {
  if (part.empty()) return;
  for (; start_ > 0 && part.starts_with(character_); --start_) part.remove_prefix(character_.size());
  if (part.empty()) return;
  start_ = 0;
  std::string_view body = part;
  size_t at_end = 0;
  for (; at_end < stop_ && body.ends_with(character_); ++at_end) body.remove_suffix(character_.size());
  std::string text;
  if (body.empty()) {  // nothing but the character: the oldest held ones are now sure
    const size_t all = held_ + at_end;
    for (held_ = std::min(all, stop_), at_end = all - held_; at_end > 0; --at_end) text += character_;
  } else {
    for (; held_ > 0; --held_) text += character_;
    text += body;
    held_ = at_end;
  }
  if (!text.empty()) out(text);
}

void StripText::finish(const TextSink&) {
  held_ = 0;
}

void Metaspace::push(std::string_view token, const TextSink& out) {
  out(replaced(token, replacement_, drop_ ? "" : " "));
  drop_ = false;
}

}  // namespace medley::decode
