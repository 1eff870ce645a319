#include "layers/lora.h"

namespace medley {

Lora::Lora(LoadContext& context, const std::string& prefix, int64_t in, int64_t rank, int64_t out,
           const std::vector<Slice>& slices)
    : dtype_(context.dtype), a_(context, {{prefix + "0.weight", "", rank, in, {}}}) {
  std::vector<LinearPart> parts;
  for (const Slice& slice : slices) parts.push_back({prefix + "1.weight", "", out, rank, slice});
  b_ = Linear(context, parts);
}

void Lora::add(const TensorView& x, const TensorView& y, ExecContext& exec) const {
  const Workspace::Scope scope(exec.workspace);
  const TensorView low = exec.workspace.alloc(dtype_, {x.size(0), a_.out()});
  a_(x, low, exec);
  b_.accumulate(low, y, exec);
}

}  // namespace medley
