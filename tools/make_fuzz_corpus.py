"""Writes the first inputs of the fuzz targets (fuzz/corpus): small valid files to start from, out of the files that the
tests use already. What fuzzing found later lies beside them and is not touched."""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"


def write(target, name, data):
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + size]}
        data += bytes(range(size))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(keys, tensors):
    """keys: name to an int (u32), float (f32), str or list of those; tensors: name to (dims, type number, bytes)."""
    def value(item, typed=True):
        if isinstance(item, bool):
            kind, data = 7, struct.pack("<B", item)
        elif isinstance(item, int):
            kind, data = 4, struct.pack("<I", item)
        elif isinstance(item, float):
            kind, data = 6, struct.pack("<f", item)
        elif isinstance(item, str):
            kind, data = 8, gguf_string(item)
        else:
            first = value(item[0])[:4]
            kind, data = 9, first + struct.pack("<Q", len(item)) + b"".join(value(one, False) for one in item)
        return struct.pack("<I", kind) + data if typed else data

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(gguf_string(name) + value(item) for name, item in keys.items())
    data = b""
    for name, (dims, kind, content) in tensors.items():
        head += gguf_string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + data


def gguf_model(architecture, more, vocabulary):
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32,
             "attention.head_count": 2, "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5,
             "rope.freq_base": 10000.0, "vocab_size": 8, **more}
    keys = {"general.architecture": architecture} | {f"{architecture}.{name}": size for name, size in sizes.items()}
    tensors = {"token_embd.weight": ([32, 8], 2, bytes(144)), "output_norm.weight": ([32], 0, bytes(128)),
               "blk.0.attn_q.weight": ([32, 32], 8, bytes(1088)), "blk.0.ffn_up.weight": ([32, 32], 1, bytes(2048))}
    return gguf(keys | vocabulary, tensors)


GGUF_BYTES = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.eos_token_id": 7,
              "tokenizer.ggml.tokens": ["H", "e", "l", "o", "He", "ll", "Hell", "<s>"],
              "tokenizer.ggml.token_type": [1] * 7 + [3], "tokenizer.ggml.merges": ["H e", "l l", "He ll"],
              "tokenizer.chat_template": "{{ messages[0].content }}"}
GGUF_PIECES = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [0.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, -6.0],
               "tokenizer.ggml.tokens": ["<unk>", "<s>", "\u2581", "H", "e", "He", "l", "<0x0A>"],
               "tokenizer.ggml.token_type": [2, 3, 1, 1, 1, 1, 1, 6], "tokenizer.ggml.bos_token_id": 1,
               "tokenizer.ggml.add_bos_token": True}


def main():
    for name, more in {
            "llama": {}, "qwen3moe": {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16},
            "deepseek2": {"attention.kv_lora_rank": 32, "attention.key_length": 24, "attention.value_length": 16,
                          "rope.dimension_count": 8, "expert_count": 4, "expert_used_count": 2},
            "mamba": {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 8, "ssm.time_step_rank": 2},
            "gemma3": {"attention.sliding_window": 16, "attention.key_length": 16}}.items():
        write("gguf", name, gguf_model(name, more, GGUF_PIECES if name in ("gemma3", "mamba") else GGUF_BYTES))
    write("safetensors", "empty", safetensors([]))
    write("safetensors", "floats", safetensors([("a", "F32", [2, 3], 24), ("b", "BF16", [4], 8), ("c", "F16", [], 2)],
                                               {"format": "pt"}))
    write("safetensors", "others", safetensors([("f8", "F8_E4M3", [3], 3), ("flag", "BOOL", [1, 5], 5)]))
    for folder in sorted((ROOT / "tests" / "golden").iterdir()):
        if (folder / "config.json").exists():
            config = json.loads((folder / "config.json").read_text())
            write("config", folder.name, json.dumps(config, separators=(",", ":")))
    tokenizers = {entry["name"]: entry["tokenizer"] for entry in json.loads((ROOT / "tests/tokenizer/tokenizers.json").read_text())}
    for name in ("llama3_like", "split_Contiguous_True", "digits", "llama2_like", "metaspace_first", "unigram_True", "dropped"):
        tokenizer = smaller(tokenizers[name])
        write("tokenizer", name, json.dumps(tokenizer, separators=(",", ":"), ensure_ascii=False) + "\0Hello <s> w\u00f6rld 42\n")
    templates = json.loads((ROOT / "tests/tokenizer/templates.json").read_text())
    for name, source in templates["templates"].items():
        write("chat_template", name, source)
    for start in range(0, len(templates["language"]), 8):
        write("chat_template", f"language_{start}", "\n".join(case[0] for case in templates["language"][start:start + 8]))


def smaller(tokenizer):
    """The first tokens of the vocabulary only: a fuzzer learns more from short inputs."""
    model = tokenizer["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:60]
    else:
        model["vocab"] = {token: id for token, id in model["vocab"].items() if id < 300}
        model["merges"] = [pair for pair in model.get("merges", []) if all(
            part in model["vocab"] for part in ((*(pair if isinstance(pair, list) else pair.split(" ")), "".join(
                pair if isinstance(pair, list) else pair.split(" ")))))][:20]
    return tokenizer


if __name__ == "__main__":
    main()
