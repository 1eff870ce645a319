#!/usr/bin/env python3
"""Write the golden set: tiny random checkpoints and what Hugging Face transformers computes for them.

    python tools/make_golden.py --out tests/golden [--only llama,jamba]

Needs torch, transformers >= 5.17 and safetensors; runs on the CPU in about a minute. Each folder is laid out as a
published checkpoint; tests/golden/README.md says what is in it. The sizes are odd on purpose: widths that are no
multiple of a vector, three KV heads, odd expert counts, windows and chunks shorter than the prompt.
"""
import argparse
import json
import math
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

PROMPT_LENGTHS = (37, 1, 12)
GREEDY_STEPS = 20
TOKENS = dict(bos_token_id=0, eos_token_id=1, pad_token_id=2)


def yarn(theta, factor, mscale, mscale_all_dim, original=32):
    return dict(rope_type="yarn", rope_theta=theta, factor=factor, beta_fast=32, beta_slow=1, mscale=mscale,
                mscale_all_dim=mscale_all_dim, original_max_position_embeddings=original)


def rope(theta):
    return dict(rope_type="default", rope_theta=theta)


# Per family: model_type, seed, how the file is stored ("bf16", "f16", "f32", "sharded"), and the config.
FAMILIES = {
    "llama": ("llama", 101, "bf16", dict(
        vocab_size=163, hidden_size=60, intermediate_size=76, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, head_dim=20, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rms_norm_eps=1e-5, max_position_embeddings=128,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=4.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=24))),
    # Window on the last two layers only: full and sliding layers in one model.
    "qwen2": ("qwen2", 102, "f16", dict(
        vocab_size=157, hidden_size=60, intermediate_size=92, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, tie_word_embeddings=False, rms_norm_eps=1e-6, max_position_embeddings=128,
        use_sliding_window=True, sliding_window=5, max_window_layers=1, rope_parameters=rope(1000000.0))),
    "qwen3": ("qwen3", 12103, "bf16", dict(
        vocab_size=163, hidden_size=48, intermediate_size=84, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, head_dim=20, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-6,
        max_position_embeddings=128,
        rope_parameters=dict(rope_type="linear", rope_theta=50000.0, factor=2.0))),
    "mistral_swa": ("mistral", 104, "bf16", dict(
        vocab_size=151, hidden_size=80, intermediate_size=108, num_hidden_layers=3, num_attention_heads=5,
        num_key_value_heads=1, head_dim=12, tie_word_embeddings=True, rms_norm_eps=1e-5, sliding_window=5,
        max_position_embeddings=128, rope_parameters=rope(30000.0))),
    "mixtral": ("mixtral", 105, "sharded", dict(
        vocab_size=163, hidden_size=48, intermediate_size=36, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=3, num_local_experts=7, num_experts_per_tok=3, tie_word_embeddings=False,
        rms_norm_eps=1e-5, max_position_embeddings=128, rope_parameters=rope(1000000.0))),
    # decoder_sparse_step 2: layers 1 and 3 have experts.
    "qwen3_moe": ("qwen3_moe", 37106, "bf16", dict(
        vocab_size=149, hidden_size=44, intermediate_size=60, moe_intermediate_size=20, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=2, head_dim=20, num_experts=9, num_experts_per_tok=4,
        decoder_sparse_step=2, norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True,
        rms_norm_eps=1e-6, max_position_embeddings=128, rope_parameters=rope(20000.0))),
    "deepseek_v2_lite": ("deepseek_v2", 107, "bf16", dict(
        vocab_size=163, hidden_size=60, intermediate_size=84, moe_intermediate_size=28, num_hidden_layers=3,
        num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=5, num_experts_per_tok=3, n_shared_experts=1,
        first_k_dense_replace=1, topk_method="greedy", n_group=None, topk_group=None, norm_topk_prob=False,
        routed_scaling_factor=1.0, attention_bias=True, tie_word_embeddings=False, rms_norm_eps=1e-6,
        max_position_embeddings=128, rope_parameters=yarn(10000.0, 4.0, 0.707, 0.5))),
    "deepseek_v2": ("deepseek_v2", 108, "bf16", dict(
        vocab_size=163, hidden_size=50, intermediate_size=84, moe_intermediate_size=26, num_hidden_layers=3,
        num_attention_heads=5, num_key_value_heads=5, q_lora_rank=22, kv_lora_rank=28, qk_nope_head_dim=10,
        qk_rope_head_dim=12, v_head_dim=14, n_routed_experts=9, num_experts_per_tok=4, n_shared_experts=2,
        first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=3, topk_group=2,
        norm_topk_prob=False, routed_scaling_factor=1.7, tie_word_embeddings=True, rms_norm_eps=1e-6,
        max_position_embeddings=128, rope_parameters=yarn(25000.0, 3.0, 1.2, 0.8))),
    "deepseek_v3": ("deepseek_v3", 109, "bf16", dict(
        vocab_size=139, hidden_size=54, intermediate_size=60, moe_intermediate_size=12, num_hidden_layers=4,
        num_attention_heads=3, num_key_value_heads=3, q_lora_rank=26, kv_lora_rank=20, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=10, n_routed_experts=15, num_experts_per_tok=4, n_shared_experts=2,
        first_k_dense_replace=2, n_group=5, topk_group=3, norm_topk_prob=True, routed_scaling_factor=2.5,
        num_nextn_predict_layers=0, attention_bias=True, rope_interleave=False, tie_word_embeddings=False,
        rms_norm_eps=1e-6, max_position_embeddings=128, rope_parameters=yarn(10000.0, 4.0, 1.0, 0.6))),
    "deepseek_v3_mtp": ("deepseek_v3", 110, "bf16", dict(
        vocab_size=163, hidden_size=60, intermediate_size=60, moe_intermediate_size=20, num_hidden_layers=3,
        num_attention_heads=3, num_key_value_heads=3, q_lora_rank=26, kv_lora_rank=20, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=1,
        first_k_dense_replace=1, n_group=3, topk_group=2, norm_topk_prob=False, routed_scaling_factor=1.5,
        num_nextn_predict_layers=1, rope_interleave=True, tie_word_embeddings=False, rms_norm_eps=1e-5,
        max_position_embeddings=128, rope_parameters=rope(40000.0))),
    "mamba": ("mamba", 111, "bf16", dict(
        vocab_size=163, hidden_size=52, state_size=12, num_hidden_layers=3, expand=3, conv_kernel=3,
        time_step_rank=5, use_bias=True, use_conv_bias=True, tie_word_embeddings=False, layer_norm_epsilon=1e-5)),
    # The time step limits are tight enough to clamp; chunk_size does not divide any prompt.
    "mamba2": ("mamba2", 112, "bf16", dict(
        vocab_size=163, hidden_size=60, state_size=12, num_hidden_layers=3, expand=2, num_heads=6, head_dim=20,
        n_groups=3, conv_kernel=4, chunk_size=5, time_step_limit=(0.02, 0.25), use_bias=True, use_conv_bias=True,
        tie_word_embeddings=True, layer_norm_epsilon=1e-5)),
    # Layer kinds: mamba+moe, attention, mamba+moe, mamba, attention+moe.
    "jamba": ("jamba", 113, "bf16", dict(
        vocab_size=163, hidden_size=48, intermediate_size=28, num_hidden_layers=5, num_attention_heads=6,
        num_key_value_heads=3, num_experts=5, num_experts_per_tok=3, attn_layer_period=3, attn_layer_offset=1,
        expert_layer_period=2, expert_layer_offset=0, mamba_d_state=12, mamba_d_conv=3, mamba_dt_rank=5,
        mamba_expand=2, mamba_conv_bias=True, mamba_proj_bias=True, use_mamba_kernels=False,
        tie_word_embeddings=True, rms_norm_eps=1e-6, max_position_embeddings=128)),
}


