#include "models/gguf/tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "kernels/block_format.h"

namespace medley {
namespace {

std::vector<int64_t> shape_of(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.rank};
}

TensorView reshaped(const TensorView& view, const std::vector<int64_t>& shape) {
  return {view.data, view.dtype, std::span<const int64_t>(shape)};
}

ConvertedTensor converted_floats(std::vector<int64_t> shape, std::function<std::vector<float>()> values) {
  return {DType::f32, std::move(shape), [values = std::move(values)](std::byte* out) {
            const std::vector<float> made = values();
            std::copy(made.begin(), made.end(), reinterpret_cast<float*>(out));
          }};
}

// Matrices [rows, columns] of one type and width.
bool alike(const std::vector<const StoredTensor*>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const StoredTensor* tensor) { return tensor->view.dtype == tensors[0]->view.dtype; });
}

}  // namespace

std::vector<float> floats_of(const StoredTensor& tensor) {
  const TensorView& view = tensor.view;
  std::vector<float> values(size_t(view.elements()));
  if (is_block(view.dtype)) {
    dequantize(view, values.data());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    switch (view.dtype) {
      case DType::f32: values[i] = view.as<float>()[i]; break;
      case DType::bf16: values[i] = float(view.as<bf16>()[i]); break;
      case DType::f16: values[i] = float(view.as<f16>()[i]); break;
      default: fail("a tensor of type {} is no weight", tensor.dtype_name);
    }
  }
  return values;
}

const StoredTensor& GgufTensors::find(const std::string& name, const MappedFile** file) const {
  for (const GgufFile& candidate : checkpoint_.gguf_files()) {
    const auto at = candidate.tensors().find(name);
    if (at == candidate.tensors().end()) continue;
    if (file != nullptr) *file = &candidate.file();
    if (!at->second.readable)
      fail("{}: tensor {} is {}, a type that medley does not read", candidate.path(), name, at->second.dtype_name);
    return at->second;
  }
  fail("{}: tensor {} is missing", keys_.where(), name);
}

void GgufTensors::add_view(const std::string& to, const StoredTensor& tensor, const MappedFile& file, TensorView view) {
  StoredTensor stored = tensor;
  stored.view = view;
  stored.bytes = {static_cast<const std::byte*>(view.data), view.bytes()};
  checkpoint_.add(to, stored, file);
}

void GgufTensors::add_experts(const std::string& to, const StoredTensor& tensor, const MappedFile& file) {
  const size_t number = to.find(".E.");
  MEDLEY_CHECK(number != std::string::npos);
  if (tensor.view.rank != 3)
    fail("{}: the experts of {} have shape {}; [experts, rows, columns] is wanted", keys_.where(), to,
         describe_shape(shape_of(tensor.view)));
  for (int64_t e = 0; e < tensor.view.size(0); ++e) {
    const TensorView one = tensor.view.slice(0, e, 1);
    add_view(fmt::format("{}{}{}", to.substr(0, number + 1), e, to.substr(number + 2)), tensor, file,
             reshaped(one, {one.size(1), one.size(2)}));
  }
}

// Row 2 j + s of a head goes to row s half + j. A bias is a matrix of one column.
void GgufTensors::add_unroped(const std::string& from, const std::string& to, int64_t heads) {
  const StoredTensor& tensor = find(from, nullptr);
  const int64_t rows = tensor.view.size(0), head_dim = heads > 0 ? rows / heads : 0, half = head_dim / 2;
  if (heads <= 0 || rows % heads != 0 || head_dim % 2 != 0)
    fail("{}: tensor {} has {} rows, which {} heads cannot share", keys_.where(), from, rows, heads);
  std::vector<Row> order;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / head_dim, within = row % head_dim;
    order.push_back({0, head * head_dim + 2 * (within % half) + within / half});
  }
  gather({from}, to, order);
}

