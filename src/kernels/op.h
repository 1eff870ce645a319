// What an operation is: a description that never depends on the batch, plain arguments, and implementations to choose
// from at load. src/kernels/<op>.h defines one op, <op>.cc its table of implementations, ref/ its meaning.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/exec_context.h"
#include "tensor/tensor.h"

namespace medley {

// From the plain meaning of an op to code for one machine; a higher level is tried first.
enum class Level : uint8_t { ref, simd, avx512, cuda, sm90 };

std::string_view name_of(Level level);
Device device_of(Level level);

// How a kernel wants a weight laid out. weight.h packs.
enum class WeightLayout : uint8_t { row_major, panel };

template <class Desc, class Args>
struct Implementation {
  std::string_view name;  // "avx512.linear"
  Level level;
  std::string (*supports)(const Desc&);  // empty: yes; else the reason why not
  void (*run)(const Args&, ExecContext&);
  WeightLayout layout = WeightLayout::row_major;  // of ops that take a weight
};

template <class Desc, class Args>
struct Op {
  std::string_view name;
  void (*check)(const Args&);  // shapes and dtypes at the boundary; throws Error "[op] x is ..., want ..."
  std::span<const Implementation<Desc, Args>* const> implementations;
};

// An implementation that was chosen: what a layer keeps.
template <class Args>
struct Kernel {
  void (*run)(const Args&, ExecContext&) = nullptr;
  void (*check)(const Args&) = nullptr;
  WeightLayout layout = WeightLayout::row_major;
  std::string_view name;

  void operator()(const Args& args, ExecContext& context) const {
    check(args);
    run(args, context);
  }
};

// Chooses, once per layer at load, and remembers what it chose.
class KernelSelector {
 public:
  explicit KernelSelector(Device device, Level highest = Level::sm90) : device_(device), highest_(highest) {}

  Device device() const { return device_; }

  // The best implementation for this device up to the highest level allowed. Throws Error with every
  // implementation's reason when none fits.
  template <class Desc, class Args>
  Kernel<Args> resolve(const Op<Desc, Args>& op, const Desc& desc) {
    std::string reasons;
    const Implementation<Desc, Args>* best = best_of(op, desc, reasons);
    if (best == nullptr) fail("[{}] no kernel on this device takes {}:{}", op.name, desc.describe(), reasons);
    note(fmt::format("{} {}", best->name, desc.describe()));
    return {best->run, op.check, best->layout, best->name};
  }

  // The same of an op that others can stand in for: a kernel without a name when there is none for this device but the
  // plain one, which only says what is meant.
  template <class Desc, class Args>
  Kernel<Args> find(const Op<Desc, Args>& op, const Desc& desc) {
    std::string reasons;
    const Implementation<Desc, Args>* best = best_of(op, desc, reasons);
    if (best == nullptr || best->level == Level::ref) return {};
    return resolve(op, desc);
  }

  // "avx512.linear bf16 [4096, 1024]", each once, in order of choice.
  const std::vector<std::string>& chosen() const { return chosen_; }

 private:
  template <class Desc, class Args>
  const Implementation<Desc, Args>* best_of(const Op<Desc, Args>& op, const Desc& desc, std::string& reasons) const {
    const Implementation<Desc, Args>* best = nullptr;
    for (const auto* candidate : op.implementations) {
      if (device_of(candidate->level) != device_ || candidate->level > highest_) continue;
      if (best != nullptr && best->level >= candidate->level) continue;
      const std::string reason = candidate->supports(desc);
      if (reason.empty()) {
        best = candidate;
      } else {
        reasons += fmt::format("\n  {}: {}", candidate->name, reason);
      }
    }
    return best;
  }

  void note(std::string line) {
    if (std::find(chosen_.begin(), chosen_.end(), line) == chosen_.end()) chosen_.push_back(std::move(line));
  }

  Device device_;
  Level highest_;
  std::vector<std::string> chosen_;
};

}  // namespace medley
