// Strings found by their bytes, all that begin a text in one walk: a double-array trie. A step is one load, where a
// hash table of edges took several times the memory and a cache miss for nearly each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace medley {

class ByteTrie {
 public:
  struct Entry {
    std::string_view text;
    int32_t value;  // >= 0
  };
  ByteTrie() = default;
  explicit ByteTrie(std::vector<Entry> entries);  // of different texts; an empty one is left out

  // The node below `node` (0 is the root) along `byte`, or -1.
  int32_t step(int32_t node, unsigned char byte) const {
    const uint32_t next = nodes_[size_t(node)].base ^ byte;
    return nodes_[next].parent == node ? int32_t(next) : -1;
  }
  // Of the string that ends at `node`, -1 if none does.
  int32_t value(int32_t node) const { return nodes_[size_t(node)].value; }

 private:
  static constexpr int32_t nobody = -1, root_parent = -2;
  struct Node {
    uint32_t base = 0;  // a child's index, but for the byte that leads to it
    int32_t parent = nobody;
    int32_t value = -1;
  };
  uint32_t place(std::span<const unsigned char> bytes);
  bool all_free(uint32_t base, std::span<const unsigned char> bytes) const;

  std::vector<Node> nodes_;  // a multiple of 256, so that a step stays inside
  size_t first_free_ = 0;    // of nodes_, while it is built
};

}  // namespace medley
