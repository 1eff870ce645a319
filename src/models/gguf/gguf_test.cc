// How GGUF's keys and tensors become a family's: on small files made here. That whole models come out right is what the
// golden folders show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "models/gguf/architectures.h"
#include "models/gguf/source.h"
#include "weights/test_gguf.h"

namespace medley {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Floats = std::vector<float>;

constexpr uint32_t ggml_f32 = 0, ggml_f16 = 1;

// Collects keys and tensors, then writes a file.
class ModelFile {
 public:
  explicit ModelFile(std::string architecture) : architecture_(std::move(architecture)) {
    text("general.architecture", architecture_);
  }
  ModelFile& text(const std::string& key, const std::string& value) {
    return add([=](test::GgufBytes& bytes) { bytes.key(key, GgufType::string).text(value); });
  }
  ModelFile& integer(const std::string& key, uint32_t value) {
    return add([=, name = full(key)](test::GgufBytes& bytes) { bytes.key(name, GgufType::u32, value); });
  }
  ModelFile& number(const std::string& key, float value) {
    return add([=, name = full(key)](test::GgufBytes& bytes) { bytes.key(name, GgufType::f32, value); });
  }
  ModelFile& integers(const std::string& key, const std::vector<int32_t>& values) {
    return add([=, name = full(key)](test::GgufBytes& bytes) {
      bytes.key(name, GgufType::array).array(GgufType::i32, values.size());
      for (const int32_t value : values) bytes.put(value);
    });
  }
  // Values 0, 1, 2, ... when none are given; `shape` with the fastest dimension last.
  ModelFile& tensor(const std::string& name, const std::vector<int64_t>& shape, Floats values = {}, bool f16 = false) {
    if (values.empty()) {
      values.resize(size_t(std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>())));
      std::iota(values.begin(), values.end(), 0.0f);
    }
    tensors_.push_back({name, {shape.rbegin(), shape.rend()}, std::move(values), f16});
    return *this;
  }

  std::filesystem::path write() const {
    test::GgufBytes bytes(tensors_.size(), keys_.size());
    for (const auto& key : keys_) key(bytes);
    uint64_t offset = 0;
    for (const Stored& t : tensors_) {
      bytes.tensor(t.name, t.dims, t.f16 ? ggml_f16 : ggml_f32, offset);
      offset = (offset + t.values.size() * (t.f16 ? 2 : 4) + 31) / 32 * 32;
    }
    bytes.pad();
    for (const Stored& t : tensors_) {
      for (const float value : t.values) {
        if (t.f16) {
          bytes.put(medley::f16(value));
        } else {
          bytes.put(value);
        }
      }
      bytes.pad();
    }
    static int count = 0;
    const auto path = std::filesystem::temp_directory_path() / fmt::format("medley_gguf_{}_{}.gguf", getpid(), ++count);
    std::ofstream(path, std::ios::binary) << bytes.str();
    return path;
  }

 private:
  struct Stored {
    std::string name;
    std::vector<uint64_t> dims;
    Floats values;
    bool f16;
  };
  std::string full(const std::string& key) const { return architecture_ + "." + key; }
  ModelFile& add(std::function<void(test::GgufBytes&)> key) {
    keys_.push_back(std::move(key));
    return *this;
  }

  std::string architecture_;
  std::vector<std::function<void(test::GgufBytes&)>> keys_;
  std::vector<Stored> tensors_;
};

struct Removed {  // at the end
  std::filesystem::path path;
  ~Removed() { std::filesystem::remove(path); }
};

// A file, opened as a model; its tensors under the family's names.
class Opened {
 public:
  explicit Opened(const ModelFile& file) : file_{file.write()}, source_(open_gguf_model(file_.path)) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  nlohmann::json config() const { return source_->config(); }
  bool has(const std::string& name) const { return source_->checkpoint()->find(name) != nullptr; }
  TensorView view(const std::string& name) const { return source_->checkpoint()->find(name)->tensor.view; }
  Floats values(const std::string& name) const {
    const Checkpoint::Entry* entry = source_->checkpoint()->find(name);
    if (entry == nullptr) fail("no tensor {}", name);
    if (!entry->converted.fill) return floats_of(entry->tensor);
    Buffer made(view(name).bytes());
    entry->converted.fill(made.data());
    StoredTensor stored = entry->tensor;
    stored.view.data = made.data();
    return floats_of(stored);
  }

