#!/usr/bin/env python3
"""The golden set's families with a state: short convolutions, Mamba beside attention, linear attention.

    python tools/golden_families_state.py --out tests/golden [--only bamba,lfm2]

make_golden.py writes the folders; here are the sizes, odd on purpose, and what these families need of the random
values. Every multiplier differs from one, every optional bias is there, time step limits are tight enough to clamp.
"""
import copy

import torch
from torch import nn

import make_golden
from make_golden import rope

MAMBA_BLOCK = dict(mamba_d_state=12, mamba_d_conv=3, mamba_expand=2, mamba_chunk_size=5, mamba_conv_bias=True)
GRANITE = dict(vocab_size=149, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5,
               mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2, embedding_multiplier=3.0, logits_scaling=1.7,
               residual_multiplier=0.6, attention_multiplier=0.2, max_position_embeddings=128, **MAMBA_BLOCK)
FALCON_H1 = dict(vocab_size=149, hidden_size=44, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=12, rms_norm_eps=1e-5, mamba_d_ssm=60, mamba_n_heads=6, mamba_d_head=10,
                 lm_head_multiplier=0.7, embedding_multiplier=1.9, mlp_multipliers=[0.8, 1.3], key_multiplier=0.6,
                 attention_out_multiplier=1.2, attention_in_multiplier=0.9, ssm_in_multiplier=1.25,
                 ssm_multipliers=[0.9, 1.2, 0.8, 1.1, 0.7], ssm_out_multiplier=0.85, max_position_embeddings=128,
                 rope_parameters=rope(20000.0), **MAMBA_BLOCK)
DELTA_NET = dict(vocab_size=149, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=20,
                 rms_norm_eps=1e-6, linear_conv_kernel_dim=3, linear_key_head_dim=12, linear_value_head_dim=10,
                 linear_num_key_heads=2, linear_num_value_heads=6, max_position_embeddings=128,
                 rope_parameters=dict(rope_type="default", rope_theta=30000.0, partial_rotary_factor=0.4))


class QwenMtp(nn.Module):
    """The module of the published mtp.* tensors, put together from transformers' own layer and norm: transformers names
    these tensors only to skip them. fc[norm(embedding), norm(hidden)], one attention layer, a norm; the model's head."""

    def __init__(self, model):
        super().__init__()
        config = copy.deepcopy(model.config)
        config.layer_types = ["full_attention"]
        norm, width = type(model.model.norm), config.hidden_size
        self.pre_fc_norm_embedding = norm(width, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm(width, eps=config.rms_norm_eps)
        self.fc = nn.Linear(2 * width, width, bias=False)
        self.layers = nn.ModuleList([type(model.model.layers[0])(config, 0)])
        self.norm = norm(width, eps=config.rms_norm_eps)

    def tensors(self):
        return {"mtp." + name: value.detach().clone() for name, value in self.state_dict().items()}

    def forward(self, model, ids):
        hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
        embeds, positions = model.model.embed_tokens(ids[:, 1:]), torch.arange(1, ids.shape[1])[None]
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embeds), self.pre_fc_norm_hidden(hidden)], dim=-1))
        length = x.shape[1]
        mask = torch.full((length, length), torch.finfo(torch.float32).min).triu(1)[None, None]
        x = self.layers[0](x, position_embeddings=model.model.rotary_emb(x, positions), attention_mask=mask,
                           position_ids=positions)
        return model.lm_head(self.norm(x))