def randomize(name, shape, base, tied, g):
    """A value for one tensor such that a forgotten bias, norm or order shows in the logits."""
    n = torch.randn(shape, generator=g)
    leaf = name.rsplit(".", 1)[-1]
    if leaf in ("A_log", "D", "dt_bias") or name.endswith("dt_proj.bias"):
        return base + 0.3 * n
    if leaf == "e_score_correction_bias":
        return 0.2 * n
    if leaf == "bias":
        return 0.1 * n
    if len(shape) == 1:  # every remaining vector is a norm weight
        return 1 + 0.2 * n
    if "embed" in name:
        return n * (2 / math.sqrt(shape[-1]) if tied else 1.0)
    gain = 2.0 if "lm_head" in name else 1.0
    return gain * n / math.sqrt(shape[-1])  # the last dimension is the fan-in, of fused experts and convolutions too


def fill(module, tied, g, f16):
    state = module.state_dict()
    for name in sorted(state):
        base = state[name]
        if not base.is_floating_point() or (tied and name.startswith("lm_head")):
            continue
        value = randomize(name, base.shape, base.float(), tied, g).to(torch.bfloat16)
        if f16:  # bf16 values that float16 also holds exactly (small ones lose their subnormal tail)
            value = value.to(torch.float16)
        with torch.no_grad():
            base.copy_(value.float())


