#!/usr/bin/env python3
"""The golden set's families with windows, sinks, sparse attention and mixtures of experts.

    python tools/golden_families_window_moe.py --out tests/golden [--only olmoe,gpt_oss]

make_golden.py writes the folders; here are the sizes, odd on purpose, and what these families need of the random
values. Every multiplier differs from one, every optional bias is there, windows and index_topk are shorter than the
prompt, gpt-oss's gates reach beyond their limits.
"""
import torch
from safetensors.torch import load_file, save_file

import make_golden
from make_golden import rope, yarn

SMALL = dict(vocab_size=149, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128)
GRANITE = dict(hidden_size=48, intermediate_size=16, num_local_experts=5, num_experts_per_tok=3, rms_norm_eps=1e-5,
               embedding_multiplier=3.0, logits_scaling=1.7, residual_multiplier=0.6, attention_multiplier=0.2,
               rope_parameters=rope(20000.0), **SMALL)

FAMILIES = {
    "olmoe": ("olmoe", 501, "bf16", dict(
        vocab_size=149, hidden_size=48, intermediate_size=16, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True, attention_bias=True,
        tie_word_embeddings=False, rms_norm_eps=1e-5, max_position_embeddings=128, rope_parameters=rope(20000.0))),
    # Layer 1 is dense; layers 0 and 2 have a window.
    "qwen2_moe": ("qwen2_moe", 502, "bf16", dict(
        hidden_size=48, intermediate_size=44, moe_intermediate_size=16, shared_expert_intermediate_size=28,
        num_experts=5, num_experts_per_tok=2, norm_topk_prob=True, mlp_only_layers=[1], use_sliding_window=True,
        sliding_window=5, max_window_layers=3, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters=rope(30000.0), **SMALL)),
    "glm4_moe_mtp": ("glm4_moe", 504, "bf16", dict(
        hidden_size=44, intermediate_size=60, moe_intermediate_size=16, head_dim=12, n_routed_experts=6,
        num_experts_per_tok=2, n_shared_experts=2, n_group=3, topk_group=2, first_k_dense_replace=1,
        norm_topk_prob=True, routed_scaling_factor=1.4, use_qk_norm=True, attention_bias=True,
        num_nextn_predict_layers=1, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=dict(
            rope_type="default", rope_theta=30000.0, partial_rotary_factor=0.5), **SMALL)),
    "gemma3": ("gemma3_text", 505, "bf16", dict(
        vocab_size=149, hidden_size=44, intermediate_size=60, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, query_pre_attn_scalar=9, sliding_window=5, attention_bias=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        final_logit_softcapping=5.0, tie_word_embeddings=True, rms_norm_eps=1e-5, max_position_embeddings=128,
        rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=2.0),
                             sliding_attention=rope(3000.0)))),
    "granite": ("granite", 511, "bf16", dict(
        vocab_size=59, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, embedding_multiplier=3.0,
        attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=1.7, rms_norm_eps=1e-5,
        max_position_embeddings=128, rope_parameters=rope(30000.0))),
    "granitemoe": ("granitemoe", 506, "bf16", dict(attention_bias=True, tie_word_embeddings=True, **GRANITE)),
    "granitemoeshared": ("granitemoeshared", 507, "bf16", dict(
        shared_intermediate_size=20, tie_word_embeddings=False, **GRANITE)),
    "gpt_oss": ("gpt_oss", 508, "bf16", dict(
        hidden_size=44, intermediate_size=18, head_dim=12, num_local_experts=5, num_experts_per_tok=3,
        sliding_window=5, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=3.0, beta_fast=8.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=32), **SMALL)),
    "deepseek_v32": ("deepseek_v32", 509, "bf16", dict(
        vocab_size=283, hidden_size=44, intermediate_size=60, moe_intermediate_size=16, num_hidden_layers=3,
        num_attention_heads=3, num_key_value_heads=3, q_lora_rank=22, kv_lora_rank=20, qk_nope_head_dim=10,
        qk_rope_head_dim=8, v_head_dim=14, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=3,
        topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.8, first_k_dense_replace=1, index_n_heads=5,
        index_head_dim=12, index_topk=5, attention_bias=True, tie_word_embeddings=False, rms_norm_eps=1e-6,
        max_position_embeddings=128, rope_parameters=yarn(10000.0, 4.0, 1.0, 0.6))),
}


def randomize(name, shape, base, tied, g, usual=make_golden.randomize):
    if name.endswith("sinks"):
        return torch.randn(shape, generator=g)
    if name.endswith("_proj_bias"):  # of gpt-oss's experts
        return 0.3 * torch.randn(shape, generator=g)
    if name.endswith("norm.weight"):  # around zero where the norm adds one
        return base + 0.2 * torch.randn(shape, generator=g)
    value = usual(name, shape, base, tied, g)
    # [experts, hidden, 2 x intermediate]: wide enough for the clamps
    return 3 * value if name.endswith("experts.gate_up_proj") and shape[-2] % 2 == 0 and shape[-1] == 36 else value


# Where the index scores of two keys tie at exactly zero, transformers takes one by the internals of torch.topk, which
# depend on the whole prompt's length. Prompts and continuations are cut before the first such token.
# folder: {K: (tokens, greedy steps)}
CUTS = {"deepseek_v32": {0: (30, 0), 2: (12, 19)}}


def make(folder, *family, usual=make_golden.make):
    usual(folder, *family)
    if folder.name in CUTS:
        values = load_file(folder / "expected.safetensors")
        for k, (tokens, steps) in CUTS[folder.name].items():
            for name, length in ("input_ids", tokens), ("logits", tokens), ("greedy", steps), ("greedy_gap", steps):
                values[f"{name}.{k}"] = values[f"{name}.{k}"][:length].clone()
        save_file(values, folder / "expected.safetensors")


if __name__ == "__main__":
    make_golden.FAMILIES = FAMILIES
    make_golden.make = make
    make_golden.randomize = randomize
    make_golden.main()