FAMILIES = {
    "falcon_mamba": ("falcon_mamba", 401, "bf16", dict(
        vocab_size=149, hidden_size=52, state_size=12, num_hidden_layers=3, expand=2, conv_kernel=3, time_step_rank=5,
        use_bias=True, use_conv_bias=True, mixer_rms_eps=1e-3, tie_word_embeddings=False, layer_norm_epsilon=1e-5)),
    # Half of each head is rotated.
    "bamba": ("bamba", 402, "bf16", dict(
        vocab_size=149, hidden_size=48, intermediate_size=68, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=20, attn_layer_indices=[1], mamba_n_heads=6, mamba_d_head=16,
        mamba_n_groups=3, mamba_proj_bias=True, time_step_limit=(0.5, 1.4), attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, rms_norm_eps=1e-5, max_position_embeddings=128, rope_parameters=dict(
            rope_type="default", rope_theta=15000.0, partial_rotary_factor=0.5), **MAMBA_BLOCK)),
    "granitemoehybrid": ("granitemoehybrid", 403, "bf16", dict(
        intermediate_size=20, shared_intermediate_size=36, num_hidden_layers=3, num_local_experts=5,
        num_experts_per_tok=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
        position_embedding_type="rope", mamba_proj_bias=True, attention_bias=True, tie_word_embeddings=True,
        time_step_limit=(0.5, 1.4), rope_parameters=rope(20000.0), **GRANITE)),
    # As the small Granite 4 models: no experts, no position embedding.
    "granitemoehybrid_dense": ("granitemoehybrid", 404, "bf16", dict(
        intermediate_size=20, shared_intermediate_size=76, num_hidden_layers=3, num_local_experts=0,
        num_experts_per_tok=0, layer_types=["linear_attention", "linear_attention", "full_attention"],
        position_embedding_type=None, tie_word_embeddings=False, **GRANITE)),
    "lfm2": ("lfm2", 405, "bf16", dict(
        vocab_size=163, hidden_size=48, intermediate_size=76, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=3, conv_L_cache=4, conv_bias=True, block_auto_adjust_ff_dim=True,
        block_ffn_dim_multiplier=1.3, block_multiple_of=8, layer_types=["conv", "full_attention", "conv", "conv"],
        tie_word_embeddings=True, norm_eps=1e-5, max_position_embeddings=128, rope_parameters=rope(50000.0))),
    "lfm2_moe": ("lfm2_moe", 406, "bf16", dict(
        vocab_size=149, hidden_size=48, intermediate_size=76, moe_intermediate_size=20, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, conv_L_cache=3, num_dense_layers=1, num_experts=7,
        num_experts_per_tok=3, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.4,
        layer_types=["conv", "full_attention", "conv", "full_attention"], tie_word_embeddings=True, norm_eps=1e-5,
        max_position_embeddings=128, rope_parameters=rope(50000.0))),
    "nemotron_h": ("nemotron_h", 407, "bf16", dict(
        vocab_size=149, hidden_size=48, intermediate_size=76, num_attention_heads=4, num_key_value_heads=2,
        head_dim=20, layers_block_type=["linear_attention", "moe", "full_attention", "mlp", "linear_attention", "moe"],
        mamba_num_heads=6, mamba_head_dim=12, n_groups=3, ssm_state_size=12, conv_kernel=3, chunk_size=5,
        use_bias=True, use_conv_bias=True, mlp_bias=True, time_step_min=0.6, moe_intermediate_size=20,
        moe_shared_expert_intermediate_size=28, n_routed_experts=6, num_experts_per_tok=2, n_group=3, topk_group=2,
        norm_topk_prob=True, routed_scaling_factor=1.6, tie_word_embeddings=False, layer_norm_epsilon=1e-5,
        max_position_embeddings=128)),
    # decoder_sparse_step 2: layers 1 and 3 have experts.
    "qwen3_next": ("qwen3_next", 408, "bf16", dict(
        intermediate_size=44, moe_intermediate_size=20, shared_expert_intermediate_size=28, num_hidden_layers=4,
        num_experts=5, num_experts_per_tok=2, norm_topk_prob=False, decoder_sparse_step=2, attention_bias=True,
        layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        tie_word_embeddings=True, **DELTA_NET), QwenMtp),
    "qwen3_5": ("qwen3_5_text", 409, "bf16", dict(
        intermediate_size=76, num_hidden_layers=4, attention_bias=True, tie_word_embeddings=True,
        layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"], **DELTA_NET)),
    "falcon_h1": ("falcon_h1", 410, "bf16", dict(
        intermediate_size=68, mamba_n_groups=2, mamba_rms_norm=True, mamba_norm_before_gate=False,
        tie_word_embeddings=False, time_step_limit=(0.5, 1.4), **FALCON_H1)),
    "falcon_h1_plain": ("falcon_h1", 411, "bf16", dict(
        intermediate_size=68, mamba_n_groups=3, mamba_rms_norm=False, projectors_bias=True, mlp_bias=True,
        tie_word_embeddings=True, **FALCON_H1)),
    # float32, because transformers keeps tables of decays in the file, which bfloat16 would round.
    "minimax": ("minimax", 412, "f32", dict(
        vocab_size=131, hidden_size=36, intermediate_size=12, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=10, num_local_experts=4, num_experts_per_tok=2, block_size=5,
        layer_types=["linear_attention", "full_attention", "linear_attention"], full_attn_alpha_factor=1.4,
        full_attn_beta_factor=0.8, linear_attn_alpha_factor=1.2, linear_attn_beta_factor=0.9, mlp_alpha_factor=0.7,
        mlp_beta_factor=1.3, tie_word_embeddings=True, rms_norm_eps=1e-5, max_position_embeddings=128,
        rope_parameters=rope(50000.0))),
    "kimi_linear": ("kimi_linear", 413, "bf16", dict(
        vocab_size=131, hidden_size=48, intermediate_size=68, moe_intermediate_size=16, num_hidden_layers=4,
        num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=10, linear_num_heads=3, linear_head_dim=10, linear_conv_kernel_dim=3,
        num_local_experts=6, num_experts_per_tok=2, n_shared_experts=2, n_group=3, topk_group=2, norm_topk_prob=True,
        routed_scaling_factor=1.8, layer_types=["linear_attention", "full_attention", "linear_attention",
                                                "linear_attention"],
        mlp_layer_types=["dense", "sparse", "sparse", "sparse"], tie_word_embeddings=False, rms_norm_eps=1e-5,
        max_position_embeddings=128)),
    # Two blocks serve three hybrid layers: the third shares the first one's weights with an adapter of its own.
    "zamba2": ("zamba2", 414, "bf16", dict(
        vocab_size=131, hidden_size=32, intermediate_size=36, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, layers_block_type=["linear_attention", "hybrid", "hybrid", "hybrid"], mamba_d_state=10,
        mamba_d_conv=3, mamba_expand=2, mamba_ngroups=2, n_mamba_heads=4, chunk_size=5, time_step_min=0.6,
        num_mem_blocks=2, use_shared_attention_adapter=True, adapter_rank=3, use_mem_rope=True, add_bias_linear=True,
        use_conv_bias=True, hidden_act="gelu", tie_word_embeddings=True, rms_norm_eps=1e-5,
        max_position_embeddings=128, rope_parameters=rope(20000.0))),
}

COMPUTED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")  # MiniMax's buffers follow from the config


def randomize(name, shape, base, tied, g, usual=make_golden.randomize):
    if name.endswith("expert_bias"):
        return 0.2 * torch.randn(shape, generator=g)
    if name.endswith("weight") and len(shape) == 1:  # around zero where the norm adds one
        return base + 0.2 * torch.randn(shape, generator=g)
    return usual(name, shape, base, tied, g)


@torch.no_grad()
def fill(module, tied, g, f16, usual=make_golden.fill):
    kept = {name: value.clone() for name, value in module.state_dict().items() if name.endswith(COMPUTED)}
    usual(module, tied, g, f16)
    for name, value in kept.items():
        module.state_dict()[name].copy_(value)


if __name__ == "__main__":
    make_golden.FAMILIES = FAMILIES
    make_golden.randomize = randomize
    make_golden.fill = fill
    make_golden.main()
