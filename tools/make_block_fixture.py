#!/usr/bin/env python3
"""Writes tests/gguf/blocks.gguf: blocks of every quantised type medley reads, and the floats they stand for.

The file is written by the gguf package's own writer, and the floats are what its gguf.quants computes. Codes are random
bits; scales are random ones of the size that weights have, the largest and smallest float16 (subnormal, zero, negative),
and for MXFP4 the ends of the exponent's range. Metadata holds one key of each type, for the reader's test.

Needs: pip install gguf==0.19.0
Usage: tools/make_block_fixture.py
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/gguf/blocks.gguf"

# Byte offsets of a block's float16 numbers.
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
}
EXTREMES = np.array([65504, -65504, 2**-24, -(2**-24), 1023 * 2**-24, 2**-14, 0.0, -0.0], np.float16)


def blocks_of(rng, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 10 if elements == 256 else 16
    blocks = rng.integers(0, 256, (count, size), np.uint8)
    for offset in HALVES[kind]:
        halves = rng.normal(0, 0.02, count).astype(np.float16)
        chosen = rng.permutation(count)[: len(EXTREMES)]
        halves[chosen] = EXTREMES
        blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(count, 2)
    if kind == T.MXFP4:
        blocks[:, 0] = rng.integers(100, 140, count)
        blocks[:7, 0] = [0, 1, 2, 127, 128, 254, 255]
    return blocks


def main():
    rng = np.random.default_rng(4)
    writer = gguf.GGUFWriter(OUT, "blocks")
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int8("test.i8", -7)
    writer.add_uint64("test.u64", 2**40)
    writer.add_float32("test.f32", 0.1)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "Grüße")
    writer.add_array("test.strings", ["<s>", "", "▁a"])
    writer.add_array("test.ints", [1, -2, 3])
    writer.add_array("test.floats", [0.5, -1.5])
    for kind in HALVES:
        blocks = blocks_of(rng, kind)
        values = quants.dequantize(blocks, kind).astype(np.float32)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        writer.add_tensor(kind.name + ".values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
