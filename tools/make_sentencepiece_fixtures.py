#!/usr/bin/env python3
"""Writes tests/tokenizer/sentencepiece.json: small tokenizer.model files with the ids the sentencepiece package gives.

Each of "models": name, model (the file, base64), and cases [text (null: the ids are drawn), ids, the text of the ids (0:
as the first; unknown pieces are left out, where sentencepiece writes " \u2047 ")]. "precompiled": a tokenizer.json with
the character map of one of them in its Precompiled normalizer, and cases [text, ids] by the tokenizers package, which
applies it otherwise.

Needs: pip install sentencepiece protobuf tokenizers. The output is the same on every run.
Usage: tools/make_sentencepiece_fixtures.py
"""
import base64
import json
import pathlib
import random
import tempfile

import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as sentencepiece_model
import tokenizers

from make_tokenizer_fixtures import HARD, WORDS, corpus

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/tokenizer/sentencepiece.json"
# Replacements with prefixes of each other, of several characters, by nothing, and to white space.
RULES = {"\uff21": "A", "\uff22": "B", "\ufb01": "fi", "\u2460": "1", "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ",
         "\r": " ", "\r\n": " ", "e\u0301": "\u00e9", "\u200b": "", "\u200d": "", "\u00bd": "1\u20442",
         "\ufdfa": "a b  c", "\u0130": "i\u0307", "A\u030a": "\u00c5", "...": "\u2026", "\u1100\u1161": "\uac00"}
TEXTS = HARD + ["\uff21\uff22 \ufb01\u2460", "e\u0301e\u0301e", "x\ufdfax \ufdfa", "...!....?", "\u1100\u1161\u1100", "a\r\nb\rc\n",
                "A\u030a\u030a", "\u200b a \u200b", "def<ud>def", " <ud> ", "<ud><ud>x", "a  def  b", "   ", "\u2581\u2581a", "word   "]


def train(folder, name, **settings):
    lines = corpus() + [text.replace("\n", " ") for text in HARD if text.strip() and "\0" not in text] * 3
    (folder / "corpus.txt").write_text("\n".join(lines))
    (folder / "rules.tsv").write_text("".join(
        " ".join(f"{ord(c):X}" for c in old) + "\t" + " ".join(f"{ord(c):X}" for c in new) + "\n" for old, new in RULES.items()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"), model_prefix=str(folder / name), character_coverage=0.98, num_threads=1,
        hard_vocab_limit=False, minloglevel=2, user_defined_symbols=["<ud>", "def", "  "], control_symbols=["<ctl>"],
        **settings)
    model = sentencepiece_model.ModelProto.FromString((folder / f"{name}.model").read_bytes())
    for field in ("input", "model_prefix"):  # paths, which differ from run to run
        model.trainer_spec.ClearField(field)
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def models(folder):
    rules = dict(normalization_rule_tsv=str(folder / "rules.tsv"))
    identity = dict(normalization_rule_name="identity")
    for kind in ("bpe", "unigram"):
        yield f"{kind}_bytes", train(folder, "a", model_type=kind, vocab_size=420, byte_fallback=True, add_dummy_prefix=True,
                                     remove_extra_whitespaces=False, **identity)
        yield f"{kind}_rules", train(folder, "b", model_type=kind, vocab_size=200, byte_fallback=False, add_dummy_prefix=True,
                                     remove_extra_whitespaces=True, **rules)
    yield "unigram_no_prefix", train(folder, "c", model_type="unigram", vocab_size=400, byte_fallback=True,
                                     add_dummy_prefix=False, remove_extra_whitespaces=False, **rules)


def texts(rng):
    mixed = ["".join(rng.choice(WORDS + TEXTS) + rng.choice([" ", "", "  "]) for _ in range(6)) for _ in range(30)]
    drawn = ["".join(chr(rng.choice([rng.randrange(1, 0x500), rng.randrange(0x1e00, 0x3100), rng.randrange(0xe000, 0x20000)]))
                     for _ in range(rng.randrange(1, 20))) for _ in range(40)]
    # Control pieces are text to sentencepiece, and tokens to medley.
    return [text for text in TEXTS + mixed + drawn if not any(name in text for name in ("<s>", "</s>", "<unk>", "<ctl>"))]


def main():
    rng = random.Random(11)
    entries, charsmap = [], b""
    with tempfile.TemporaryDirectory() as name:
        for name, model in models(pathlib.Path(name)):
            package = sentencepiece.SentencePieceProcessor(model_proto=model)
            cases = []
            for text in texts(rng):
                ids = package.encode(text)
                known = package.decode([id_ for id_ in ids if id_ != package.unk_id()])
                cases.append([text, ids, known if known != text else 0])
            drawn = [[id_ for id_ in (rng.randrange(package.get_piece_size()) for _ in range(12)) if id_ != package.unk_id()] for _ in range(12)]
            cases += [[None, ids, package.decode(ids)] for ids in drawn]
            entries.append(dict(name=name, model=base64.b64encode(model).decode(), cases=cases))
            proto = sentencepiece_model.ModelProto.FromString(model)
            charsmap = proto.normalizer_spec.precompiled_charsmap or charsmap
    pieces = [[piece.piece, piece.score] for piece in proto.pieces if piece.type in (1, 2)]
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=[], post_processor=None, decoder=None,
                     normalizer=dict(type="Precompiled", precompiled_charsmap=base64.b64encode(charsmap).decode()),
                     pre_tokenizer=dict(type="Metaspace", replacement="\u2581", prepend_scheme="always", split=True),
                     model=dict(type="Unigram", unk_id=[p[0] for p in pieces].index("<unk>"), vocab=pieces, byte_fallback=False))
    package = tokenizers.Tokenizer.from_str(json.dumps(tokenizer))
    cases = [[text, package.encode(text).ids] for text in texts(rng)]
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False, separators=(",", ":")) for entry in entries)
    OUT.write_text('{"models":[\n' + lines + '\n],\n"precompiled":' + json.dumps(
        dict(tokenizer=tokenizer, cases=cases), ensure_ascii=False, separators=(",", ":")) + "}\n")


if __name__ == "__main__":
    main()
