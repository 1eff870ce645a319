// A GGUF file's tensors under the names, shapes and conventions that a family's reader knows from Hugging Face.
//
// Most are views into the mapped file under another name or shape, or slices of stacked experts. Where the convention
// differs a tensor is converted when it is taken: rows in another order (whole rows: blocks stay blocks), or other
// values (float32).
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "models/gguf/keys.h"
#include "weights/checkpoint.h"

namespace medley {

// What happens to a tensor on its way, beside its name.
enum class GgufChange : uint8_t {
  none,
  unrope_q,   // rows of each query head back from neighbours to halves: ggml's plain rope turns neighbouring pairs
  unrope_k,   // the same for key heads
  minus_one,  // zero-centred norms are stored as what they multiply with
  log_of_negative,  // A = -exp(A_log) is stored; a last dimension of 1 goes
  unsqueeze,        // convolutions [channels, width] become [channels, 1, width]
  flat,             // one dimension
  row,              // a vector becomes a matrix of one row
  experts,          // [experts, rows, columns] becomes a matrix for each; "E" in the name is its number
};

// `from` behind "blk.N.", `to` behind the family's place of layer N. Without ".weight" or ".bias" both are meant.
struct GgufRule {
  std::string from, to;
  GgufChange change = GgufChange::none;
};

class GgufTensors {
 public:
  GgufTensors(const GgufKeys& keys, Checkpoint& checkpoint) : keys_(keys), checkpoint_(checkpoint) {}

  const GgufKeys& keys() const { return keys_; }
  // The tensor under its new name, changed; nothing when the file has none of this name.
  void add(const std::string& from, const std::string& to, GgufChange change = GgufChange::none);
  // Tensors that become one, of which `fill` writes the values; nothing when the first is missing.
  using Sources = std::vector<const StoredTensor*>;
  using Fill = std::function<void(const Sources& from, std::vector<float>& out)>;
  void make(const std::vector<std::string>& from, const std::string& to, const std::vector<int64_t>& shape, Fill fill);
  // Whole rows of matrices that become one: of source and row, in the order of the new matrix. Blocks stay blocks where
  // all sources have one type.
  struct Row {
    int source = 0;
    int64_t row = 0;
  };
  void gather(const std::vector<std::string>& from, const std::string& to, const std::vector<Row>& rows);
  // One matrix under another.
  void join(const std::vector<std::string>& from, const std::string& to);
  // A tensor that was read elsewhere.
  void skip(const std::string& from) { used_.insert(from); }
  bool used(const std::string& from) const { return used_.contains(from); }

 private:
  const StoredTensor& find(const std::string& name, const MappedFile** file) const;
  void add_view(const std::string& to, const StoredTensor& tensor, const MappedFile& file, TensorView view);
  void add_experts(const std::string& to, const StoredTensor& tensor, const MappedFile& file);
  void add_unroped(const std::string& from, const std::string& to, int64_t heads);

  const GgufKeys& keys_;
  Checkpoint& checkpoint_;
  std::set<std::string> used_;
};

// The tensor's values as float32.
std::vector<float> floats_of(const StoredTensor& tensor);

}  // namespace medley
