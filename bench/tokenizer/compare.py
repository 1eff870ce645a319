#!/usr/bin/env python3
"""Encoding speed of medley against the tokenizers package, one thread each, in turns in one run.

10 MB of mixed text (Python's own sources and their English, words, scripts, emoji, numbers) in pieces of 10 KB; the best
of ROUNDS rounds each. Also the time to load tokenizer.json, and whether long input stays linear: 1 MB of one letter (and
of spaces, of one CJK character) against the mixed text. Exits 1 when a ratio is under 2.

Usage (./dev bench tokenizer runs it): compare.py PROGRAM FOLDER [--rounds N] [--only NAME] [--megabytes N]
PROGRAM is tokenizer_time, FOLDER what ./dev soak prepares (build/soak).
"""
import argparse
import os
import pathlib
import subprocess
import sys
import sysconfig
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/soak"))
from strings import Generator
from vocabularies import make_folders


def mixed_text(size):
    """Seven parts of Python's standard library, three of generated text."""
    parts = []
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) + sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py")):
        if "site-packages" not in str(path):
            parts.append(path.read_text(errors="replace").replace("\0", ""))
        if sum(map(len, parts)) > size * 7 // 10:
            break
    generator, made = Generator(2), 0
    kinds = [generator.words] * 6 + [generator.code, generator.numbers, generator.script, generator.script, generator.emoji, generator.mixed]
    while made < size * 3 // 10:
        text = "\n".join(generator.rng.choice(kinds)().replace("\0", "") for _ in range(40))
        parts.append(text)
        made += len(text.encode())
    return "".join(parts)


def pieces(text, size=10_000):
    return [text[at:at + size] for at in range(0, len(text), size)]


class Program:
    def __init__(self, program, folder, file):
        self.process = subprocess.Popen([program, str(folder), str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(call):
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(program, folder, file, texts, rounds):
    """(medley's seconds, the package's, medley's to load, the package's)"""
    mine, theirs, my_load, their_load = [], [], [], []
    medley = Program(program, folder, file)
    path = str(folder / "tokenizer.json")
    for _ in range(rounds):
        my_load += medley.ask("load")
        their_load.append(timed(lambda: tokenizers.Tokenizer.from_file(path))[0])
    package = tokenizers.Tokenizer.from_file(path)
    for _ in range(rounds):
        seconds, tokens = medley.ask("encode")
        mine.append(seconds)
        seconds, encodings = timed(lambda: package.encode_batch_fast(texts, add_special_tokens=False))
        theirs.append(seconds)
        if sum(map(len, encodings)) != tokens:
            raise SystemExit(f"{folder}: {tokens:.0f} tokens, and {sum(map(len, encodings))} by the package")
    medley.close()
    return min(mine), min(theirs), min(my_load), min(their_load)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--megabytes", type=float, default=10)
    args = parser.parse_args()
    folders = make_folders(pathlib.Path(sysconfig.get_paths()["purelib"]), args.folder / "carriers", args.folder / "models")
    text = mixed_text(int(args.megabytes * 1e6))
    texts = pieces(text)
    mixed = args.folder / "mixed.txt"
    mixed.write_text("\0".join(texts))
    megabytes = mixed.stat().st_size / 1e6
    runs = {"a": "a", "spaces": " ", "人": "人"}
    for name, letter in runs.items():
        (args.folder / f"run-{name}.txt").write_text(letter * (1_000_000 // len(letter.encode())))
    print(f"{megabytes:.1f} MB of mixed text, one thread, best of {args.rounds}; MB/s")
    print(f"{'vocabulary':12} {'medley':>8} {'package':>8} {'ratio':>6}   {'load':>7} {'package':>8} {'ratio':>6}   1 MB runs: " + "  ".join(f"{name:>7}" for name in runs))
    worst = 1e9
    for name, folder in folders:
        if args.only not in name or not (folder / "tokenizer.json").exists():
            continue
        mine, theirs, my_load, their_load = compare(args.program, folder, mixed, texts, args.rounds)
        speeds = []
        for run in runs:
            program = Program(args.program, folder, args.folder / f"run-{run}.txt")
            speeds.append(1 / min(program.ask("encode")[0] for _ in range(2)))
            program.close()
        worst = min(worst, theirs / mine)
        print(f"{name:12} {megabytes / mine:8.1f} {megabytes / theirs:8.1f} {theirs / mine:6.2f}   {my_load:6.2f}s {their_load:7.2f}s {their_load / my_load:6.2f}   {'':10} "
              + "  ".join(f"{speed:7.1f}" for speed in speeds), flush=True)
    print(f"worst ratio {worst:.2f}")
    return worst < 2


if __name__ == "__main__":
    sys.exit(main())
