"""The selective scan of Mamba-1 as two Triton kernels, used only to train the demo model in minutes.

transformers falls back to one Python step per token when mamba_ssm is absent. These kernels do the same recurrence,
h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t and y_t = h_t C_t, in float32, one program per (sequence, block of channels).
All states are kept for the backward pass: at 32 x 512 tokens that is 400 MB a layer, and nothing is recomputed.
"""
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 16  # channels per program


@triton.jit
def scan_forward(X, DT, A, B, C, Y, H, T, D, N: tl.constexpr, BD: tl.constexpr):
    batch, d, n = tl.program_id(0), tl.program_id(1) * BD + tl.arange(0, BD), tl.arange(0, N)
    a = tl.load(A + d[:, None] * N + n[None, :])
    h = tl.zeros([BD, N], dtype=tl.float32)
    for t in range(0, T):
        row = (batch * T + t).to(tl.int64)
        x, dt = tl.load(X + row * D + d), tl.load(DT + row * D + d)
        b, c = tl.load(B + row * N + n), tl.load(C + row * N + n)
        h = tl.exp(dt[:, None] * a) * h + (dt * x)[:, None] * b[None, :]
        tl.store(H + (row * D + d)[:, None] * N + n[None, :], h)
        tl.store(Y + row * D + d, tl.sum(h * c[None, :], axis=1))


@triton.jit
def scan_backward(X, DT, A, B, C, H, DY, DX, DDT, DA, DB, DC, T, D, ROWS, N: tl.constexpr, BD: tl.constexpr):
    batch, block, n = tl.program_id(0), tl.program_id(1), tl.arange(0, N)
    d = block * BD + tl.arange(0, BD)
    a = tl.load(A + d[:, None] * N + n[None, :])
    g = tl.zeros([BD, N], dtype=tl.float32)   # gradient of h_t
    da = tl.zeros([BD, N], dtype=tl.float32)
    for i in range(0, T):
        t = T - 1 - i
        row = (batch * T + t).to(tl.int64)
        x, dt = tl.load(X + row * D + d), tl.load(DT + row * D + d)
        b, c, dy = tl.load(B + row * N + n), tl.load(C + row * N + n), tl.load(DY + row * D + d)
        at = (row * D + d)[:, None] * N + n[None, :]
        h = tl.load(H + at)
        before = tl.load(H + at - D * N, mask=(t > 0) & (at >= 0), other=0.0)
        decay = tl.exp(dt[:, None] * a)
        g += dy[:, None] * c[None, :]
        gb, gd = tl.sum(g * b[None, :], axis=1), g * before * decay
        tl.store(DX + row * D + d, gb * dt)
        tl.store(DDT + row * D + d, gb * x + tl.sum(gd * a, axis=1))
        part = (block * ROWS + row) * N + n   # B and C are shared by the channels: one partial sum per block
        tl.store(DB + part, tl.sum(g * (dt * x)[:, None], axis=0))
        tl.store(DC + part, tl.sum(h * dy[:, None], axis=0))
        da += gd * dt[:, None]
        g *= decay
    tl.store(DA + (batch * D + d)[:, None] * N + n[None, :], da)


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, dt, a, b, c):  # x, dt [batch, T, D]; a [D, N]; b, c [batch, T, N]; contiguous float32
        batch, t, d = x.shape
        n = a.shape[1]
        y, h = torch.empty_like(x), torch.empty(batch, t, d, n, device=x.device)
        scan_forward[(batch, d // BLOCK)](x, dt, a, b, c, y, h, t, d, n, BLOCK, num_warps=1)
        ctx.save_for_backward(x, dt, a, b, c, h)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, dt, a, b, c, h = ctx.saved_tensors
        batch, t, d = x.shape
        n, blocks = a.shape[1], d // BLOCK
        dx, ddt = torch.empty_like(x), torch.empty_like(x)
        da = torch.empty(batch, d, n, device=x.device)
        db, dc = (torch.empty(blocks, batch, t, n, device=x.device) for _ in range(2))
        scan_backward[(batch, blocks)](x, dt, a, b, c, h, dy.contiguous(), dx, ddt, da, db, dc, t, d, batch * t, n, BLOCK,
                                       num_warps=1)
        return dx, ddt, da.sum(0), db.sum(0), dc.sum(0)


def mamba_selective_scan(hidden_states, dt, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, **kwargs):
    """Takes what transformers' function of this name takes: [batch, D, T] for x and dt, [batch, N, T] for B and C."""
    if delta_bias is not None:
        dt = dt + delta_bias[..., None]
    if delta_softplus:
        dt = F.softplus(dt)
    rows = [v.transpose(1, 2).contiguous().float() for v in (hidden_states, dt, B, C)]
    y = Scan.apply(rows[0], rows[1], A.contiguous(), rows[2], rows[3]).transpose(1, 2)
    if D is not None:
        y = y + hidden_states * D[None, :, None]
    return y * F.silu(z) if z is not None else y


def self_check(reference):
    """Output and every gradient against transformers' own scan, on a small problem."""
    torch.manual_seed(0)

    def inputs():
        g = torch.Generator(device="cuda").manual_seed(1)
        shapes = dict(x=(2, 32, 19), dt=(2, 32, 19), A=(32, 16), B=(2, 16, 19), C=(2, 16, 19), D=(32,), z=(2, 32, 19), bias=(32,))
        v = {k: torch.randn(s, device="cuda", generator=g) for k, s in shapes.items()}
        v["A"] = -v["A"].exp()
        return {k: t.requires_grad_() for k, t in v.items()}

    results = []
    for f in (reference, mamba_selective_scan):
        v = inputs()
        y = f(v["x"], v["dt"], v["A"], v["B"], v["C"], D=v["D"], z=v["z"], delta_bias=v["bias"], delta_softplus=True)
        y.square().sum().backward()
        results.append([y.detach()] + [t.grad for t in v.values()])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-4)
