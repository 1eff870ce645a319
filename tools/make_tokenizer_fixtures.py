#!/usr/bin/env python3
"""Writes tests/tokenizer/tokenizers.json: small tokenizers with the ids and texts the tokenizers package gives.

Each entry: name, tokenizer (a whole tokenizer.json), config (tokenizer_config.json, may be null), and cases
[text, ids, ids with special tokens (0: the same), text of the latter ids without special tokens (0: the text)].
A text that is not UTF-8 is written as {"bytes": [...]}, and the package saw it as Python's errors="replace" reads it.

Needs: pip install tokenizers. The output is the same on every run.
Usage: tools/make_tokenizer_fixtures.py
"""
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "soak"))
from strings import HAND_MADE, Generator

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/tokenizer/tokenizers.json"

WORDS = """the of and to in a is that it was for on are with as his they be at one have this from or had by hot but some
what there we can out other were all your when up use word how said an each she which do their time if will way about
many then them would write like so these her long make thing see him two has look more day could go come did my sound no
most number who over know water than call first people may down side been now find""".split()
CODE = "def f(x):\n    return x + 1\n\nfor (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n"
FOREIGN = "你好世界 日本語のテキスト 한국어 Привет мир Γειά σου мир नमस्ते สวัสดี"

HARD = [
    "", " ", "  ", "\n", " \n ", "a", " a", "a ", "Hello world", "Hello  world", "  Hello world  ", "don't I'll WE'VE it's",
    "the number of people", "1234567890 3.14 1,000", "x=1;y[2]={3}", CODE, FOREIGN, "naïve café Straße", "e\u0301 A\u030a \u1e9b\u0323",
    "ﬁ ① ½ ＡＢＣ ﷺ", "😀 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽", "\u00a0\u3000\u2003\u200b", "tab\ttab\r\nnew\r\n\r\nline\n\n\n",
    "https://example.org/a?b=c#d", "a_b__c-d", "...!?!", "İstanbul ǅ ﬀ", "a<s>b</s> c", "<s>", " <s> ", "x<s>x", "<s><s>",
    "the<mask>water", "the <mask> water", "the  <mask>  water", "word<word>word", "word <word> word", "<word>", "(<word>)",
    "LOUD Loud loud", "▁ ▁▁ Ġ Ċ <0x0A> <unk>", "\u0000\u007f\u0085", "ab" * 30, "x" * 70, " " * 50, "人" * 20,
    "\U00010d4a\U0002ebf0\u1c89", "नि निं", "กำ", "각 각",
]
BAD = [[0xFF], [0x61, 0xE4, 0xBD], [0xF0, 0x9F, 0x98, 0x61], [0xED, 0xA0, 0x80], [0xC0, 0x80, 0x62], [0x61, 0xF5, 0xE4, 0xBD, 0xA0]]


def corpus(seed=1):
    rng = random.Random(seed)
    lines = [" ".join(rng.choice(WORDS) for _ in range(12)) for _ in range(400)]
    return lines + [CODE] * 8 + [FOREIGN] * 4 + ["don't it's we'll"] * 10 + ["1234 56 789"] * 5


def byte_alphabet():
    bytes_ = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    chars = bytes_[:]
    for byte in range(256):
        if byte not in bytes_:
            bytes_.append(byte)
            chars.append(256 + len(bytes_) - 189)
    return [chr(char) for _, char in sorted(zip(bytes_, chars))]


def added(id_, content, **flags):
    return dict(id=id_, content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) | flags


def merges_of(pre_words, start, size):
    """Plain BPE training: the commonest pair again and again; ties by text. Words are tuples of symbols."""
    counts = {}
    for word in pre_words:
        counts[tuple(word)] = counts.get(tuple(word), 0) + 1
    vocab, merges = list(start), []
    while len(merges) < size:
        pairs = {}
        for word, count in counts.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + count
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        if best[0] + best[1] not in vocab:
            vocab.append(best[0] + best[1])
        merged = {}
        for word, count in counts.items():
            out = []
            for symbol in word:
                if out and (out[-1], symbol) == best:
                    out[-1] += symbol
                else:
                    out.append(symbol)
            merged[tuple(out)] = merged.get(tuple(out), 0) + count
        counts = merged
    return vocab, merges


