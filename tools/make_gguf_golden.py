#!/usr/bin/env python3
"""Writes the GGUF folders of tests/golden: gguf_NAME/model.gguf with what llama.cpp computes for it.

    make_gguf_golden.py REFERENCE WORK [NAME ...]

REFERENCE is a folder of small Hugging Face checkpoints (those of tests/golden have odd sizes; blocks want multiples of
32), WORK a folder for llama.cpp. Each model keeps a few layers, experts and tokens, so that all files together stay
small, and stores its matrices in many types by turns. llama.cpp rounds activations to 8 bits before it multiplies
blocks, so the logits are those of the same file with every tensor written out as float32.
"""

import json
import pathlib
import sys
import tempfile

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

import gguf_reference
import make_gguf

GOLDEN = pathlib.Path(__file__).parent.parent / "tests" / "golden"
VOCAB = 96
F32 = gguf.GGMLQuantizationType.F32
DEFAULT_ROPE = {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}

# Folder: checkpoint and what is kept of it. llama.cpp differs from transformers in these; the fields keep clear of them:
# it rounds the ends of gpt-oss's YaRN ramp, scores deepseek2's groups as V3 does, and knows nemotron_h's layers with
# experts and without only in models of their own.
MODELS = {
    "llama": ("llama", {"layers": [0, 1]}),
    "mixtral": ("mixtral", {"layers": [0, 1], "experts": 3}),
    "qwen2": ("qwen2", {"layers": [0, 1]}),
    "qwen3": ("qwen3", {"layers": [0, 1]}),
    "qwen3moe": ("qwen3_moe", {"layers": [1, 2], "experts": 3, "mlp_only_layers": []}),
    "gemma3": ("gemma3", {"layers": [0, 2]}),
    "gpt_oss": ("gpt_oss", {"layers": [0, 1], "experts": 3, **DEFAULT_ROPE}),
    "deepseek2": ("deepseek_v2", {"layers": [0, 1], "experts": 3, "n_group": 1, "topk_group": 1}),
    "deepseek2_lite": ("deepseek_v2_lite", {"layers": [0, 1], "experts": 3, "split_kv_b": True}),
    "deepseek2_v3": ("deepseek_v3", {"layers": [0, 1], "split_kv_b": True}),
    "mamba": ("mamba", {"layers": [0, 1]}),
    "mamba2": ("mamba2", {"layers": [0, 1]}),
    "jamba": ("jamba", {"layers": [0, 1, 2], "experts": 3}),
    "granitehybrid": ("granitemoehybrid", {"layers": [0, 2], "experts": 3}),
    "granitehybrid_rope": ("granitemoehybrid", {"layers": [1, 2], "experts": 3, "position_embedding_type": "rope"}),
    "lfm2": ("lfm2", {"layers": [0, 2]}),
    "lfm2moe": ("lfm2_moe", {"layers": [0, 2], "experts": 3}),
    "olmoe": ("olmoe", {"layers": [0, 1], "experts": 3}),
    "nemotron_h": ("nemotron_h", {"layers": [0, 2, 3]}),
    "nemotron_h_moe": ("nemotron_h", {"layers": [0, 1, 2], "experts": 3}),
    "qwen3next": ("qwen3_next", {"layers": [0, 3], "experts": 3}),
}

# Rows of 256, which the types of larger blocks want, are in no small checkpoint: a random one.
WIDE_TYPES = ("Q4_K", "Q6_K", "Q2_K", "IQ4_XS", "Q5_K", "Q3_K", "Q8_0")
WIDE = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
    "vocab_size": VOCAB, "tie_word_embeddings": False, **DEFAULT_ROPE,
}


def write_wide(folder):
    random, at = np.random.default_rng(7), "model.layers.0."
    rows = {"self_attn.q_proj": 256, "self_attn.k_proj": 128, "self_attn.v_proj": 128, "self_attn.o_proj": 256}
    rows |= {f"mlp.{name}_proj": 256 for name in ("gate", "up", "down")}
    shapes = {f"{at}{name}.weight": (count, 256) for name, count in rows.items()}
    shapes |= {name: (VOCAB, 256) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    tensors = {name: random.normal(0, 1 / 16, shape) for name, shape in shapes.items()}
    for name in (at + "input_layernorm", at + "post_attention_layernorm", "model.norm"):
        tensors[name + ".weight"] = 1 + random.normal(0, 0.2, 256)
    save_file({name: value.astype(np.float32) for name, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(WIDE))


def converted(name, reference):
    """The converted checkpoint and the types that its matrices take by turns."""
    if name == "llama_wide":
        with tempfile.TemporaryDirectory() as folder:
            write_wide(pathlib.Path(folder))
            return make_gguf.Converter(folder), WIDE_TYPES
    checkpoint, kept = MODELS[name]
    # Not all files begin with the same type.
    turn = sorted(MODELS).index(name) % len(make_gguf.MIXED)
    types = make_gguf.MIXED[turn:] + make_gguf.MIXED[:turn]
    return make_gguf.Converter(reference / checkpoint, vocab=VOCAB, **kept), types


def make(name, reference, llama, work):
    made, types = converted(name, reference)
    kinds = make_gguf.storage_types(made.out, types)
    stored = {}
    for tensor, value in made.out.items():
        kind, block = kinds[tensor], gguf.GGML_QUANT_SIZES[kinds[tensor]]
        # The gguf package reads all types and writes some.
        stored[tensor] = (llama.quantize(value, kind, block) if block[0] > 1 else quantize(value, kind), kind)
    folder, twin = GOLDEN / f"gguf_{name}", work / f"{name}_f32.gguf"
    folder.mkdir(exist_ok=True)
    make_gguf.write_gguf(folder / "model.gguf", made.architecture(), made.keys, stored)
    exact = {tensor: (dequantize(value, kind), F32) for tensor, (value, kind) in stored.items()}
    make_gguf.write_gguf(twin, made.architecture(), made.keys, exact)
    random = np.random.default_rng(sum(name.encode()))
    prompts = [random.integers(0, VOCAB, length) for length in (13, 5)]
    expected = {}
    for k, (prompt, logits, (tokens, gaps)) in enumerate(
        zip(prompts, llama.logits(twin, prompts), llama.greedy(twin, prompts, 12))
    ):
        expected |= {
            f"input_ids.{k}": prompt.astype(np.int64),
            f"logits.{k}": np.ascontiguousarray(logits),
            f"greedy.{k}": np.array(tokens, np.int64),
            f"greedy_gap.{k}": np.array(gaps, np.float32),
        }
    save_file(expected, folder / "expected.safetensors")
    twin.unlink()
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {size} bytes, {sorted({kind.name for kind in kinds.values()})}")


def main():
    reference, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    llama = gguf_reference.Llama(work)
    for name in sys.argv[3:] or [*MODELS, "llama_wide"]:
        make(name, reference, llama, work)


if __name__ == "__main__":
    main()
