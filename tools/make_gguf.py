#!/usr/bin/env python3
"""Writes GGUF files from small Hugging Face checkpoints, with the conventions of llama.cpp's convert_hf_to_gguf.py.

    make_gguf.py CHECKPOINT OUT.gguf [--types mixed] [--split-kv-b] [--layers 0,2] [--f32-twin OUT2.gguf]

The checkpoints of tests/golden have no tokenizer, so the files have none either (tokenizer.ggml.model "no_vocab"), unless
--tokenizer names a folder whose tokenizer.json is written into the file. --types f32 keeps every value; mixed stores
matrices as Q8_0, Q4_0, Q5_1, F16, ... by turns, where rows are whole blocks. --f32-twin writes the file again with every
tensor as float32, of exactly the values that the compressed ones stand for: a reference that llama.cpp computes without
rounding activations to 8 bits. Needs the packages numpy, safetensors and gguf.
"""

import argparse
import json
import pathlib
import re

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

F32 = gguf.GGMLQuantizationType.F32


def read_checkpoint(folder):
    """Tensors as float32, by name; bf16 is read by hand, numpy has no such type."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        for name, info in json.loads(raw[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = info["data_offsets"]
            data = raw[8 + size + begin : 8 + size + end]
            if info["dtype"] == "BF16":
                values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(data, {"F32": np.float32, "F16": np.float16}[info["dtype"]]).astype(np.float32)
            tensors[name] = values.reshape(info["shape"])
    return tensors


def permute(weights, heads):
    """Rows of each head from halves to neighbours: ggml's plain rope turns neighbouring pairs."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(
        weights.shape
    )


def llama3_factors(rope, head_dim):
    freqs = 1.0 / (rope["rope_theta"] ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim))
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for freq in freqs:
        length = 2 * np.pi / freq
        if length < high:
            factors.append(1.0)
        elif length > low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


# Names that most families share: Hugging Face's part behind "layers.N." to GGUF's part behind "blk.N.".
USUAL = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.E.gate_proj": "ffn_gate_exps",
    "mlp.experts.E.up_proj": "ffn_up_exps",
    "mlp.experts.E.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
