// What the kernel tests share: tensors that start poisoned, ragged rows, a paged cache with shuffled blocks, and the
// enumeration of an op's implementations on this machine.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "kernels/rows.h"
#include "kernels/test_blocks.h"
#include "kernels/weight.h"

namespace medley::test {

using Rng = std::mt19937;

constexpr double f32_unit = 0x1p-24;  // unit roundoff: half an ulp, relative
constexpr double bf16_unit = 0x1p-8;

inline double unit_of(DType dtype) {
  return dtype == DType::bf16 ? bf16_unit : f32_unit;
}

inline double get(const TensorView& view, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  int d = 0;
  for (int64_t i : index) offset += i * view.strides[d++];
  switch (view.dtype) {
    case DType::f32: return view.as<float>()[offset];
    case DType::bf16: return double(float(view.as<bf16>()[offset]));
    case DType::f16: return double(float(view.as<f16>()[offset]));
    case DType::i32: return view.as<int32_t>()[offset];
    default: break;
  }
  ADD_FAILURE() << "no such test dtype";
  return 0;
}

// Owns a tensor of rank 1 to 3 whose every byte starts as 0xff (NaN as floats, -1 as integers), with `padding` more
// elements after each index of the first dimension, which nobody may write.
class Tensor {
 public:
  Tensor(DType dtype, std::initializer_list<int64_t> shape, int64_t padding = 0) {
    const TensorView dense(nullptr, dtype, shape);
    inner_ = dense.rank > 0 ? dense.strides[0] : 1;
    padding_ = dense.rank > 1 ? padding : 0;
    // Exactly as large as needed, so that AddressSanitizer sees a read past the last row.
    size_ = size_t(dense.shape[0] * (inner_ + padding_)) * size_of(dtype);
    memory_.reset(static_cast<std::byte*>(::operator new (size_, std::align_val_t{64})));
    poison();
    view_ = TensorView(memory_.get(), dtype, shape);
    if (dense.rank > 1) view_.strides[0] += padding_;
  }
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }
  template <class T>
  T* as() const {
    return view_.as<T>();
  }

  // Normal values, each of which the dtype holds exactly.
  Tensor& fill(Rng& rng, float scale = 1, float mean = 0) {
    std::normal_distribution<float> normal(mean, scale);
    for_each([&](int64_t offset) {
      const float value = normal(rng);
      if (view_.dtype == DType::f32) view_.as<float>()[offset] = value;
      if (view_.dtype == DType::bf16) view_.as<bf16>()[offset] = bf16(value);
      if (view_.dtype == DType::f16) view_.as<f16>()[offset] = f16(value);
    });
    return *this;
  }
  Tensor& poison() {
    std::memset(memory_.get(), 0xff, size_);
    return *this;
  }

  // Every element was written (none is the poison's NaN) and no padding was.
  ::testing::AssertionResult complete() const {
    int64_t missing = 0, spoiled = 0;
    for_each([&](int64_t offset) {
      if (view_.dtype == DType::f32) missing += std::isnan(view_.as<float>()[offset]);
      if (view_.dtype == DType::bf16) missing += std::isnan(float(view_.as<bf16>()[offset]));
    });
    const size_t element = size_of(view_.dtype);
    for (int64_t row = 0; row < view_.shape[0]; ++row) {
      const auto* pad =
          static_cast<const std::byte*>(view_.data) + size_t(row * (inner_ + padding_) + inner_) * element;
      for (size_t i = 0; i < size_t(padding_) * element; ++i) spoiled += pad[i] != std::byte{0xff};
    }
    if (missing == 0 && spoiled == 0) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << missing << " elements not written, " << spoiled << " padding bytes written";
  }

  std::vector<std::byte> bytes() const { return {memory_.get(), memory_.get() + size_}; }
  // The bytes of index `row` of the first dimension.
  std::vector<std::byte> row_bytes(int64_t row) const {
    const size_t element = size_of(view_.dtype);
    const auto* begin = static_cast<const std::byte*>(view_.data) + size_t(row * (inner_ + padding_)) * element;
    return {begin, begin + size_t(inner_) * element};
  }