SPECIALS = [added(0, "<s>"), added(1, "</s>"), added(2, "<mask>", lstrip=True, rstrip=True),
            added(3, "<word>", single_word=True, special=False), added(4, "LOUD", normalized=True, special=False)]
BYTE_LEVEL_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def template(*before_and_after):
    before, after = before_and_after
    item = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    ids = {"<s>": 0, "</s>": 1}
    return {
        "type": "TemplateProcessing", "pair": [],
        "single": [item(n) for n in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [item(n) for n in after],
        "special_tokens": {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in sorted(set(before + after))},
    }


def assemble(vocab, merges, pairs=True, specials=SPECIALS, model=None, **parts):
    names = {token["content"]: token["id"] for token in specials}
    ids = dict(names)
    for token in vocab:
        ids.setdefault(token, len(ids))
    return dict(version="1.0", truncation=None, padding=None, added_tokens=specials) | dict(
        normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None) | parts | dict(
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                   fuse_unk=False, byte_fallback=False) | (model or {}) | dict(
            vocab=ids, merges=[list(m) if pairs else " ".join(m) for m in merges]))


def byte_level(pre_tokenizer, size=160, **kwargs):
    """A byte-level tokenizer whose merges are trained on the words that the pre-tokenizer itself makes."""
    parts = {k: kwargs.pop(k) for k in ("normalizer", "post_processor") if k in kwargs}
    blank = assemble(byte_alphabet(), [], pre_tokenizer=pre_tokenizer, decoder=BYTE_LEVEL_DECODER)
    cutter = Tokenizer.from_str(json.dumps(blank)).pre_tokenizer
    words = [word for line in corpus() for word, _ in cutter.pre_tokenize_str(line)]
    vocab, merges = merges_of(words, byte_alphabet(), size)
    return assemble(vocab, merges, pre_tokenizer=pre_tokenizer, decoder=BYTE_LEVEL_DECODER, **parts, **kwargs)


def sentencepiece(words, size=200, bytes_=True, **kwargs):
    letters = sorted({letter for word in words for letter in word})
    start = [f"<0x{byte:02X}>" for byte in range(256)] if bytes_ else []
    vocab, merges = merges_of(words, start + ["<unk>"] + letters, size)
    return assemble(vocab, merges, pairs=False, **kwargs)


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts, key="pretokenizers"):
    return {"type": "Sequence", key: list(parts)}


PLAIN_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CJK = r"[一-龥぀-ゟ゠-ヿ]+"
WORDY = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
HAN = r"[\p{Han}]+|[\p{L}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|\s+|[^\s\p{L}\p{M}\p{N}]+"


