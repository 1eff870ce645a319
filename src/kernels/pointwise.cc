#include "kernels/pointwise.h"

#include "kernels/shape_check.h"

namespace medley {
namespace ref {
extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding;
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation;
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows;
extern const Implementation<AddDesc, AddArgs> add;
extern const Implementation<ScaleDesc, ScaleArgs> scale;
}  // namespace ref
namespace simd {
extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding;
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation;
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows;
extern const Implementation<AddDesc, AddArgs> add;
}  // namespace simd
namespace cuda {
extern const Implementation<EmbeddingDesc, EmbeddingArgs> embedding;
extern const Implementation<GatedActivationDesc, GatedActivationArgs> gated_activation;
extern const Implementation<ConvertRowsDesc, ConvertRowsArgs> convert_rows;
extern const Implementation<AddDesc, AddArgs> add;
extern const Implementation<ScaleDesc, ScaleArgs> scale;
}  // namespace cuda

namespace {

void check_embedding(const EmbeddingArgs& a) {
  check_tensor("embedding", "ids", a.ids, {-1}, {DType::i32});
  check_tensor("embedding", "y", a.y, {a.ids.size(0), a.table.k}, {DType::f32});
}

void check_activation(const GatedActivationArgs& a) {
  check_tensor("gated_activation", "y", a.y, {-1, -1}, {DType::f32, DType::bf16});
  if (a.activation == Activation::clamped_swiglu && !a.gated) fail("[gated_activation] clamped_swiglu needs a gate");
  check_tensor("gated_activation", "x", a.x, {a.y.size(0), a.y.size(1) * (a.gated ? 2 : 1)}, {DType::f32});
}

void check_convert(const ConvertRowsArgs& a) {
  check_tensor("convert_rows", "x", a.x, {-1, -1}, {DType::f32, DType::bf16});
  if (a.rows) check_tensor("convert_rows", "rows", a.rows, {-1}, {DType::i32});
  const int64_t n = a.rows ? a.rows.size(0) : a.x.size(0);
  check_tensor("convert_rows", "y", a.y, {n, a.x.size(1)}, {DType::f32, DType::bf16});
}

void check_add(const AddArgs& a) {
  check_tensor("add", "x", a.x, {-1, -1}, {DType::f32});
  check_tensor("add", "y", a.y, {a.x.size(0), a.x.size(1)}, {DType::f32});
}

void check_scale(const ScaleArgs& a) {
  check_tensor("scale", "x", a.x, {-1, -1}, {DType::f32});
}

}  // namespace

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return "silu";
    case Activation::gelu_tanh: return "gelu_tanh";
    case Activation::gelu: return "gelu";
    case Activation::relu: return "relu";
    case Activation::relu2: return "relu2";
    case Activation::clamped_swiglu: return "clamped_swiglu";
  }
  return "?";
}

std::string EmbeddingDesc::describe() const {
  return fmt::format("dim {}, weight {}", dim, medley::name_of(weight));
}

std::string GatedActivationDesc::describe() const {
  return fmt::format("{}{}, width {}, y {}", medley::name_of(activation), gated ? " gated" : "", width,
                     medley::name_of(y));
}

std::string ConvertRowsDesc::describe() const {
  return fmt::format("{} to {}", medley::name_of(x), medley::name_of(y));
}

std::string AddDesc::describe() const {
  return "f32";
}

std::string ScaleDesc::describe() const {
  return softcap ? "f32, softcap" : "f32";
}

const EmbeddingOp& embedding_op() {
  static constexpr const Implementation<EmbeddingDesc, EmbeddingArgs>* table[] = {&ref::embedding, &simd::embedding,
                                                                                  &cuda::embedding};
  static const EmbeddingOp op{"embedding", check_embedding, table};
  return op;
}

const GatedActivationOp& gated_activation_op() {
  static constexpr const Implementation<GatedActivationDesc, GatedActivationArgs>* table[] = {
      &ref::gated_activation, &simd::gated_activation, &cuda::gated_activation};
  static const GatedActivationOp op{"gated_activation", check_activation, table};
  return op;
}

const ConvertRowsOp& convert_rows_op() {
  static constexpr const Implementation<ConvertRowsDesc, ConvertRowsArgs>* table[] = {
      &ref::convert_rows, &simd::convert_rows, &cuda::convert_rows};
  static const ConvertRowsOp op{"convert_rows", check_convert, table};
  return op;
}

const AddOp& add_op() {
  static constexpr const Implementation<AddDesc, AddArgs>* table[] = {&ref::add, &simd::add, &cuda::add};
  static const AddOp op{"add", check_add, table};
  return op;
}

const ScaleOp& scale_op() {
  static constexpr const Implementation<ScaleDesc, ScaleArgs>* table[] = {&ref::scale, &cuda::scale};
  static const ScaleOp op{"scale", check_scale, table};
  return op;
}

}  // namespace medley
