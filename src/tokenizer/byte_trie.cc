#include "tokenizer/byte_trie.h"

#include <algorithm>

namespace medley {
namespace {

// The first eight bytes as a number that orders as they do, which decides most comparisons.
struct Sorted {
  uint64_t front;
  ByteTrie::Entry entry;
};

uint64_t front_of(std::string_view text) {
  uint64_t front = 0;
  for (size_t i = 0; i < 8; ++i) front = front << 8 | (i < text.size() ? static_cast<unsigned char>(text[i]) : 0u);
  return front;
}

std::vector<ByteTrie::Entry> sorted(const std::vector<ByteTrie::Entry>& entries) {
  std::vector<Sorted> all;
  all.reserve(entries.size());
  for (const auto& entry : entries)
    if (!entry.text.empty()) all.push_back({front_of(entry.text), entry});
  std::sort(all.begin(), all.end(), [](const Sorted& a, const Sorted& b) {
    return a.front != b.front ? a.front < b.front : a.entry.text < b.entry.text;
  });
  std::vector<ByteTrie::Entry> out;
  out.reserve(all.size());
  for (const Sorted& one : all) out.push_back(one.entry);
  return out;
}

}  // namespace

ByteTrie::ByteTrie(std::vector<Entry> entries) {
  entries = sorted(entries);
  nodes_.resize(256);
  nodes_[0].parent = root_parent;
  struct Range {
    size_t begin, end, depth;  // of entries: those that share the first `depth` bytes
    int32_t node;
  };
  std::vector<Range> to_do{{0, entries.size(), 0, 0}};
  std::vector<unsigned char> bytes;
  std::vector<size_t> begins;
  while (!to_do.empty()) {
    auto [begin, end, depth, node] = to_do.back();
    to_do.pop_back();
    if (begin < end && entries[begin].text.size() == depth) nodes_[size_t(node)].value = entries[begin++].value;
    if (begin == end) continue;
    bytes.clear();
    begins.clear();
    for (size_t i = begin; i < end; ++i) {
      const auto byte = static_cast<unsigned char>(entries[i].text[depth]);
      if (!bytes.empty() && bytes.back() == byte) continue;
      bytes.push_back(byte);
      begins.push_back(i);
    }
    begins.push_back(end);
    const uint32_t base = place(bytes);
    nodes_[size_t(node)].base = base;
    for (size_t i = 0; i < bytes.size(); ++i) nodes_[base ^ bytes[i]].parent = node;
    for (size_t i = bytes.size(); i-- > 0;)
      to_do.push_back({begins[i], begins[i + 1], depth + 1, int32_t(base ^ bytes[i])});
  }
  nodes_.shrink_to_fit();
}

bool ByteTrie::all_free(uint32_t base, std::span<const unsigned char> bytes) const {
  return std::all_of(bytes.begin(), bytes.end(), [&](unsigned char byte) {
    const uint32_t at = base ^ byte;
    return nodes_[at].parent == nobody;
  });
}

// A base whose places for these bytes are free. Few are tried, so that the time to build is linear; most nodes have one
// child, which fits anywhere and fills the gaps that the others leave.
uint32_t ByteTrie::place(std::span<const unsigned char> bytes) {
  constexpr size_t tries = 512;
  while (first_free_ < nodes_.size() && nodes_[first_free_].parent != nobody) ++first_free_;
  for (size_t at = first_free_; at < std::min(first_free_ + tries, nodes_.size()); ++at) {
    const uint32_t base = uint32_t(at) ^ bytes[0];
    if (nodes_[at].parent == nobody && all_free(base, bytes)) return base;
  }
  const auto base = uint32_t(nodes_.size());
  nodes_.resize(nodes_.size() + 256);
  return base;
}

}  // namespace medley
