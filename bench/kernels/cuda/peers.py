"""Others' kernels on the cases of `medley bench kernels`: PyTorch, Triton, transformers. See peer.h for the conversation.

    medley bench kernels --peers "python3 bench/kernels/cuda/peers.py"

Cold L2, random data, medians. Where a user would have several ways, the fastest counts.
"""
import os
import statistics
import sys

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

DEVICE = "cuda"
flush = torch.zeros(64 << 20, dtype=torch.float32, device=DEVICE)


def bf16(*shape, scale=1.0):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * scale


def f32(*shape):
    return torch.randn(*shape, device=DEVICE)


def median_us(run, repeats=15):
    times = []
    for i in range(-3, repeats):
        flush.sum()  # reads more than the L2 holds
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        if i >= 0:
            times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


def captured(run):
    """The run as a CUDA graph: what many small launches cost when nobody waits for Python."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def mla(heads, batch, context):
    q, kv, scale = bf16(batch, heads, 576), bf16(batch, context, 576), 0.0417

    def naive():
        weights = torch.softmax(torch.bmm(q, kv.transpose(1, 2)) * scale, -1, dtype=torch.float32).to(torch.bfloat16)
        return torch.bmm(weights, kv[:, :, :512])

    def sdpa():  # the heads as queries of one key head
        return F.scaled_dot_product_attention(q[:, None], kv[:, None], kv[:, None, :, :512], scale=scale)

    return {"torch naive": naive, "torch sdpa": sdpa}


def gqa(heads, kv_heads, batch, context, fresh):
    if fresh not in (1, context):
        return {}  # no causal mask of a later chunk without a mask in memory
    q = bf16(batch, heads, fresh, 128)
    k, v = (bf16(batch, kv_heads, context, 128) for _ in range(2))
    return {"torch sdpa": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=fresh > 1, enable_gqa=True)}


def mla_prefill(heads, tokens):
    q, k = (bf16(1, heads, tokens, 192) for _ in range(2))
    v = bf16(1, heads, tokens, 128)
    return {"torch sdpa": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)}


def linear(tokens, n, k):
    x, w = bf16(tokens, k), bf16(n, k)
    return {"cuBLAS": lambda: F.linear(x, w)}


def experts(tokens, count, top_k, hidden, width):
    x = bf16(tokens, hidden)
    up, down = bf16(count, hidden, 2 * width, scale=0.03), bf16(count, width, hidden, scale=0.03)
    ids = torch.rand(tokens, count, device=DEVICE).topk(top_k).indices
    weights = torch.rand(tokens, top_k, device=DEVICE)

    def run():
        flat = ids.flatten()
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=count).cumsum(0).to(torch.int32)
        both = torch._grouped_mm(x[order // top_k], up, offs=ends)
        y = torch._grouped_mm(F.silu(both[:, :width]) * both[:, width:], down, offs=ends)
        pairs = torch.empty_like(y)
        pairs[order] = y
        return (pairs.view(tokens, top_k, hidden) * weights[..., None]).sum(1)

    return {"torch grouped_mm": run}


def route_align(tokens):
    logits, bias = f32(tokens, 256), f32(256) * 0.1

    def run():
        scores = logits.sigmoid()
        biased = scores + bias
        groups = biased.view(tokens, 8, 32).topk(2).values.sum(-1).topk(4).indices
        mask = torch.zeros(tokens, 8, device=DEVICE).scatter_(1, groups, 1)
        ids = biased.masked_fill(mask.repeat_interleave(32, 1) == 0, -1e9).topk(8).indices
        weights = scores.gather(1, ids)
        weights = weights / weights.sum(-1, keepdim=True) * 2.5
        return weights, ids.flatten().argsort(stable=True)

    return {"torch, as a graph": captured(run)}


@triton.jit
def ssd_update_kernel(state, x, dt, a, b, c, d, y, heads, DIM: tl.constexpr, STATES: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    at = row * heads + head
    i, j = tl.arange(0, DIM), tl.arange(0, STATES)
    where = state + at * DIM * STATES + i[:, None] * STATES + j[None, :]
    step = tl.load(dt + at)
    step = tl.log(1 + tl.exp(step))
    xs = tl.load(x + at * DIM + i)
    s = tl.load(where) * tl.exp(step * tl.load(a + head)) + xs[:, None] * step * tl.load(b + row * STATES + j)[None, :]
    tl.store(where, s)
    tl.store(y + at * DIM + i, tl.sum(s * tl.load(c + row * STATES + j)[None, :], 1) + tl.load(d + head) * xs)


def ssd_update(rows, heads):
    state, x, dt = f32(rows, heads, 64, 128), f32(rows, heads, 64), f32(rows, heads)
    a, b, c, d, y = -f32(heads).abs(), f32(rows, 128), f32(rows, 128), f32(heads), f32(rows, heads, 64)
    return {"Triton": lambda: ssd_update_kernel[(rows, heads)](state, x, dt, a, b, c, d, y, heads, 64, 128)}


@triton.jit
def delta_update_kernel(state, q, k, v, decay, beta, y, heads, share, scale, DIM: tl.constexpr, COLUMNS: tl.constexpr,
                        PER_CHANNEL: tl.constexpr):
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at, key = row * heads + head, row * (heads // share) + head // share
    i, j = tl.arange(0, DIM), part * COLUMNS + tl.arange(0, COLUMNS)
    where = state + at * DIM * DIM + i[:, None] * DIM + j[None, :]
    ks, qs = tl.load(k + key * DIM + i), tl.load(q + key * DIM + i) * scale
    if PER_CHANNEL:
        s = tl.load(where) * tl.exp(tl.load(decay + at * DIM + i))[:, None]
    else:
        s = tl.load(where) * tl.exp(tl.load(decay + at))
    error = (tl.load(v + at * DIM + j) - tl.sum(s * ks[:, None], 0)) * tl.load(beta + at)
    s += ks[:, None] * error[None, :]
    tl.store(where, s)
    tl.store(y + at * DIM + j, tl.sum(s * qs[:, None], 0))


def delta(rows, fresh, key_heads, heads, per_channel=False):
    if fresh > 1:
        return delta_prefill(rows, fresh, heads) if not per_channel else {}
    state, q, k = f32(rows, heads, 128, 128), f32(rows, key_heads, 128), f32(rows, key_heads, 128)
    v, beta, y = f32(rows, heads, 128), torch.rand(rows, heads, device=DEVICE), f32(rows, heads, 128)
    decay = -torch.rand(rows, heads, 128 if per_channel else 1, device=DEVICE)

    def run(columns):
        delta_update_kernel[(rows, heads, 128 // columns)](state, q, k, v, decay, beta, y, heads, heads // key_heads,
                                                           0.0884, 128, columns, per_channel)

    return {"Triton": lambda: run(32), "Triton, 64 columns": lambda: run(64)}


def delta_prefill(rows, fresh, heads):
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
    q, k, v = (bf16(rows, fresh, heads, 128) for _ in range(3))
    decay = -torch.rand(rows, fresh, heads, device=DEVICE)
    beta = torch.rand(rows, fresh, heads, device=DEVICE, dtype=torch.bfloat16)
    return {"transformers": lambda: torch_chunk_gated_delta_rule(q, k, v, g=decay, beta=beta,
                                                                 use_qk_l2norm_in_kernel=True)}


def kda(rows, fresh, key_heads, heads):
    return delta(rows, fresh, key_heads, heads, per_channel=True)


CASES = {f.__name__: f for f in (mla, mla_prefill, gqa, linear, experts, route_align, ssd_update, delta, kda)}


def answer(line):
    name, *numbers = line.split()
    if name not in CASES:
        return f"- no case called {name} here"
    best = why = None
    for who, run in CASES[name](*map(int, numbers)).items():
        try:
            us = median_us(run)
        except Exception as error:  # the other ways may still work
            why = f"{who}: {type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}"
            continue
        if best is None or us < best[0]:
            best = us, who
    torch.cuda.empty_cache()
    return f"{best[0]:.2f} {best[1]}" if best else f"- {why or 'none known'}"


def main():
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for a time
    print("ready", file=say, flush=True)
    for line in sys.stdin:
        try:
            text = answer(line)
        except Exception as error:  # not enough memory for the tensors, a package that is missing
            text = f"- {type(error).__name__} {str(error).splitlines()[0] if str(error) else ''}"
        print(text, file=say, flush=True)


if __name__ == "__main__":
    main()
