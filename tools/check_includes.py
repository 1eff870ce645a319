#!/usr/bin/env python3
"""Checks that includes only point down the folder list of docs/ARCHITECTURE.md.

    tools/check_includes.py [ROOT]

Under src/, a file of a folder may include "folder/file.h" of its own folder and of those below it; the public headers
("medley/...") may be included from the engine upwards, the plain structs among them (PUBLIC_STRUCTS) from core upwards. Under include/ and examples/, only "medley/..." is allowed.
Libraries are included with <>. Prints FILE:LINE: what is wrong, and exits with 1 if anything is.
"""
import pathlib
import re
import sys

ORDER_FILE = "docs/ARCHITECTURE.md"
ORDER_LINE = re.compile(r"^ {4}src/(\w+)/ ")  # an entry of the list, from the top down
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inl"}
PUBLIC_FROM = "engine"  # the lowest folder that knows the public API
PUBLIC_STRUCTS = {"medley/sampling_params.h"}  # what crosses folders and is the user's to fill in
STRUCTS_FROM = "core"


def folder_order(root):
    """Folders from the top to the bottom."""
    text = (root / ORDER_FILE).read_text(encoding="utf-8")
    order = [match[1] for match in map(ORDER_LINE.match, text.splitlines()) if match]
    if not order:
        raise SystemExit(f"{ORDER_FILE}: has no lines '    src/FOLDER/ ...'")
    if len(set(order)) != len(order):
        raise SystemExit(f"{ORDER_FILE}: names a folder twice")
    return order


def source_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES) if folder.is_dir() else []


def includes(path):
    """(line number, bracket, target) of each #include, comments of the /* */ kind left out."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for number, line in enumerate(text.splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1], match[2]


def problem_under_src(order, folder, bracket, target):
    first = target.split("/")[0] if "/" in target else None
    if bracket == "<":
        return f'<{target}> is medley\'s own: use ""' if first in order or first == "medley" else None
    if first == "medley":
        lowest = STRUCTS_FROM if target in PUBLIC_STRUCTS else PUBLIC_FROM
        if lowest in order and order.index(folder) > order.index(lowest):
            return f'"{target}" is the public API: {folder} is below {PUBLIC_FROM} and may not know it'
        return None
    if first is None:
        return f'"{target}": paths are relative to src/, as in "{folder}/{target}"'
    if first not in order:
        return f'"{target}": no folder src/{first} in {ORDER_FILE} (a library is included with <>)'
    if order.index(first) < order.index(folder):
        return f'"{target}": {first} is above {folder} in {ORDER_FILE}; includes only point down'
    return None


def check(root):
    order = folder_order(root)
    problems = []
    src = root / "src"
    for path in source_files(src):
        parts = path.relative_to(src).parts
        where = path.relative_to(root).as_posix()
        if len(parts) < 2:
            problems.append(f"{where}:1: sources belong into a folder of src/")
        elif parts[0] not in order:
            problems.append(f"{where}:1: src/{parts[0]} is not in {ORDER_FILE}")
        else:
            for line, bracket, target in includes(path):
                if problem := problem_under_src(order, parts[0], bracket, target):
                    problems.append(f"{where}:{line}: {problem}")
    for folder in ("include", "examples"):
        for path in source_files(root / folder):
            for line, bracket, target in includes(path):
                first = target.split("/")[0]
                if first in order or (bracket == '"' and first != "medley"):
                    where = path.relative_to(root).as_posix()
                    problems.append(f'{where}:{line}: "{target}": {folder}/ may use only the public headers, "medley/..."')
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    problems = check(root)
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
