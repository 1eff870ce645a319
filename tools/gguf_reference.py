#!/usr/bin/env python3
"""llama.cpp as a reference, asked through tools/llama/logits.cc.

It must be installed (as a package, or from its source) with its headers; the environment variable LLAMA_CPP names the
folder. Used by make_gguf_golden.py and gguf_check.py; nothing of it enters the repository or a build of medley.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import fetch_gguf

SOURCE = pathlib.Path(__file__).parent / "llama" / "logits.cc"


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(str(part) for part in command)} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


class Llama:
    def __init__(self, work):
        """work: a folder for what is compiled."""
        work = pathlib.Path(work)
        work.mkdir(parents=True, exist_ok=True)
        place = os.environ.get("LLAMA_CPP")
        if not place:
            raise fetch_gguf.Missing("LLAMA_CPP names no folder with llama.cpp's libraries and headers")
        found = {name: next(pathlib.Path(place).rglob(name), None) for name in ("libllama.so", "llama.h", "ggml.h")}
        for name, path in found.items():
            if path is None:
                raise fetch_gguf.Missing(f"{place} (LLAMA_CPP) has no {name}")
        self.program, self.library = work / "logits", found["libllama.so"].parent
        if self.program.exists() and self.program.stat().st_mtime > SOURCE.stat().st_mtime:
            return
        run(
            "c++", "-O2", "-std=c++17", "-I", found["llama.h"].parent, "-I", found["ggml.h"].parent, SOURCE, "-o", self.program,
            "-L", self.library, "-lllama", "-lggml", "-lggml-base", "-lggml-cpu", f"-Wl,-rpath,{self.library}",
        )

    @staticmethod
    def lines(prompts):
        return "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)

    def logits(self, path, prompts):
        """float32 [tokens, vocab] of each prompt."""
        with tempfile.NamedTemporaryFile() as out:
            run(self.program, path, "logits", out.name, input=self.lines(prompts))
            values = np.fromfile(out.name, np.float32)
        rows = values.reshape(sum(len(prompt) for prompt in prompts), -1)
        return np.split(rows, np.cumsum([len(prompt) for prompt in prompts])[:-1])

    def greedy(self, path, prompts, steps):
        """Of each prompt the greedy tokens, and the gaps between the two best logits."""
        found = []
        for line in run(self.program, path, "greedy", steps, input=self.lines(prompts)).splitlines():
            pairs = [pair.split(":") for pair in line.split()]
            found.append(([int(token) for token, _ in pairs], [float(gap) for _, gap in pairs]))
        return found

    def quantize(self, values, kind, block):
        """float32 values as blocks of a GGUF type (`block`: its elements and bytes), by ggml's own rounding."""
        library = ctypes.CDLL(str(next(self.library.glob("libggml-base.so"))))
        library.ggml_quantize_chunk.restype = ctypes.c_size_t
        library.ggml_quantize_chunk.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
        ]
        columns, (elements, size) = values.shape[-1], block
        out = np.zeros((*values.shape[:-1], columns // elements * size), np.uint8)
        values = np.ascontiguousarray(values, np.float32)
        rows = values.size // columns
        written = library.ggml_quantize_chunk(int(kind), values.ctypes.data, out.ctypes.data, 0, rows, columns, None)
        assert written == out.size
        return out

    def tokens(self, path, texts):
        text = "".join(f"{len(text.encode())}\n{text}\n" for text in texts)
        return [[int(id) for id in line.split()] for line in run(self.program, path, "tokens", input=text).splitlines()]