def mtp_tensors(model, mtp):
    """The MTP layer under its published names: model.layers.{num_hidden_layers}.*, experts unfused."""
    prefix = f"model.layers.{model.config.num_hidden_layers}."
    out = {prefix + "embed_tokens.weight": model.get_input_embeddings().weight,
           prefix + "shared_head.head.weight": model.lm_head.weight}
    for name, value in mtp.layers[0].state_dict().items():
        name = name.removeprefix("mtp_block.").replace("post_norm.", "shared_head.norm.", 1)
        if name.endswith("experts.gate_up_proj"):
            for e, fused in enumerate(value):
                gate, up = fused.chunk(2, dim=0)
                out[f"{prefix}mlp.experts.{e}.gate_proj.weight"] = gate
                out[f"{prefix}mlp.experts.{e}.up_proj.weight"] = up
        elif name.endswith("experts.down_proj"):
            for e, down in enumerate(value):
                out[f"{prefix}mlp.experts.{e}.down_proj.weight"] = down
        else:
            out[prefix + name] = value
    return {k: v.detach().clone().contiguous() for k, v in out.items()}


def add_tensors(folder, extra):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors.update(extra)
    save_file(tensors, path, metadata={"format": "pt"})


def shard(folder, count):
    """Split model.safetensors into `count` files of about the same size, with the usual index."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    total = sum(t.nbytes for t in tensors.values())
    parts, weight_map, seen = [{} for _ in range(count)], {}, 0
    for name in sorted(tensors):
        i = min(seen * count // total, count - 1)
        parts[i][name] = tensors[name]
        weight_map[name] = f"model-{i + 1:05d}-of-{count:05d}.safetensors"
        seen += tensors[name].nbytes
    for i, part in enumerate(parts):
        save_file(part, folder / f"model-{i + 1:05d}-of-{count:05d}.safetensors", metadata={"format": "pt"})
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load_mtp(model):
    """transformers' own loader; it recognises an MTP layer by the number that this attribute names (61 as published)."""
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{model.config.num_hidden_layers}\..*"]
    mtp = MtpModel.from_pretrained(model).eval()
    mtp.config._attn_implementation = "eager"
    mtp.config._experts_implementation = "eager"
    return mtp


def mtp_logits(model, mtp, ids):
    """Row i: from the hidden state of position i (after the final norm) and token i+1, logits for token i+2."""
    if not isinstance(mtp, MtpModel):  # a family's own module, which transformers does not run
        return mtp(model, ids)[0]
    hidden = model.model(ids, use_cache=False).last_hidden_state[:, :-1]
    shifted, positions = ids[:, 1:], torch.arange(1, ids.shape[1])[None]

    def cache():
        return MtpCache(config=model.config.get_mtp_config())

    embeds, c = mtp.embed_tokens(shifted), cache()
    rows = mtp._project_to_logits(mtp.layers[0](
        embeds, hidden, position_embeddings=mtp.rotary_emb(embeds, position_ids=positions),
        position_ids=positions, past_key_values=c, **mtp.create_masks_for_mtp_layer(0, embeds, c, positions)))
    # The drafting entry point must agree on the row that it returns.
    _, last, _ = mtp(shifted, hidden, torch.ones_like(shifted), positions, cache())
    torch.testing.assert_close(last[0, -1], rows[0, -1])
    return rows[0]


