"""PyTorch on the shapes of cuda_bench: cold L2, random data, medians. The best of the ways a user would write it."""
import statistics

import torch
import torch.nn.functional as F

flush = torch.zeros(64 << 20, dtype=torch.float32, device="cuda")


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


def mla(heads, batch, context):
    q = torch.randn(batch, heads, 576, device="cuda", dtype=torch.bfloat16)
    kv = torch.randn(batch, context, 576, device="cuda", dtype=torch.bfloat16)
    scale = 0.0417

    def naive():
        weights = torch.softmax(torch.bmm(q, kv.transpose(1, 2)) * scale, -1, dtype=torch.float32).to(torch.bfloat16)
        return torch.bmm(weights, kv[:, :, :512])

    def sdpa():  # the heads as queries of one key head
        return F.scaled_dot_product_attention(q[:, None], kv[:, None], kv[:, None, :, :512], scale=scale)

    for way in (naive, sdpa):
        try:
            print(f"torch {way.__name__:6} MLA h{heads} b{batch} s{context}: {median_us(way):9.1f} us", flush=True)
        except RuntimeError as error:
            print(f"torch {way.__name__} MLA h{heads}: {str(error).splitlines()[0]}")


def linear(tokens, n, k):
    x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    print(f"torch linear {tokens} x [{n}, {k}]: {median_us(lambda: F.linear(x, w)):9.1f} us", flush=True)


def sdpa(batch, heads, kv_heads, queries, keys):
    q = torch.randn(batch, heads, queries, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, keys, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    us = median_us(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=queries > 1, enable_gqa=True))
    print(f"torch sdpa {heads}/{kv_heads} b{batch} s{keys} new {queries}: {us:9.1f} us", flush=True)


def experts(tokens, count, top_k, hidden, width):
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    up = torch.randn(count, hidden, 2 * width, device="cuda", dtype=torch.bfloat16) * 0.03
    down = torch.randn(count, width, hidden, device="cuda", dtype=torch.bfloat16) * 0.03
    ids = torch.rand(tokens, count, device="cuda").topk(top_k).indices
    weights = torch.rand(tokens, top_k, device="cuda")

    def run():
        flat = ids.flatten()
        order = flat.argsort(stable=True)
        ends = torch.bincount(flat, minlength=count).cumsum(0).to(torch.int32)
        both = torch._grouped_mm(x[order // top_k], up, offs=ends)
        y = torch._grouped_mm(F.silu(both[:, :width]) * both[:, width:], down, offs=ends)
        pairs = torch.empty_like(y)
        pairs[order] = y
        return (pairs.view(tokens, top_k, hidden) * weights[..., None]).sum(1)

    print(f"torch grouped_mm {count} x {width}, top {top_k}, T={tokens}: {median_us(run, 9):9.1f} us", flush=True)


mla(16, 128, 4096)
mla(16, 1, 32768)
mla(128, 128, 4096)
sdpa(64, 32, 8, 1, 4096)
sdpa(1, 32, 8, 8192, 8192)
for tokens in (1, 16, 128, 512, 2048, 4096):
    linear(tokens, 4096, 4096)
for n, k in ((28672, 4096), (4096, 14336), (2048, 2048), (102400, 2048)):
    for tokens in (1, 128, 4096):
        if n < 100000 or tokens < 4096:
            linear(tokens, n, k)
for tokens in (1, 32, 128):
    experts(tokens, 64, 6, 2048, 1408)
experts(32768, 128, 8, 2048, 768)
