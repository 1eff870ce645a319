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


def main():
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