void GgufTensors::add(const std::string& from, const std::string& to, GgufChange change) {
  if (keys_.tensor(from) == nullptr) return;
  skip(from);
  const MappedFile* file = nullptr;
  const StoredTensor& tensor = find(from, &file);
  std::vector<int64_t> shape = shape_of(tensor.view);
  switch (change) {
    case GgufChange::none: return checkpoint_.add(to, tensor, *file);
    case GgufChange::unrope_q: return add_unroped(from, to, keys_.integer("attention.head_count"));
    case GgufChange::unrope_k: {
      const std::vector<int64_t> heads =
          keys_.per_layer("attention.head_count_kv", keys_.integer("attention.head_count"));
      return add_unroped(from, to, *std::max_element(heads.begin(), heads.end()));
    }
    case GgufChange::unsqueeze: shape.insert(shape.end() - 1, 1); break;
    case GgufChange::flat: shape = {tensor.view.elements()}; break;
    case GgufChange::row: shape.insert(shape.begin(), 1); break;
    case GgufChange::experts: return add_experts(to, tensor, *file);
    case GgufChange::minus_one:
    case GgufChange::log_of_negative: {
      const bool log = change == GgufChange::log_of_negative;
      if (log && shape.size() > 1 && shape.back() == 1) shape.pop_back();
      return make({from}, to, shape, [log](const Sources& sources, std::vector<float>& out) {
        out = floats_of(*sources[0]);
        for (float& value : out) value = log ? std::log(-value) : value - 1;
      });
    }
  }
  add_view(to, tensor, *file, reshaped(tensor.view, shape));
}

void GgufTensors::make(const std::vector<std::string>& from, const std::string& to, const std::vector<int64_t>& shape,
                       Fill fill) {
  if (keys_.tensor(from.at(0)) == nullptr) return;
  const MappedFile* file = nullptr;
  Sources sources;
  for (const std::string& name : from) {
    sources.push_back(&find(name, &file));
    skip(name);
  }
  const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
  const auto values = [sources, fill = std::move(fill), elements, to, where = keys_.where()] {
    std::vector<float> out;
    fill(sources, out);
    if (int64_t(out.size()) != elements)
      fail("{}: the tensors that make up {} have {} elements, {} are wanted", where, to, out.size(), elements);
    return out;
  };
  checkpoint_.add(to, converted_floats(shape, values), *file);
}

void GgufTensors::gather(const std::vector<std::string>& from, const std::string& to, const std::vector<Row>& rows) {
  if (keys_.tensor(from.at(0)) == nullptr) return;
  const MappedFile* file = nullptr;
  Sources sources;
  for (const std::string& name : from) {
    sources.push_back(&find(name, &file));
    skip(name);
  }
  const bool vector = sources[0]->view.rank == 1;  // of one column
  const int64_t columns = vector ? 1 : sources[0]->view.size(1);
  std::vector<int64_t> shape{int64_t(rows.size())};
  if (!vector) shape.push_back(columns);
  for (const Row& row : rows) {
    const TensorView& view = sources.at(size_t(row.source))->view;
    if (view.rank != (vector ? 1 : 2) || (!vector && view.size(1) != columns) || row.row < 0 || row.row >= view.size(0))
      fail("{}: tensors that make up {} have other shapes than {}", keys_.where(), to, view.describe());
  }
  if (!alike(sources)) {
    const auto values = [sources, rows, columns] {
      std::vector<std::vector<float>> floats;
      for (const StoredTensor* source : sources) floats.push_back(floats_of(*source));
      std::vector<float> out;
      for (const Row& row : rows) {
        const auto begin = floats[size_t(row.source)].begin() + row.row * columns;
        out.insert(out.end(), begin, begin + columns);
      }
      return out;
    };
    return checkpoint_.add(to, converted_floats(shape, values), *file);
  }
  const DType dtype = sources[0]->view.dtype;
  const auto row_bytes = size_t(vector ? int64_t(size_of(dtype)) : bytes_of(dtype, columns));
  checkpoint_.add(to,
                  {dtype, shape,
                   [sources, rows, row_bytes](std::byte* out) {
                     for (const Row& row : rows) {
                       const std::byte* source = sources[size_t(row.source)]->bytes.data();
                       std::memcpy(out, source + size_t(row.row) * row_bytes, row_bytes);
                       out += row_bytes;
                     }
                   }},
                  *file);
}

void GgufTensors::join(const std::vector<std::string>& from, const std::string& to) {
  if (keys_.tensor(from.at(0)) == nullptr) return;
  std::vector<Row> rows;
  for (size_t source = 0; source < from.size(); ++source) {
    const int64_t count = find(from[source], nullptr).view.size(0);
    for (int64_t row = 0; row < count; ++row) rows.push_back({int(source), row});
  }
  gather(from, to, rows);
}

}  // namespace medley
