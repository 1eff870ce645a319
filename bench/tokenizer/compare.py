#!/usr/bin/env python3
"""Encoding speed of medley against the tokenizers package, one thread each, in turns in one run.

10 MB of mixed text (Python's own sources and their English, words, scripts, emoji, numbers) in pieces of 10 KB, and the
time to load tokenizer.json; the best of ROUNDS rounds each, in seconds of the thread. Then runs: one letter, two in turns,
spaces, digits, line ends, one CJK character, 1, 2, 4 and 8 MB as one text, of which a byte must cost no more than one of
mixed text, and no more in the longest than in the shortest (but for what a CPU's caches do not hold). Token counts must
agree with the package's. Exits 1 when a ratio is under 2, or a run costs more than it may.

Usage (./dev bench tokenizer runs it): compare.py PROGRAM FOLDER [--rounds N] [--only NAME,NAME] [--megabytes N]
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
    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def timed(call):
    # The package runs nothing on other threads here, but for a pool of one.
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def compare(medley, package, name, file, texts, rounds):
    """(medley's seconds, the package's)"""
    mine, theirs = [], []
    for _ in range(rounds):
        seconds, tokens = medley.ask(f"encode {file}")
        mine.append(seconds)
        seconds, encodings = timed(lambda: package.encode_batch_fast(texts, add_special_tokens=False))
        theirs.append(seconds)
        if sum(map(len, encodings)) != tokens:
            raise SystemExit(f"{name}, {file}: {tokens:.0f} tokens, and {sum(map(len, encodings))} by the package")
    return min(mine), min(theirs)


def loads(medley, path, rounds):
    mine, theirs = [], []
    for _ in range(rounds):
        mine += medley.ask("load")
        theirs.append(timed(lambda: tokenizers.Tokenizer.from_file(path))[0])
    return min(mine), min(theirs)


RUNS = {"a": "a", "ab": "ab", "spaces": " ", "7": "7", "lines": "\n", "人": "人"}
LENGTHS = [1, 2, 4, 8]  # MB
GROWTH = 2  # a byte of 8 MB against one of 1 MB: buffers leave the caches, and past 32 MB malloc takes them fresh from the system


def run_text(unit, length):
    return unit * (length * 1_000_000 // len(unit.encode()))


def write_runs(folder):
    for name, unit in RUNS.items():
        for length in LENGTHS:
            (folder / f"run-{name}-{length}.txt").write_text(run_text(unit, length))


def measure_runs(medley, package, name, folder):
    """{run: ([medley's MB/s for each length], the package's MB/s at the first)}"""
    results = {}
    for run, unit in RUNS.items():
        speeds = []
        for length in LENGTHS:
            file = folder / f"run-{run}-{length}.txt"
            best, tokens = min(medley.ask(f"encode {file}") for _ in range(3))
            speeds.append(length / best)
            if length == LENGTHS[0]:
                seconds, encodings = timed(lambda: package.encode_batch_fast([run_text(unit, length)], add_special_tokens=False))
                if len(encodings[0]) != tokens:
                    raise SystemExit(f"{name}, {file}: {tokens:.0f} tokens, and {len(encodings[0])} by the package")
        results[run] = speeds, LENGTHS[0] / seconds
    return results


def print_runs(results, mixed_speeds):
    """Prints the table; returns what costs more than it may."""
    print(f"\nRuns, {', '.join(map(str, LENGTHS))} MB as one text, medley in MB/s (the package at {LENGTHS[0]} MB)")
    print(f"{'vocabulary':12} {'mixed':>6}   " + "  ".join(f"{run:>29}" for run in RUNS))
    faults = []
    for name, runs in results.items():
        cells = []
        for run, (speeds, package) in runs.items():
            cells.append(" ".join(f"{speed:5.1f}" for speed in speeds) + f" ({package:4.1f})")
            if speeds[0] < mixed_speeds[name]:
                faults.append(f"{name}: a run of {run} goes at {speeds[0]:.1f} MB/s, mixed text at {mixed_speeds[name]:.1f}")
            if speeds[-1] * GROWTH < speeds[0]:
                faults.append(f"{name}: {LENGTHS[-1]} MB of {run} go at {speeds[-1]:.1f} MB/s, {LENGTHS[0]} MB at {speeds[0]:.1f}")
        print(f"{name:12} {mixed_speeds[name]:6.1f}   " + "  ".join(f"{cell:>29}" for cell in cells))
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--megabytes", type=float, default=10)
    args = parser.parse_args()
    folders = make_folders(pathlib.Path(sysconfig.get_paths()["purelib"]), args.folder / "carriers", args.folder / "models")
    texts = pieces(mixed_text(int(args.megabytes * 1e6)))
    mixed = args.folder / "mixed.txt"
    mixed.write_text("\0".join(texts))
    megabytes = mixed.stat().st_size / 1e6
    write_runs(args.folder)
    print(f"{megabytes:.1f} MB of mixed text, one thread, best of {args.rounds}; MB/s")
    print(f"{'vocabulary':12} {'medley':>8} {'package':>8} {'ratio':>6}   {'load':>7} {'package':>8} {'ratio':>6}")
    worst, speeds, runs = 1e9, {}, {}
    for name, folder in folders:
        if not any(only in name for only in args.only.split(",")) or not (folder / "tokenizer.json").exists():
            continue
        medley = Program(args.program, folder)
        my_load, their_load = loads(medley, str(folder / "tokenizer.json"), args.rounds)
        package = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        mine, theirs = compare(medley, package, name, mixed, texts, args.rounds)
        print(f"{name:12} {megabytes / mine:8.1f} {megabytes / theirs:8.1f} {theirs / mine:6.2f}   {my_load:6.2f}s {their_load:7.2f}s {their_load / my_load:6.2f}", flush=True)
        speeds[name], worst = megabytes / mine, min(worst, theirs / mine)
        runs[name] = measure_runs(medley, package, name, args.folder)
        medley.close()
    faults = print_runs(runs, speeds)
    print(f"\nworst ratio {worst:.2f}", *faults, sep="\n")
    return worst < 2 or len(faults) > 0


if __name__ == "__main__":
    sys.exit(main())
