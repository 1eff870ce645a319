"""PyTorch on the shapes of cuda_bench.cc: cold L2, random data, medians. The best of the ways a user would write it."""
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


mla(16, 128, 4096)
mla(16, 1, 32768)
mla(128, 128, 4096)
for tokens in (1, 16, 128, 2048):
    linear(tokens, 4096, 4096)
linear(1, 102400, 2048)
