#include "tokenizer/vocabulary.h"

#include <bit>

#include "base/error.h"
#include "tokenizer/hash.h"

namespace medley {

namespace {
constexpr int64_t id_limit = 1 << 24;  // published vocabularies end near 2^18; a hostile id must not size a table
}

size_t Vocabulary::slot_of(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto tag = uint32_t(hash >> 32);
  size_t slot = hash & mask;
  while (slots_[slot].id >= 0 && (slots_[slot].tag != tag || text_of(slots_[slot].id) != token))
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::reserve(size_t count) {
  if (count * 2 > slots_.size()) grow(std::bit_ceil(count * 2));
}

void Vocabulary::grow(size_t slots) {
  slots_.assign(slots, {});
  for (int32_t id = 0; id < end_id(); ++id) {
    if (!spans_[size_t(id)].present) continue;
    const uint64_t hash = hash_bytes(text_of(id));
    slots_[slot_of(text_of(id), hash)] = {id, uint32_t(hash >> 32)};
  }
}

void Vocabulary::add(std::string_view token, int64_t id, const std::string& where) {
  if (id < 0 || id >= id_limit)
    fail("{}: the token \"{}\" has the id {}, not in 0..{}", where, token, id, id_limit - 1);
  if ((count_ + 1) * 2 > slots_.size()) grow(slots_.empty() ? 1024 : slots_.size() * 4);
  const uint64_t hash = hash_bytes(token);
  const size_t slot = slot_of(token, hash);
  if (slots_[slot].id >= 0) fail("{}: the token \"{}\" appears twice", where, token);
  if (id >= end_id()) spans_.resize(size_t(id) + 1);
  if (spans_[size_t(id)].present)
    fail("{}: the tokens \"{}\" and \"{}\" have the same id {}", where, text_of(int32_t(id)), token, id);
  spans_[size_t(id)] = {uint32_t(arena_.size()), uint32_t(token.size()), true};
  arena_ += token;
  slots_[slot] = {int32_t(id), uint32_t(hash >> 32)};
  ++count_;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return std::nullopt;
  const int32_t id = slots_[slot_of(token, hash_bytes(token))].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Vocabulary::token(int32_t id) const {
  if (id < 0 || id >= end_id() || !spans_[size_t(id)].present) return std::nullopt;
  return text_of(id);
}

}  // namespace medley