 private:
  Removed file_;
  std::unique_ptr<ModelSource> source_;
};

ModelFile llama(uint32_t heads = 2, uint32_t kv_heads = 1) {
  ModelFile file("llama");
  file.integer("block_count", 1).integer("embedding_length", 8).integer("attention.head_count", heads);
  file.integer("attention.head_count_kv", kv_heads).integer("context_length", 64).tensor("token_embd.weight", {5, 8});
  return file;
}

void expect_refused(const ModelFile& file, const std::string& message) {
  try {
    static_cast<void>(Opened(file).config());
    ADD_FAILURE() << "accepted, wanted: " << message;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(message), HasSubstr(".gguf")));
  }
}

TEST(Gguf, RowsOfHeadsComeBackFromNeighboursToHalves) {
  // Two heads of four rows: 0 2 1 3 | 4 6 5 7. Rows of two columns hold 2 r, 2 r + 1.
  const Opened opened(llama()
                          .tensor("blk.0.attn_q.weight", {8, 2})
                          .tensor("blk.0.attn_q.bias", {8})
                          .tensor("blk.0.attn_k.weight", {4, 2}, {}, true)
                          .tensor("blk.0.attn_v.weight", {4, 2}));
  EXPECT_THAT(opened.values("model.layers.0.self_attn.q_proj.weight"),
              ElementsAre(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  EXPECT_THAT(opened.values("model.layers.0.self_attn.q_proj.bias"), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(opened.values("model.layers.0.self_attn.k_proj.weight"), ElementsAre(0, 1, 4, 5, 2, 3, 6, 7));
  EXPECT_EQ(opened.view("model.layers.0.self_attn.k_proj.weight").dtype, DType::f16) << "whole rows keep their type";
  EXPECT_THAT(opened.values("model.layers.0.self_attn.v_proj.weight"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(opened.config()["attention_bias"].get<bool>());
}

TEST(Gguf, HeadsThatCannotShareTheRowsAreRefused) {
  expect_refused(llama().tensor("blk.0.attn_q.weight", {7, 8}), "tensor blk.0.attn_q.weight has 7 rows, which 2 heads");
  expect_refused(llama().tensor("blk.0.attn_q.weight", {6, 8}), "which 2 heads cannot share");  // heads of 3: no halves
}

TEST(Gguf, StackedExpertsBecomeMatrices) {
  const Opened opened(llama()
                          .integer("expert_count", 3)
                          .integer("expert_used_count", 2)
                          .tensor("blk.0.ffn_gate_exps.weight", {3, 2, 2})
                          .tensor("blk.0.ffn_gate_inp.weight", {3, 8}));
  EXPECT_EQ(opened.config()["model_type"], "mixtral");
  EXPECT_THAT(opened.values("model.layers.0.block_sparse_moe.experts.2.w1.weight"), ElementsAre(8, 9, 10, 11));
  EXPECT_EQ(opened.view("model.layers.0.block_sparse_moe.experts.2.w1.weight").rank, 2);
  EXPECT_FALSE(opened.has("model.layers.0.block_sparse_moe.experts.3.w1.weight"));
  expect_refused(llama().integer("expert_count", 3).tensor("blk.0.ffn_up_exps.weight", {6, 8}),
                 "have shape [6, 8]; [experts, rows, columns] is wanted");
}

TEST(Gguf, NormsThatMultiplyBecomeZeroCentred) {
  ModelFile file("gemma3");
  file.integer("block_count", 1).integer("embedding_length", 8).integer("attention.head_count", 2);
  file.tensor("token_embd.weight", {5, 8}).tensor("output_norm.weight", {2}, {1, 1.5f});
  file.tensor("blk.0.attn_norm.weight", {2}, {0.25f, 3});
  const Opened opened(file);
  EXPECT_THAT(opened.values("model.norm.weight"), ElementsAre(0, 0.5f));
  EXPECT_THAT(opened.values("model.layers.0.input_layernorm.weight"), ElementsAre(-0.75f, 2));
}

TEST(Gguf, StatesDecayAsLogarithmsAndConvolutionsAreOfChannels) {
  ModelFile file("mamba2");
  file.integer("block_count", 1).integer("embedding_length", 4).integer("ssm.inner_size", 8);
  file.integer("ssm.time_step_rank", 2).integer("ssm.state_size", 3).integer("ssm.conv_kernel", 2);
  file.tensor("token_embd.weight", {5, 4}).tensor("blk.0.ssm_a", {2, 1}, {-1, -std::exp(2.0f)});
  file.tensor("blk.0.ssm_conv1d.weight", {3, 2}).tensor("blk.0.ssm_d", {2, 1}).tensor("blk.0.ssm_dt.bias", {2});
  const Opened opened(file);
  const Floats decay = opened.values("backbone.layers.0.mixer.A_log");
  EXPECT_EQ(opened.view("backbone.layers.0.mixer.A_log").rank, 1);
  EXPECT_FLOAT_EQ(decay.at(0), 0);
  EXPECT_FLOAT_EQ(decay.at(1), 2);
  const TensorView convolution = opened.view("backbone.layers.0.mixer.conv1d.weight");
  EXPECT_THAT(std::vector<int64_t>(convolution.shape.begin(), convolution.shape.begin() + 3), ElementsAre(3, 1, 2));
  EXPECT_EQ(opened.view("backbone.layers.0.mixer.D").rank, 1);
  EXPECT_TRUE(opened.has("backbone.layers.0.mixer.dt_bias"));
  EXPECT_EQ(opened.config()["expand"], 2);
  file.integer("ssm.group_count", 2);
  EXPECT_TRUE(Opened(file).config()["norm_by_group"].get<bool>());
}

ModelFile deepseek() {
  ModelFile file("deepseek2");
  file.integer("block_count", 1).integer("embedding_length", 4).integer("attention.head_count", 2);
  file.integer("attention.kv_lora_rank", 3).integer("rope.dimension_count", 2).integer("attention.key_length", 4);
  file.integer("attention.value_length", 1).integer("expert_count", 4).integer("expert_used_count", 2);
  file.integer("expert_feed_forward_length", 4).tensor("token_embd.weight", {5, 4});
  return file;
}

TEST(Gguf, SplitUpProjectionsOfTheLatentAreOneAgain) {
  constexpr int heads = 2, rank = 3, nope = 2, v_dim = 1;
  Floats whole(heads * (nope + v_dim) * rank), keys(heads * rank * nope), values(heads * v_dim * rank);
  std::iota(whole.begin(), whole.end(), 1.0f);
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rank; ++r) {
      for (int i = 0; i < nope; ++i) keys[(h * rank + r) * nope + i] = whole[(h * (nope + v_dim) + i) * rank + r];
      values[h * rank + r] = whole[(h * (nope + v_dim) + nope) * rank + r];
    }
  const std::string name = "model.layers.0.self_attn.kv_b_proj.weight";
  const auto split = [&](Floats k, std::vector<int64_t> shape) {
    return deepseek()
        .tensor("blk.0.attn_k_b.weight", shape, std::move(k))
        .tensor("blk.0.attn_v_b.weight", {heads, v_dim, rank}, values);
  };
  EXPECT_EQ(Opened(split(keys, {heads, rank, nope})).values(name), whole);
  EXPECT_EQ(Opened(deepseek().tensor("blk.0.attn_kv_b.weight", {6, 3}, whole)).values(name), whole);
  ModelFile both = split(keys, {heads, rank, nope});  // some files have all three
  EXPECT_EQ(Opened(both.tensor("blk.0.attn_kv_b.weight", {6, 3}, whole)).values(name), whole);
  keys.push_back(0);
  EXPECT_THROW(static_cast<void>(Opened(split(keys, {1, 1, 13})).values(name)), Error);
  expect_refused(deepseek().tensor("blk.0.attn_k_b.weight", {heads, rank, nope}),
                 "tensor blk.0.attn_v_b.weight is missing");
}

TEST(Gguf, KeysThatAreMissingOrWrongAreNamed) {
  ModelFile none("llama");
  expect_refused(none.tensor("token_embd.weight", {5, 8}), "llama.block_count");
  ModelFile text("llama");
  expect_refused(text.text("llama.block_count", "many"), "key llama.block_count");
  ModelFile empty("llama");
  expect_refused(empty.integer("block_count", 0), "llama.block_count 0");
  ModelFile adapter("llama");
  expect_refused(adapter.text("general.type", "adapter").integer("block_count", 1), "general.type is \"adapter\"");
  ModelFile unknown("bloom");
  expect_refused(unknown.integer("block_count", 1), "\"bloom\" is not known; medley runs deepseek2, gemma3");
  ModelFile headless("llama");
  headless.integer("block_count", 1).integer("embedding_length", 8).tensor("token_embd.weight", {5, 8});
  expect_refused(headless, "llama.attention.head_count");
  ModelFile tokenless("llama");
  expect_refused(tokenless.integer("block_count", 1), "token_embd.weight");
  ModelFile scaled = llama();
  expect_refused(scaled.text("llama.rope.scaling.type", "ntk"), "rope.scaling.type is \"ntk\"");
}

TEST(Gguf, ListsByLayerAreReadAndModulesBehindTheLastLayerLeftOut) {
  ModelFile file("jamba");
  file.integer("block_count", 3).integer("nextn_predict_layers", 1).integer("embedding_length", 8);
  file.integer("attention.head_count", 2).integers("attention.head_count_kv", {0, 1, 1});
  file.tensor("token_embd.weight", {5, 8}).tensor("blk.1.attn_norm.weight", {8}).tensor("blk.2.attn_norm.weight", {8});
  const std::filesystem::path path = file.write();
  const std::vector<GgufFile> files = open_gguf(path);
  std::filesystem::remove(path);
  const GgufKeys keys(files);
  EXPECT_EQ(keys.layers(), 2);
  EXPECT_THAT(keys.per_layer("attention.head_count_kv"), ElementsAre(0, 1));
  EXPECT_THAT(keys.per_layer("attention.head_count"), ElementsAre(2, 2)) << "one number for all";
  EXPECT_THAT(keys.per_layer("feed_forward_length", 7), ElementsAre(7, 7));
  EXPECT_THAT(attention_layers(keys), ElementsAre(false, true));
  EXPECT_THAT(sliding_layers(keys, 2), ElementsAre(true, false));
  EXPECT_THROW(static_cast<void>(keys.per_layer("nowhere")), Error);
  ModelFile two("llama");
  two.integer("block_count", 3).integer("embedding_length", 8).integers("attention.head_count", {2, 2});
  expect_refused(two.tensor("token_embd.weight", {5, 8}), "llama.attention.head_count has 2 numbers for 3 layers");
}

TEST(Gguf, ATensorThatNoRuleKnowsKeepsItsName) {
  const Opened opened(llama().tensor("blk.0.attn_twist.weight", {8}).tensor("blk.1.attn_norm.weight", {8}));
  EXPECT_TRUE(opened.has("blk.0.attn_twist.weight")) << "so that loading names it";
  EXPECT_FALSE(opened.has("blk.1.attn_norm.weight")) << "of a module behind the last layer";
  EXPECT_TRUE(opened.config()["tie_word_embeddings"].get<bool>());
  EXPECT_FALSE(Opened(llama().tensor("output.weight", {5, 8})).config()["tie_word_embeddings"].get<bool>());
}

TEST(Gguf, RopesAreScaledAsTheKeysOrTheFactorsSay) {
  const auto rope = [](ModelFile file) { return Opened(file).config()["rope_parameters"]; };
  EXPECT_EQ(rope(llama())["rope_type"], "default");
  const auto linear = rope(llama().text("llama.rope.scaling.type", "linear").number("rope.scaling.factor", 4));
  EXPECT_EQ(linear["factor"], 4);
  const auto yarn = rope(llama().text("llama.rope.scaling.type", "yarn").number("rope.scaling.factor", 8));
  EXPECT_EQ(yarn["original_max_position_embeddings"], 64);
  EXPECT_EQ(yarn["beta_fast"], 32);
  const auto factors = rope(llama().tensor("rope_freqs.weight", {2}, {1, 8}));
  EXPECT_EQ(factors["rope_type"], "factors");
  EXPECT_EQ(factors["factors"], (std::vector<float>{1, 8}));
  EXPECT_DOUBLE_EQ(rope(llama().integer("rope.dimension_count", 2))["partial_rotary_factor"].get<double>(), 0.5);
}

}  // namespace
}  // namespace medley