 private:
  template <class F>
  void for_each(F&& f) const {
    for (int64_t row = 0; row < view_.shape[0]; ++row)
      for (int64_t i = 0; i < inner_; ++i) f(row * (inner_ + padding_) + i);
  }

  struct Free {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t size_ = 0;
  TensorView view_;
  int64_t inner_ = 1, padding_ = 0;
};

inline Tensor int_tensor(const std::vector<int32_t>& values) {
  Tensor tensor(DType::i32, {int64_t(values.size())});
  std::copy(values.begin(), values.end(), tensor.as<int32_t>());
  return tensor;
}

struct Machine {
  explicit Machine(int threads = 1) : pool(threads) {}
  ThreadPool pool;
  Workspace workspace;
  ExecContext context{pool, workspace};
};

// A matrix packed for a kernel, or `slots` of them, with the dense original beside it: what was packed, or of a block
// type the floats that its blocks stand for.
struct Weight {
  Tensor dense;               // [slots * n, k], strided
  std::vector<double> sizes;  // of a block type, by element: |d q| + |m|, which may be more than |d q - m|
  Buffer packed;
  WeightView view;

  Weight(Rng& rng, DType dtype, WeightLayout layout, int64_t n, int64_t k, int64_t slots = 1)
      : dense(is_block(dtype) ? DType::f32 : dtype, {slots * n, k}, 3) {
    view = {nullptr, dtype, layout, n, k, slots, packed_bytes(layout, dtype, n, k)};
    packed = Buffer(size_t(view.slot_bytes * slots));
    std::memset(packed.data(), 0xff, packed.bytes());
    view.data = packed.data();
    std::vector<std::byte> blocks;
    TensorView source = dense;
    if (is_block(dtype)) {
      blocks = random_blocks(rng, dtype, slots * n, k);
      source = TensorView(blocks.data(), dtype, {slots * n, k});
      take_apart(source);
    } else {
      dense.fill(rng, 1 / std::sqrt(float(k + 1)));
    }
    for (int64_t s = 0; s < slots; ++s)
      pack_rows(source.slice(0, s * n, n), 0, view, packed.data() + s * view.slot_bytes);
  }
  double at(int64_t slot, int64_t row, int64_t column) const { return get(dense, {slot * view.n + row, column}); }
  // What counts for rounding: the size of what is added up.
  double size_at(int64_t slot, int64_t row, int64_t column) const {
    const int64_t at_row = slot * view.n + row;
    return sizes.empty() ? std::abs(get(dense, {at_row, column})) : sizes[size_t(at_row * view.k + column)];
  }

 private:
  void take_apart(const TensorView& source) {
    const BlockFormat& format = format_of(source.dtype);
    for (int64_t r = 0; r < source.size(0); ++r) {
      float* row = dense.view().row<float>(r);
      for (int64_t c = 0; c < source.size(1); c += format.elements) {
        BlockParts parts;
        read_block(source.dtype, static_cast<std::byte*>(source.data) + bytes_of(source.dtype, r * source.size(1) + c),
                   parts);
        dequantize_block(format, parts, row + c);
        for (int i = 0; i < format.elements; ++i) {
          const double m = group_minimum(format, parts, i / format.group);
          sizes.push_back(std::abs(double(row[c + i]) + m) + std::abs(m));
        }
      }
    }
  }
};

// The rows of a step: each has `computed` tokens in the cache and `fresh` new ones.
struct RowSpec {
  int32_t computed = 0, fresh = 0;
};
struct Rows {
  std::vector<RowSpec> specs;
  Tensor offsets, computed;
  RaggedRows view;