def tokenizers():
    yield "llama3_like", byte_level(sequence(split(LLAMA3), PLAIN_BYTES), post_processor=template(["<s>"], []),
                                    model={"ignore_merges": True}), {"bos_token": "<s>", "eos_token": "</s>"}
    yield "gpt2_like", byte_level({"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                                  pairs=False, normalizer={"type": "NFC"}), {"bos_token": None, "eos_token": "</s>"}
    yield "deepseek_like", byte_level(sequence(split(r"\p{N}{1,3}"), split(CJK), split(WORDY), PLAIN_BYTES),
                                      normalizer=sequence(key="normalizers"),
                                      post_processor={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}), {
        "bos_token": {"__type": "AddedToken", "content": "<s>"}, "eos_token": "</s>"}
    yield "intersection", byte_level(sequence(split(HAN), PLAIN_BYTES), size=80,
                                     post_processor=sequence({"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
                                                             template(["<s>"], ["</s>"]), key="processors")), None
    yield "byte_level_inside", byte_level(
        sequence({"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                 {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")), size=80), None
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            yield f"split_{behavior}_{invert}", byte_level(sequence(split(r"\s|[aeiou]", behavior, invert), PLAIN_BYTES), size=10), None
    yield "digits", byte_level(sequence({"type": "Digits", "individual_digits": True}, PLAIN_BYTES), size=10), None
    yield "whitespace", byte_level(sequence({"type": "Whitespace"}, PLAIN_BYTES), size=10), None
    yield "whitespace_split", byte_level(sequence({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, PLAIN_BYTES), size=10), None

    arrow = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    words = ["▁" + word for line in corpus() for word in line.split(" ")]
    fallback_decoder = sequence({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, key="decoders")
    yield "llama2_like", sentencepiece(words, normalizer=sequence({"type": "Prepend", "prepend": "▁"}, arrow, key="normalizers"),
                                       decoder=fallback_decoder, post_processor=template(["<s>"], []),
                                       model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True)), {
        "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": False}
    yield "metaspace_first", sentencepiece(words, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
                                           decoder=fallback_decoder, model=dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True)), None
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    yield "metaspace_unk", sentencepiece(words, bytes_=False, pre_tokenizer=metaspace, decoder=metaspace,
                                         model=dict(unk_token="<unk>", fuse_unk=False)), None
    yield "metaspace_fuse", sentencepiece(words, bytes_=False, pre_tokenizer=metaspace | {"split": False}, decoder=metaspace,
                                          normalizer=sequence({"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}, key="normalizers"),
                                          model=dict(unk_token="<unk>", fuse_unk=True)), None
    for fallback in (False, True):
        made = sentencepiece(words, bytes_=fallback, pre_tokenizer=metaspace | {"prepend_scheme": "first"}, decoder=fallback_decoder)
        # Scores that fall with the length less than with the rank, so that long tokens win some of the time.
        ids = made["model"]["vocab"]
        made["model"] = dict(type="Unigram", unk_id=ids["<unk>"], byte_fallback=fallback,
                             vocab=[[token, round(-2.0 - 0.013 * id_ - 0.4 * len(token), 4)] for token, id_ in ids.items()])
        yield f"unigram_{fallback}", made, None
    yield "dropped", sentencepiece(words, size=30, bytes_=False, decoder=None,
                                   normalizer=sequence({"type": "NFD"}, {"type": "StripAccents"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "▁"}, key="normalizers")), None


def main():
    rng = random.Random(7)
    drawn = [text[:40] for text in Generator(9).take(280)][len(HAND_MADE):]
    entries = []
    for name, tokenizer, config in tokenizers():
        package = Tokenizer.from_str(json.dumps(tokenizer))
        cases = []
        texts = HARD + [" ".join(rng.choice(WORDS + HARD[8:30]) for _ in range(6)) for _ in range(2)]
        if name.startswith("split_"):  # it is the cutting that differs
            texts = texts[8:20:2]
        # A sample of what ./dev soak compares: one tokenizer of each kind gets more of it.
        if name in ("llama3_like", "deepseek_like", "llama2_like", "metaspace_unk", "unigram_True"):
            texts = texts + drawn
        for text in texts + BAD:
            text = list(text) if isinstance(text, bytes) else text
            seen = text if isinstance(text, str) else bytes(text).decode("utf-8", "replace")
            plain = package.encode(seen, add_special_tokens=False).ids
            special = package.encode(seen, add_special_tokens=True).ids
            decoded = package.decode(special, skip_special_tokens=True)
            cases.append([text if isinstance(text, str) else {"bytes": text}, plain,
                          special if special != plain else 0, decoded if decoded != text else 0])
        # Decoding ids in an order that no text has.
        for _ in range(4):
            ids = [rng.randrange(package.get_vocab_size()) for _ in range(12)]
            cases.append([None, ids, 0, package.decode(ids, skip_special_tokens=True)])
        entries.append(dict(name=name, tokenizer=tokenizer, config=config, cases=cases))
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    main()
