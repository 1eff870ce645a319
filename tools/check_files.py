#!/usr/bin/env python3
"""Checks every file git knows: lengths of sources (STYLE: readable in one sitting), paths of somebody's machine, and what
the golden set weighs.

    tools/check_files.py [ROOT]

Prints FILE:LINE: what is wrong, and exits with 1 if anything is.
"""
import pathlib
import re
import subprocess
import sys

SOURCES = {".h", ".cc", ".cu", ".cuh", ".inl"}
# Lines a source may have, by where it lies; the first that fits counts. A test may grow to what a kernel may.
LIMITS = [("src/kernels/", 700), ("src/", 400), ("include/", 400), ("examples/", 60), ("bench/", 400), ("tests/", 700)]
TEST_LIMIT = 700
# Bytes that all files of a folder may have together: every clone carries them.
BUDGETS = {"tests/golden/": 12_000_000}
# A home or a work folder of one machine, in anything that is checked in.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/(?:home/\w+|root|Users/\w+|work|mnt|workspace)/")


def tracked(root):
    names = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True,
                           capture_output=True).stdout.decode().split("\0")
    return [name for name in names if name and (root / name).is_file()]


def limit_of(name):
    if pathlib.PurePosixPath(name).suffix not in SOURCES:
        return None
    if pathlib.PurePosixPath(name).stem.endswith("_test"):
        return TEST_LIMIT
    return next((lines for prefix, lines in LIMITS if name.startswith(prefix)), None)


def check_text(name, text):
    problems = []
    lines = text.splitlines()
    limit = limit_of(name)
    if limit is not None and len(lines) > limit:
        problems.append(f"{name}:{limit}: {len(lines)} lines, the limit here is {limit}: split it by what its parts do")
    for number, line in enumerate(lines, 1):
        if match := MACHINE_PATH.search(line):
            problems.append(f"{name}:{number}: the path {match[0]}... exists on one machine only")
    return problems


def check_sizes(sizes):
    problems = []
    for folder, limit in BUDGETS.items():
        total = sum(size for name, size in sizes.items() if name.startswith(folder))
        if total > limit:
            problems.append(f"{folder}: {total} bytes, the limit is {limit}: smaller vocabularies, fewer experts")
    return problems


def check(root):
    problems = check_sizes({name: (root / name).stat().st_size for name in tracked(root)})
    for name in tracked(root):
        data = (root / name).read_bytes()
        if b"\0" in data[:4096] or name.startswith("models/"):  # weights and vocabularies
            continue
        problems += check_text(name, data.decode("utf-8", "replace"))
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    problems = check(root)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
