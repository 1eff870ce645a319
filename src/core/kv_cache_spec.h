// What one group of layers keeps per request. A model returns these; the cache, which never sees a model, obeys them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace medley {

enum class CacheKind : uint8_t {
  full,    // every token's row is kept (GQA keys and values, MLA latents, indexer keys)
  window,  // only the last `window` tokens' rows are read again
  state,   // a state of fixed size, whatever the length (Mamba, delta net, short convolution)
};

// Layers whose rows have the same size and lifetime form one group and share block tables.
//
// A page (kind full or window) holds tokens_per_block tokens of every layer of the group, laid out
//   [num_layers][tokens_per_block][row_bytes]
// A state unit holds the state of ONE layer: row_bytes bytes, so a request owns num_layers units.
struct KvCacheSpec {
  CacheKind kind = CacheKind::full;
  std::string name;              // "attention", "latent", "mamba": for inspect, metrics and messages
  int32_t num_layers = 0;        // layers of the model in this group
  int32_t tokens_per_block = 0;  // paged: tokens in a page; state: 0 (checkpoints come with prefix caching)
  int64_t row_bytes = 0;         // paged: one token at one layer; state: one layer's whole state
  int32_t window = 0;            // window: tokens a query sees, itself included; else 0
  std::string row_shape;         // "2 x 8 heads x 128" or "conv 4 x 8192 + ssm 8192 x 16": for inspect

  bool paged() const { return kind != CacheKind::state; }
  int64_t unit_bytes() const { return paged() ? int64_t(num_layers) * tokens_per_block * row_bytes : row_bytes; }
  int64_t bytes_per_token() const { return paged() ? int64_t(num_layers) * row_bytes : 0; }
  int64_t bytes_per_request() const { return paged() ? 0 : int64_t(num_layers) * row_bytes; }
};

// Where units lie in the arena, fixed when it is made. A unit's address is
//   arena + extent * extent_bytes + index * unit_bytes
// and tables carry it as a row number: address / granule_bytes. extent_bytes is a multiple of every group's granule, so
// a kernel needs the base and one constant stride. For pages the granule is the group's row_bytes (a row number names
// a token's row at the group's first layer; the next layer's is tokens_per_block rows on); for states it is
// state_granule bytes.
constexpr int64_t state_granule = 256;

}  // namespace medley