SSM = {
    "in_proj": "ssm_in",
    "conv1d": "ssm_conv1d",
    "x_proj": "ssm_x",
    "dt_proj": "ssm_dt",
    "dt_layernorm": "ssm_dt_norm",
    "b_layernorm": "ssm_b_norm",
    "c_layernorm": "ssm_c_norm",
    "norm": "ssm_norm",
    "out_proj": "ssm_out",
}
OTHER = {
    "gemma3_text": {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    "gpt_oss": {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"},
    "qwen3_next": {
        "post_attention_layernorm": "post_attention_norm",
        "linear_attn.conv1d": "ssm_conv1d",
        "linear_attn.norm": "ssm_norm",
        "linear_attn.out_proj": "ssm_out",
        "linear_attn.in_proj_ba": "ssm_ba",
    },
    "deepseek": {
        "self_attn.q_a_proj": "attn_q_a",
        "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b",
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm",
        "self_attn.kv_b_proj": "attn_kv_b",
    },
    "mixtral": {
        "block_sparse_moe.gate": "ffn_gate_inp",
        "block_sparse_moe.experts.E.w1": "ffn_gate_exps",
        "block_sparse_moe.experts.E.w3": "ffn_up_exps",
        "block_sparse_moe.experts.E.w2": "ffn_down_exps",
    },
    "mamba": {"norm": "attn_norm"} | {"mixer." + hf: name for hf, name in SSM.items()},
    "jamba": {
        "pre_ff_layernorm": "ffn_norm",
        "feed_forward.router": "ffn_gate_inp",
        "feed_forward.gate_proj": "ffn_gate",
        "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down",
        "feed_forward.experts.E.gate_proj": "ffn_gate_exps",
        "feed_forward.experts.E.up_proj": "ffn_up_exps",
        "feed_forward.experts.E.down_proj": "ffn_down_exps",
    }
    | {"mamba." + hf: name for hf, name in SSM.items()},
    "granitemoehybrid": {
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "block_sparse_moe.output_linear": "ffn_down_exps",
    }
    | {"mamba." + hf: name for hf, name in SSM.items()},
    "lfm2": {
        "operator_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "conv.conv": "shortconv.conv",
        "conv.in_proj": "shortconv.in_proj",
        "conv.out_proj": "shortconv.out_proj",
        "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm",
        "self_attn.k_layernorm": "attn_k_norm",
        "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down",
        "feed_forward.gate": "ffn_gate_inp",
        "feed_forward.experts.E.w1": "ffn_gate_exps",
        "feed_forward.experts.E.w3": "ffn_up_exps",
        "feed_forward.experts.E.w2": "ffn_down_exps",
    },
    "nemotron_h": {
        "norm": "attn_norm",
        "mixer.q_proj": "attn_q",
        "mixer.k_proj": "attn_k",
        "mixer.v_proj": "attn_v",
        "mixer.o_proj": "attn_output",
        "mixer.up_proj": "ffn_up",
        "mixer.down_proj": "ffn_down",
        "mixer.gate": "ffn_gate_inp",
        "mixer.experts.E.up_proj": "ffn_up_exps",
        "mixer.experts.E.down_proj": "ffn_down_exps",
        "mixer.shared_experts.up_proj": "ffn_up_shexp",
        "mixer.shared_experts.down_proj": "ffn_down_shexp",
    }
    | {"mixer." + hf: name for hf, name in SSM.items()},
}
OTHER["mamba2"] = OTHER["mamba"]
OTHER["lfm2_moe"] = OTHER["lfm2"]
OTHER["deepseek_v2"] = OTHER["deepseek_v3"] = OTHER["deepseek"]

ARCHITECTURE = {
    "llama": "llama",
    "mixtral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt-oss",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "mamba": "mamba",
    "mamba2": "mamba2",
    "jamba": "jamba",
    "granitemoehybrid": "granitehybrid",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "olmoe": "olmoe",
    "nemotron_h": "nemotron_h",
    "qwen3_next": "qwen3next",
}


class Converter:
    def __init__(self, folder, split_kv_b=False, layers=None, experts=None, vocab=None, **fields):
        self.config = json.loads((pathlib.Path(folder) / "config.json").read_text()) | fields
        self.family = self.config["model_type"]
        self.tensors = read_checkpoint(folder)
        self.split_kv_b = split_kv_b
        if layers is not None:
            self.keep_layers(layers)
        if experts is not None:
            self.keep_experts(experts)
        if vocab is not None:
            self.keep_vocab(vocab)
        if self.family == "olmoe":
            self.repeat_key_heads()
        self.out = {}
        self.keys = {}
        self.convert_tensors()
        self.convert_config()

    def keep_layers(self, layers):
        """Only these layers, numbered anew: llama.cpp knows some mixtures of layers only apart."""
        kept = {}
        for name, value in self.tensors.items():
            match = re.match(r"(.*layers\.)(\d+)(\..*)", name)
            if match is None:
                kept[name] = value
            elif int(match[2]) in layers:
                kept[f"{match[1]}{layers.index(int(match[2]))}{match[3]}"] = value
        self.tensors = kept
        self.config["num_hidden_layers"] = len(layers)
        for field in ("layer_types", "layers_block_type"):
            if self.config.get(field):
                self.config[field] = [self.config[field][layer] for layer in layers]

    def repeat_key_heads(self):
        """As many key heads as query heads, which llama.cpp wants here; the model computes the same."""
        c = self.config
        times, heads = c["num_attention_heads"] // c["num_key_value_heads"], c["num_key_value_heads"]
        for name, value in self.tensors.items():
            if re.search(r"self_attn\.(k_proj|v_proj|k_norm)\.", name):
                rows = value.reshape(heads, -1, *value.shape[1:])
                self.tensors[name] = np.repeat(rows, times, axis=0).reshape(-1, *value.shape[1:])
        c["num_key_value_heads"] = c["num_attention_heads"]

    def keep_experts(self, count):
        """The first experts and their rows of the router."""
        for field in ("num_local_experts", "num_experts", "n_routed_experts"):
            if self.config.get(field):
                self.config[field] = count
        kept = {}
        for name, value in self.tensors.items():
            expert = re.search(r"experts\.(\d+)\.", name)
            stacked = ("mlp.experts.", "block_sparse_moe.input_linear", "block_sparse_moe.output_linear")
            router = ("router.weight", "router.bias", "router.layer.weight", "gate.weight", "correction_bias", "expert_bias")
            if expert and int(expert[1]) >= count:
                continue
            if not expert and (any(part in name for part in stacked) or name.endswith(router)):
                value = value[:count]
            kept[name] = value
        self.tensors = kept

    def keep_vocab(self, size):
        self.config["vocab_size"] = size
        for name in ("model.embed_tokens.weight", "backbone.embeddings.weight", "lm_head.weight"):
            if name in self.tensors:
                self.tensors[name] = self.tensors[name][:size]

    # -- tensors

    def convert_tensors(self):
        names = USUAL | OTHER.get(self.family, {})
        experts = {}
        for name, value in self.tensors.items():
            match = re.match(r"(?:model|backbone)\.layers\.(\d+)\.(.+?)(\.weight|\.bias|)$", name)
            if match is None:
                self.add(self.global_name(name), self.norm_offset(name, value))
                continue
            layer, part, suffix = int(match[1]), match[2], match[3]
            expert = re.search(r"experts\.(\d+)\.", part)
            if expert:
                stacked = names[part.replace(expert[0], "experts.E.")]
                experts.setdefault((layer, stacked, suffix), {})[int(expert[1])] = value
            elif not self.special(layer, part, suffix, value):
                value = self.changed(part, value)
                self.add(f"blk.{layer}.{names[part]}{suffix}", self.norm_offset(name, value))
        for (layer, stacked, suffix), parts in experts.items():
            self.add(f"blk.{layer}.{stacked}{suffix}", np.stack([parts[e] for e in range(len(parts))]))

    def add(self, name, value):
        if name is not None:
            assert name not in self.out, name
            self.out[name] = np.ascontiguousarray(value, np.float32)

    def global_name(self, name):
        if name.endswith(("embed_tokens.weight", "embeddings.weight")):
            return "token_embd.weight"
        if name == "lm_head.weight":
            return None if self.tied() else "output.weight"
        if self.family.startswith("lfm2"):
            return "token_embd_norm.weight"
        return "output_norm.weight"

    def tied(self):
        default = self.family.startswith(("gemma3", "lfm2")) or self.family == "mamba"
        return self.config.get("tie_word_embeddings", default)

    def norm_offset(self, name, value):
        """Zero-centred norms are stored as what they multiply with."""
        centred = self.family == "gemma3_text" or (self.family == "qwen3_next" and "linear_attn.norm" not in name)
        return value + 1 if centred and name.endswith("norm.weight") else value

    def changed(self, part, value):
        c = self.config
        if self.family in ("llama", "mixtral") or (
            self.family == "granitemoehybrid" and part.startswith("self_attn")
        ):
            if part == "self_attn.q_proj":
                return permute(value, c["num_attention_heads"])
            if part == "self_attn.k_proj":
                return permute(value, c["num_key_value_heads"])
        if part.endswith(("conv1d", "conv.conv")) and value.ndim == 3:
            return value.squeeze(1)
        if part.endswith(("mamba.norm", "mixer.norm")):
            groups = c.get("mamba_n_groups", c.get("n_groups"))
            return value.reshape(groups, -1)
        return value

    def special(self, layer, part, suffix, value):
        """What is more than another name. True: done."""
        at = f"blk.{layer}."
        c = self.config
        column = self.family in ("mamba2", "granitemoehybrid", "nemotron_h")
        if part.endswith("A_log"):
            value = -np.exp(value)
            self.add(at + "ssm_a", value.reshape(-1, 1) if column else value)
        elif part.endswith(".D"):
            self.add(at + "ssm_d", value.reshape(-1, 1) if column else value)
        elif part.endswith("dt_bias"):
            self.add(at + "ssm_dt.bias", value)
        elif part.endswith(("e_score_correction_bias", "expert_bias")):
            self.add(at + "exp_probs_b.bias", value)
        elif part == "self_attn.sinks":
            self.add(at + "attn_sinks.weight", value)
        elif part == "mlp.experts.gate_up_proj" and self.family == "gpt_oss":
            value = value.swapaxes(-1, -2)
            self.add(at + "ffn_gate_exps.weight", value[:, ::2])
            self.add(at + "ffn_up_exps.weight", value[:, 1::2])
        elif part == "mlp.experts.gate_up_proj_bias":
            self.add(at + "ffn_gate_exps.bias", value[:, ::2])
            self.add(at + "ffn_up_exps.bias", value[:, 1::2])
        elif part == "mlp.experts.down_proj" and self.family == "gpt_oss":
            self.add(at + "ffn_down_exps.weight", value.swapaxes(-1, -2))
        elif part == "mlp.experts.down_proj_bias":
            self.add(at + "ffn_down_exps.bias", value)
        elif part == "block_sparse_moe.input_linear":
            half = value.shape[1] // 2
            self.add(at + "ffn_gate_exps.weight", value[:, :half])
            self.add(at + "ffn_up_exps.weight", value[:, half:])
        elif part in ("shared_mlp.input_linear", "shared_mlp.output_linear"):
            end = "_shexp" if c.get("num_local_experts") else ""
            half = value.shape[0] // 2
            if part.endswith("output_linear"):
                self.add(f"{at}ffn_down{end}.weight", value)
            else:
                self.add(f"{at}ffn_gate{end}.weight", value[:half])
                self.add(f"{at}ffn_up{end}.weight", value[half:])
        elif part == "linear_attn.in_proj_qkvz":
            heads, k_dim = c["linear_num_key_heads"], c["linear_key_head_dim"]
            v_dim = c["linear_num_value_heads"] // heads * c["linear_value_head_dim"]
            parts = np.split(value.reshape(heads, -1, value.shape[1]), np.cumsum([k_dim, k_dim, v_dim]), axis=1)
            flat = [part.reshape(-1, value.shape[1]) for part in parts]
            self.add(at + "attn_qkv.weight", np.concatenate(flat[:3]))
            self.add(at + "attn_gate.weight", flat[3])
        elif part == "mlp.shared_expert_gate":
            self.add(at + "ffn_gate_inp_shexp.weight", value.reshape(-1))
        elif part == "self_attn.kv_b_proj" and self.split_kv_b:
            heads, nope, v_dim = c["num_attention_heads"], c["qk_nope_head_dim"], c["v_head_dim"]
            k_b, v_b = np.split(value.reshape(heads, nope + v_dim, -1), [nope], axis=1)
            self.add(at + "attn_k_b.weight", k_b.swapaxes(1, 2))
            self.add(at + "attn_v_b.weight", v_b)
        else:
            return False
        return True

    # -- metadata

    def key(self, name, value):
        if value is not None:
            self.keys[name] = value

    def usual_keys(self):
        c = self.config
        self.key("block_count", c.get("num_hidden_layers") or len(c["layers_block_type"]))
        self.key("context_length", c.get("max_position_embeddings", 2**20))
        self.key("embedding_length", c["hidden_size"])
        self.key("feed_forward_length", c.get("intermediate_size"))
        self.key("attention.head_count", c.get("num_attention_heads"))
        self.key("attention.head_count_kv", c.get("num_key_value_heads"))
        for field in ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"):
            if field in c:
                self.key("attention.layer_norm_rms_epsilon", float(c[field]))
        self.key("expert_count", c.get("num_local_experts") or c.get("num_experts") or c.get("n_routed_experts"))
        if self.keys.get("expert_count"):
            self.key("expert_used_count", c.get("num_experts_per_tok"))
        self.key("attention.key_length", c.get("head_dim"))
        self.key("attention.value_length", c.get("head_dim"))
        self.key("vocab_size", c["vocab_size"])
        rope = c.get("rope_parameters") or {}
        rope = rope.get("full_attention", rope)
        if "rope_theta" in rope:
            self.key("rope.freq_base", float(rope["rope_theta"]))
        if rope.get("rope_type") in ("linear", "yarn"):
            self.key("rope.scaling.type", rope["rope_type"])
            self.key("rope.scaling.factor", float(rope["factor"]))
        if rope.get("rope_type") == "yarn":
            self.key("rope.scaling.original_context_length", rope["original_max_position_embeddings"])
            self.key("rope.scaling.yarn_beta_fast", float(rope["beta_fast"]))
            self.key("rope.scaling.yarn_beta_slow", float(rope["beta_slow"]))
            factor = rope.get("attention_factor")
            if factor is None and "mscale" in rope and not self.family.startswith("deepseek"):
                scales = [0.1 * rope[name] * np.log(rope["factor"]) + 1 for name in ("mscale", "mscale_all_dim")]
                factor = float(scales[0] / scales[1])
            self.key("rope.scaling.yarn_attn_factor", factor)
        if rope.get("rope_type") == "llama3":
            dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
            self.out["rope_freqs.weight"] = llama3_factors(rope, dim)

    def ssm_keys(self, conv, inner, state, rank, groups=None):
        self.key("ssm.conv_kernel", conv)
        self.key("ssm.inner_size", inner)
        self.key("ssm.state_size", state)
        self.key("ssm.time_step_rank", rank)
        self.key("ssm.group_count", groups)

    def key_heads_of_attention(self, layers, is_attention):
        heads = self.config["num_key_value_heads"]
        self.key("attention.head_count_kv", [heads if is_attention(i) else 0 for i in range(layers)])

    def convert_config(self):
        self.usual_keys()
        c, layers = self.config, self.keys["block_count"]
        special = getattr(self, "config_of_" + self.family, None)
        if special:
            special(c, layers)

    def config_of_llama(self, c, layers):
        self.key("rope.dimension_count", c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])

    config_of_mixtral = config_of_llama

    def config_of_qwen3_moe(self, c, layers):
        self.key("expert_feed_forward_length", c["moe_intermediate_size"])

    def config_of_gemma3_text(self, c, layers):
        rope = c["rope_parameters"]
        self.key("rope.freq_base_swa", float(rope["sliding_attention"]["rope_theta"]))
        self.key("attention.sliding_window", c["sliding_window"])
        sliding = [kind == "sliding_attention" for kind in c["layer_types"]]
        if sliding != [(i + 1) % 6 != 0 for i in range(layers)]:
            self.key("attention.sliding_window_pattern", sliding)
        self.key("final_logit_softcapping", c.get("final_logit_softcapping"))

    def config_of_gpt_oss(self, c, layers):
        self.key("attention.sliding_window", c["sliding_window"])
        sliding = [kind == "sliding_attention" for kind in c["layer_types"]]
        if sliding != [i % 2 == 0 for i in range(layers)]:
            self.key("attention.sliding_window_pattern", sliding)
        self.key("expert_feed_forward_length", c["intermediate_size"])

    def config_of_deepseek_v2(self, c, layers):
        nope, rope, v_dim = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        if self.split_kv_b:
            self.key("attention.head_count_kv", 1)
            self.key("attention.key_length", c["kv_lora_rank"] + rope)
            self.key("attention.value_length", c["kv_lora_rank"])
            self.key("attention.key_length_mla", nope + rope)
            self.key("attention.value_length_mla", v_dim)
        else:
            self.key("attention.key_length", nope + rope)
            self.key("attention.value_length", v_dim)
        # llama.cpp tells the lite models, which have none, by their 27 layers; of a smaller one it wants the key.
        self.key("attention.q_lora_rank", c.get("q_lora_rank") or 0)
        self.key("attention.kv_lora_rank", c["kv_lora_rank"])
        self.key("leading_dense_block_count", c["first_k_dense_replace"])
        self.key("expert_feed_forward_length", c["moe_intermediate_size"])
        self.key("expert_shared_count", c["n_shared_experts"])
        self.key("expert_weights_scale", float(c["routed_scaling_factor"]))
        self.key("expert_weights_norm", True if c["norm_topk_prob"] else None)
        self.key("expert_group_count", c.get("n_group"))
        self.key("expert_group_used_count", c.get("topk_group"))
        self.key("rope.dimension_count", rope)
        self.key("rope.scaling.yarn_log_multiplier", 0.1 * c["rope_parameters"]["mscale_all_dim"])

    def config_of_deepseek_v3(self, c, layers):
        self.config_of_deepseek_v2(c, layers)
        self.key("expert_gating_func", int(gguf.ExpertGatingFuncType.SIGMOID))

    def config_of_mamba(self, c, layers):
        self.key("feed_forward_length", 0)
        self.key("attention.head_count", 0)
        self.ssm_keys(c["conv_kernel"], c["intermediate_size"], c["state_size"], c["time_step_rank"])
        self.key("ssm.dt_b_c_rms", False)

    def config_of_mamba2(self, c, layers):
        self.key("feed_forward_length", 0)
        self.key("attention.head_count", 0)
        for name in ("attention.key_length", "attention.value_length"):
            del self.keys[name]
        inner = c["expand"] * c["hidden_size"]
        self.ssm_keys(c["conv_kernel"], inner, c["state_size"], inner // c["head_dim"], c["n_groups"])

    def config_of_jamba(self, c, layers):
        inner = c["mamba_expand"] * c["hidden_size"]
        self.key_heads_of_attention(layers, lambda i: i % c["attn_layer_period"] == c["attn_layer_offset"])
        self.ssm_keys(c["mamba_d_conv"], inner, c["mamba_d_state"], c["mamba_dt_rank"])

    def config_of_granitemoehybrid(self, c, layers):
        self.key("attention.scale", float(c["attention_multiplier"]))
        self.key("embedding_scale", float(c["embedding_multiplier"]))
        self.key("residual_scale", float(c["residual_multiplier"]))
        self.key("logit_scale", float(c["logits_scaling"]))
        if c.get("num_local_experts"):
            self.key("expert_shared_feed_forward_length", c["shared_intermediate_size"])
        else:
            self.key("feed_forward_length", c["shared_intermediate_size"])
        inner = c["mamba_expand"] * c["hidden_size"]
        self.ssm_keys(c["mamba_d_conv"], inner, c["mamba_d_state"], c["mamba_n_heads"], c["mamba_n_groups"])
        attention = [kind in ("attention", "full_attention") for kind in c["layer_types"]]
        self.key_heads_of_attention(layers, lambda i: attention[i])
        self.key("rope.scaling.finetuned", c.get("position_embedding_type") == "rope")

    def config_of_lfm2(self, c, layers):
        self.key_heads_of_attention(layers, lambda i: c["layer_types"][i] != "conv")
        self.key("shortconv.l_cache", c["conv_L_cache"])
        self.key("feed_forward_length", self.out["blk.0.ffn_gate.weight"].shape[0])

    def config_of_lfm2_moe(self, c, layers):
        self.key_heads_of_attention(layers, lambda i: c["layer_types"][i] != "conv")
        self.key("shortconv.l_cache", c["conv_L_cache"])
        self.key("expert_feed_forward_length", c["moe_intermediate_size"])
        self.key("leading_dense_block_count", c["num_dense_layers"])
        self.key("expert_gating_func", int(gguf.ExpertGatingFuncType.SIGMOID))

    def config_of_nemotron_h(self, c, layers):
        kinds = c["layers_block_type"]
        experts = "moe" in kinds
        self.key_heads_of_attention(layers, lambda i: kinds[i] == "full_attention")
        self.key("attention.layer_norm_epsilon", float(c["layer_norm_epsilon"]))
        self.ssm_keys(
            c["conv_kernel"], c["mamba_num_heads"] * c["mamba_head_dim"], c["ssm_state_size"], c["mamba_num_heads"],
            c["n_groups"],
        )
        size = c["moe_intermediate_size"] if experts else c["intermediate_size"]
        self.key("feed_forward_length", [size if kind in ("mlp", "moe") else 0 for kind in kinds])
        if not experts:
            for name in ("expert_count", "expert_used_count"):
                self.keys.pop(name, None)
            return
        self.key("expert_feed_forward_length", c["moe_intermediate_size"])
        self.key("expert_shared_feed_forward_length", c["moe_shared_expert_intermediate_size"])
        self.key("expert_shared_count", c["n_shared_experts"])
        self.key("expert_weights_norm", c["norm_topk_prob"])
        self.key("expert_weights_scale", float(c["routed_scaling_factor"]))
        self.key("expert_group_count", c["n_group"])
        if c["n_group"] > 1:
            self.key("expert_group_used_count", c["topk_group"])

    def config_of_qwen3_next(self, c, layers):
        self.key("expert_feed_forward_length", c["moe_intermediate_size"])
        self.key("expert_shared_feed_forward_length", c["shared_expert_intermediate_size"])
        self.ssm_keys(
            c["linear_conv_kernel_dim"], c["linear_value_head_dim"] * c["linear_num_value_heads"],
            c["linear_key_head_dim"], c["linear_num_value_heads"], c["linear_num_key_heads"],
        )
        recurrent = [kind == "linear_attention" for kind in c["layer_types"]]
        self.key("attention.recurrent_layers", recurrent)
        self.key("full_attention_interval", 4)
        self.key("rope.dimension_count", int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"]))

    # -- the file

    def architecture(self):
        if self.family == "nemotron_h" and "expert_count" in self.keys:
            return "nemotron_h_moe"
        return ARCHITECTURE[self.family]


MIXED = ("Q8_0", "Q4_0", "Q5_1", "IQ4_NL", "F16", "Q5_0", "Q4_1", "MXFP4", "BF16", "Q4_K", "Q6_K")


def storage_types(tensors, types):
    """A type for each tensor: vectors and what llama.cpp wants as float32 stay so; matrices take the types by turns."""
    chosen, turn = {}, 0
    for name, value in tensors.items():
        chosen[name] = F32
        matrix = value.ndim >= 2 and not re.search(r"norm|ssm_conv1d|shortconv\.conv|ssm_a|ssm_d|_inp|\.bias", name)
        for _ in range(len(types) if matrix else 0):
            kind = gguf.GGMLQuantizationType[types[turn % len(types)]]
            turn += 1
            if value.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] == 0:
                chosen[name] = kind
                break
    return chosen


def add_tokenizer(writer, folder):
    folder = pathlib.Path(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    model, config = tokenizer["model"], json.loads((folder / "tokenizer_config.json").read_text())
    tokens = {id: (text, gguf.TokenType.NORMAL) for text, id in model["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        tokens[added["id"]] = (added["content"], kind)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens[i][0] for i in range(len(tokens))])
    writer.add_token_types([tokens[i][1] for i in range(len(tokens))])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    ids = {text: id for id, (text, _) in tokens.items()}
    for role in ("bos", "eos"):
        if config.get(role + "_token") in ids:
            getattr(writer, f"add_{role}_token_id")(ids[config[role + "_token"]])
    template = folder / "chat_template.jinja"
    if template.exists():
        writer.add_chat_template(template.read_text())
    elif "chat_template" in config:
        writer.add_chat_template(config["chat_template"])


def write_gguf(path, architecture, keys, tensors, tokenizer=None):
    """tensors: name -> (array as stored, type)."""
    writer = gguf.GGUFWriter(str(path), architecture)
    for name, value in keys.items():
        name = f"{architecture}.{name}"
        if isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, float):
            writer.add_float32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            writer.add_array(name, value)
    if tokenizer is None:
        writer.add_string("tokenizer.ggml.model", "no_vocab")
    else:
        add_tokenizer(writer, tokenizer)
    for name, (value, kind) in tensors.items():
        writer.add_tensor(name, value, raw_dtype=None if kind == F32 else kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--types", default="F32", help="F32, mixed, or names of GGUF types, comma separated")
    parser.add_argument("--split-kv-b", action="store_true", help="deepseek2 as new files have it: attn_k_b and attn_v_b")
    parser.add_argument("--layers", help="only these, comma separated")
    parser.add_argument("--tokenizer", help="a folder with a byte-level BPE tokenizer")
    parser.add_argument("--f32-twin")
    options = parser.parse_args()
    layers = [int(layer) for layer in options.layers.split(",")] if options.layers else None
    made = Converter(options.checkpoint, options.split_kv_b, layers)
    types = MIXED if options.types == "mixed" else options.types.upper().split(",")
    kinds = storage_types(made.out, types)
    stored = {name: (quantize(value, kinds[name]), kinds[name]) for name, value in made.out.items()}
    write_gguf(options.out, made.architecture(), made.keys, stored, options.tokenizer)
    if options.f32_twin:
        twin = {name: (dequantize(value, kind), F32) for name, (value, kind) in stored.items()}
        write_gguf(options.f32_twin, made.architecture(), made.keys, twin, options.tokenizer)


if __name__ == "__main__":
    main()