@torch.no_grad()
def expected(model, prompts, mtp=None):
    out = {}
    for k, prompt in enumerate(prompts):
        ids = prompt[None]
        logits = model(ids, use_cache=False).logits[0].float()
        out[f"input_ids.{k}"], out[f"logits.{k}"] = prompt, logits.contiguous()
        if mtp is not None and len(prompt) > 1:
            out[f"mtp_logits.{k}"] = mtp_logits(model, mtp, ids).float().contiguous()
        greedy, gaps = [], []
        for _ in range(GREEDY_STEPS):
            top = model(ids, use_cache=False).logits[0, -1].float().topk(2)
            greedy.append(top.indices[0])
            gaps.append(top.values[0] - top.values[1])
            ids = torch.cat([ids, top.indices[None, :1]], dim=1)
        out[f"greedy.{k}"], out[f"greedy_gap.{k}"] = torch.stack(greedy), torch.stack(gaps)
    return out


def make(folder, model_type, seed, stored, settings, module=None):
    """`module(model)`: a family's own module for multi-token prediction, with tensors() and (model, ids) -> logits."""
    shutil.rmtree(folder, ignore_errors=True)
    g = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model_type, **settings, **TOKENS)
    model = AutoModelForCausalLM.from_config(config).float()
    tied = config.tie_word_embeddings
    fill(model, tied, g, stored == "f16")
    truth = {k: v.clone() for k, v in model.state_dict().items()}
    extra, mtp_truth = {}, {}
    if getattr(config, "num_nextn_predict_layers", 0):
        mtp = MtpModel(model, 1)
        fill(mtp.layers, tied, g, False)
        mtp_truth = {k: v.clone() for k, v in mtp.layers.state_dict().items()}
        extra = {k: v if k.endswith("correction_bias") else v.to(torch.bfloat16)
                 for k, v in mtp_tensors(model, mtp).items()}
    if module is not None:
        mtp = module(model).eval()
        fill(mtp, tied, torch.Generator().manual_seed(seed + 1000), False)
        extra = {k: v.to(torch.bfloat16) for k, v in mtp.tensors().items()}
    model.to({"f16": torch.float16, "f32": torch.float32}.get(stored, torch.bfloat16)).save_pretrained(folder)
    if extra:
        add_tensors(folder, extra)
    if stored == "sharded":
        shard(folder, 3)

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 experts_implementation="eager").eval()
    for name, value in model.state_dict().items():
        assert torch.equal(value, truth[name]), f"{folder.name}: {name} does not survive the file"
    if not extra:
        mtp = None
    elif module is None:
        mtp = load_mtp(model)
        for name, value in mtp.layers.state_dict().items():
            assert torch.equal(value, mtp_truth[name]), f"{folder.name}: MTP {name} does not survive the file"
    prompts = [torch.randint(3, config.vocab_size, (n,), generator=g) for n in PROMPT_LENGTHS]
    values = expected(model, prompts, mtp)
    if module is not None:
        del values["mtp_logits.0"]  # the short prompt shows the same, in a fifth of the size
    save_file(values, folder / "expected.safetensors")
    assert all(v.isfinite().all() for v in values.values())
    gaps = torch.cat([v for k, v in values.items() if k.startswith("greedy_gap")])
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{folder.name:18} {size:8} bytes  logits std {values['logits.0'].std():.2f}  "
          f"gap min {gaps.min():.4f} median {gaps.median():.3f}  "
          f"distinct greedy {len(set(values['greedy.0'].tolist()))}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("tests/golden"))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(FAMILIES)
    failed = []
    for name in names:
        try:
            make(args.out / name, *FAMILIES[name])
        except Exception as error:  # the other families are still worth writing
            import traceback
            traceback.print_exc()
            failed.append(f"{name}: {error}")
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