  explicit Rows(const std::vector<RowSpec>& rows)
      : specs(rows), offsets(DType::i32, {int64_t(rows.size()) + 1}), computed(DType::i32, {int64_t(rows.size())}) {
    int32_t at = 0;
    offsets.as<int32_t>()[0] = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      at += rows[r].fresh;
      offsets.as<int32_t>()[r + 1] = at;
      computed.as<int32_t>()[r] = rows[r].computed;
      view.max_new_tokens = std::max<int64_t>(view.max_new_tokens, rows[r].fresh);
      view.max_context = std::max<int64_t>(view.max_context, rows[r].computed + rows[r].fresh);
    }
    view.row_offsets = offsets;
    view.computed = computed;
    view.num_rows = int64_t(rows.size());
    view.num_tokens = at;
  }
  int64_t first(int64_t row) const { return offsets.as<int32_t>()[row]; }
};

// An implementation to test. One of level simd is tested once per instruction set that this CPU has: using the
// pointer makes Highway choose that set.
template <class Desc, class Args>
struct Candidate {
  const Implementation<Desc, Args>* implementation;
  int64_t target;  // Highway's; 0: not of its concern

  const Implementation<Desc, Args>& operator*() const {
    if (target != 0) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
    return *implementation;
  }
  const Implementation<Desc, Args>* operator->() const { return &**this; }
  std::string name() const {
    return fmt::format("{}{}", implementation->name, target != 0 ? fmt::format("/{}", hwy::TargetName(target)) : "");
  }
};

// Every implementation of the op that runs on this CPU and takes the description.
template <class Desc, class Args>
std::vector<Candidate<Desc, Args>> runnable(const Op<Desc, Args>& op, const Desc& desc) {
  static const std::vector<int64_t> targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    return hwy::SupportedAndGeneratedTargets();
  }();
  std::vector<Candidate<Desc, Args>> found;
  for (const auto* candidate : op.implementations) {
    if (device_of(candidate->level) != Device::cpu || !candidate->supports(desc).empty()) continue;
    if (candidate->level == Level::simd) {
      for (int64_t target : targets) found.push_back({candidate, target});
    } else {
      found.push_back({candidate, 0});
    }
  }
  return found;
}

// What a test wants of one element.
struct Expected {
  double value, allowed;
};

// Compares y, of rank 2 or 3, with `expected`, element after element; and that all of it, and no more, was written.
inline ::testing::AssertionResult matches(const Tensor& tensor, const std::vector<Expected>& expected) {
  const TensorView& y = tensor.view();
  if (const auto complete = tensor.complete(); !complete) return complete;
  if (size_t(y.elements()) != expected.size()) return ::testing::AssertionFailure() << "wrong number of elements";
  const int64_t inner = y.rank == 3 ? y.size(2) : 1;
  auto next = expected.begin();
  for (int64_t i = 0; i < y.size(0); ++i)
    for (int64_t j = 0; j < y.size(1); ++j)
      for (int64_t k = 0; k < inner; ++k, ++next) {
        const double got = y.rank == 3 ? get(y, {i, j, k}) : get(y, {i, j});
        if (!(std::abs(got - next->value) <= next->allowed))
          return ::testing::AssertionFailure()
                 << "element " << i << ", " << j << ", " << k << " is " << got << ", want " << next->value << " within "
                 << next->allowed << " (off by " << std::abs(got - next->value) << ")";
      }
  return ::testing::AssertionSuccess();
}

// Every element as double, row after row.
inline std::vector<double> doubles(const TensorView& view) {
  std::vector<double> values;
  values.reserve(size_t(view.elements()));
  for (int64_t i = 0; i < view.size(0); ++i)
    for (int64_t j = 0; j < view.size(1); ++j) {
      if (view.rank == 2) values.push_back(get(view, {i, j}));
      for (int64_t k = 0; view.rank == 3 && k < view.size(2); ++k) values.push_back(get(view, {i, j, k}));
    }
  return values;
}

// Runs it as a layer would: the boundary's check, then the kernel.
template <class Desc, class Args>
void launch(const Op<Desc, Args>& op, const Implementation<Desc, Args>& implementation, const Args& args,
            ExecContext& context) {
  op.check(args);
  implementation.run(args, context);
}

}  // namespace medley::test
