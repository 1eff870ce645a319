#!/usr/bin/env python3
"""Records what llama.cpp makes of the real GGUF files that tests/gguf_real runs: one small JSON file a model.

    LLAMA_CPP=FOLDER record_gguf_real.py WORK OUT

WORK is a folder for what is fetched and built (gguf_check.py's), OUT tests/gguf_real. llama.cpp runs twice: on the file
as it is, where it rounds activations to 8 bits ("blocks"), and on the same values written out as float32 ("float32").
Of each run: the ten prompts' greedy tokens with the gaps between the two best logits, and of the logits after the
prompt's last token the best and a sample of the others. "distance" is how far apart a logit of the two runs is at most,
over all positions of the prompts. Beside them the token ids of hard strings. Needs numpy and gguf.
"""
import json
import pathlib
import sys

import numpy as np

import fetch_gguf
import gguf_check
import gguf_reference

BEST, SAMPLES = 8, 24


def record_run(logits, greedy):
    """By prompt."""
    found = []
    for rows, (tokens, gaps) in zip(logits, greedy, strict=True):
        last = rows[-1]
        chosen = np.concatenate([np.argsort(-last)[:BEST], np.linspace(0, len(last) - 1, SAMPLES).astype(int)])
        found.append({
            "tokens": tokens,
            "gaps": [round(gap, 5) for gap in gaps],
            "logit_ids": chosen.tolist(),
            "logits": [round(float(value), 5) for value in last[chosen]],
        })
    return found


def record(name, path, llama):
    ids, twin = llama.tokens(path, gguf_check.PROMPTS), gguf_check.float_twin(path)
    blocks, float32 = llama.logits(path, ids), llama.logits(twin, ids)
    return {
        "model": name,
        "file": path.name,
        "distance": round(max(float(np.abs(a - b).max()) for a, b in zip(blocks, float32, strict=True)), 4),
        "prompts": [{"text": text, "ids": row} for text, row in zip(gguf_check.PROMPTS, ids, strict=True)],
        "blocks": record_run(blocks, llama.greedy(path, ids, gguf_check.STEPS)),
        "float32": record_run(float32, llama.greedy(twin, ids, gguf_check.STEPS)),
        "strings": [
            {"text": text, "ids": row} for text, row in zip(gguf_check.HARD, llama.tokens(path, gguf_check.HARD), strict=True)
        ],
    }


def write(path, recorded):
    """One line a prompt, a run of a prompt, a string."""
    lines = []
    for key, value in recorded.items():
        if isinstance(value, list):
            rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in value)
            lines.append(f"{json.dumps(key)}: [\n  {rows}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    work, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    llama = gguf_reference.Llama(work)
    out.mkdir(parents=True, exist_ok=True)
    for short, name, file in (
        ("smollm2", "SmolLM2-135M-Instruct Q4_1", fetch_gguf.SMOLLM2),
        ("gemma3", "Gemma-3-270M Q4_K_M", fetch_gguf.GEMMA3),
    ):
        write(out / f"{short}.json", record(name, fetch_gguf.fetch(file, work), llama))


if __name__ == "__main__":
    main()
