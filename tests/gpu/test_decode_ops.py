"""The fused ops of a decode step on a GPU, each against plain torch in float32, at odd shapes and numbers of rows."""

import pytest
import torch
from torch.nn import functional

from engine.models.config import RopeConfig
from engine.models.rope import rope_tables
from engine.ops.best_token import best_token_
from engine.ops.linear_add_norm import linear_add_norm, linear_add_norm_reference
from engine.ops.norm_gate_up import norm_gate_up, norm_gate_up_reference
from engine.ops.norm_linear import norm_linear, norm_linear_reference
from engine.ops.rotary_attention import rotary_attention_, rotary_attention_reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEVICE = "cuda"
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
ROWS = [1, 2, 3, 8, 17, 64, 100]
# Each case costs compilations: every type meets one odd shape, bfloat16 meets every branch of the tables.
PRODUCTS = [
    *[(100, 200, dtype) for dtype in (BF16, F16, F32)],
    *[(outputs, inputs, BF16) for outputs, inputs in ((960, 576), (4100, 4096), (8200, 1032), (8200, 1030))],
    (4100, 4096, F16),
]
SUMS = [*PRODUCTS[:3], (576, 1536, BF16), (4100, 4096, BF16), (24, 5000, BF16), (600, 14400, BF16), (600, 14400, F16)]
GATED = [*PRODUCTS[:3], (1536, 576, BF16), (1000, 1100, BF16), (8200, 1032, BF16), (8200, 1030, BF16)]
HEADS = [
    *[(sizes, BF16) for sizes in ((9, 3, 64), (8, 8, 80), (16, 1, 128), (32, 8, 128), (4, 1, 256), (4, 2, 16))],
    *[(sizes, dtype) for sizes in ((8, 8, 80), (2, 2, 8)) for dtype in (F16, F32)],
]
TOLERANCE = {F32: 2e-5, F16: 2e-3, BF16: 1.2e-2}
EPS = 1e-5


def draw(*shape, dtype, scale=1.0):
    return (torch.randn(*shape) * scale).to(DEVICE, dtype)


def require_close(got, expected, dtype):
    """Compare by the norm of the difference, relative to the norm of what is right; a NaN never passes."""
    error = (got.float() - expected.float()).norm() / expected.float().norm()
    assert float(error) < TOLERANCE[dtype], f"relative error {float(error):.2e}"


def widened(*tensors):
    return [None if tensor is None else tensor.float() for tensor in tensors]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("outputs", "inputs", "dtype"), PRODUCTS)
def test_a_product_equals_float32_with_and_without_what_surrounds_it(outputs, inputs, rows, dtype):
    torch.manual_seed(rows)
    x, residual = draw(rows, inputs, dtype=dtype), draw(rows, outputs, dtype=dtype)
    weight, bias = draw(outputs, inputs, dtype=dtype, scale=inputs**-0.5), draw(outputs, dtype=dtype)
    norm = draw(inputs, dtype=dtype)
    for gain, add, rest, is_wide in (
        (norm, bias, None, False),
        (None, None, residual, False),
        (None, None, None, True),
    ):
        got = norm_linear(x, weight, add, rest, norm=gain, eps=EPS, is_wide=is_wide)
        wx, ww, wadd, wrest, wgain = widened(x, weight, add, rest, gain)
        assert got.dtype is (F32 if is_wide else dtype)
        require_close(got, norm_linear_reference(wx, ww, wadd, wrest, norm=wgain, eps=EPS), dtype)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("width", "inputs", "dtype"), GATED)
def test_the_gated_product_equals_float32(width, inputs, rows, dtype):
    torch.manual_seed(rows)
    x, gain = draw(rows, inputs, dtype=dtype), draw(inputs, dtype=dtype)
    gate_up = draw(2 * width, inputs, dtype=dtype, scale=inputs**-0.5)
    for norm in (None, gain):
        got = norm_gate_up(x, gate_up, norm=norm, eps=EPS)
        wx, ww, wnorm = widened(x, gate_up, norm)
        require_close(got, norm_gate_up_reference(wx, ww, norm=wnorm, eps=EPS), dtype)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("outputs", "inputs", "dtype"), SUMS)
def test_the_sum_and_its_norm_equal_float32(outputs, inputs, rows, dtype):
    torch.manual_seed(rows)
    x, residual = draw(rows, inputs, dtype=dtype), draw(rows, outputs, dtype=dtype)
    weight = draw(outputs, inputs, dtype=dtype, scale=inputs**-0.5)
    bias, norm = draw(outputs, dtype=dtype), draw(outputs, dtype=dtype)
    for add in (None, bias):
        got = linear_add_norm(x, weight, add, residual, norm=norm, eps=EPS)
        wx, ww, wadd, wresidual, wnorm = widened(x, weight, add, residual, norm)
        expected = linear_add_norm_reference(wx, ww, wadd, wresidual, norm=wnorm, eps=EPS)
        for one, other in zip(got, expected, strict=True):
            require_close(one, other, dtype)


class Cache:
    """Sequences of these lengths in a pool full of NaN, but for the tokens that earlier steps wrote."""

    def __init__(self, heads, kv_heads, head_size, lengths, dtype, *, size=16, width=24):
        self.H, self.G, self.D, self.dtype = heads, kv_heads, head_size, dtype
        N = len(lengths)
        self.pool = torch.full((2, kv_heads, N * width + 1, size, head_size), float("nan"), dtype=dtype)
        table = torch.randperm(N * width).view(N, width).to(torch.int32)
        for n, length in enumerate(lengths):
            for token in range(length):
                self.pool[:, :, table[n, token // size], token % size] = torch.randn(2, kv_heads, head_size).to(dtype)
        self.positions = torch.tensor(lengths, dtype=torch.int32)
        self.kv_lens, self.table = self.positions + 1, table
        self.cos, self.sin = (t.to(dtype) for t in rope_tables(RopeConfig(), head_size, width * size))

    def run(self, op, qkv, gain, *, device, dtype):
        """Run the op over a copy of the pool; returns its output and the pool."""
        pool = self.pool.to(device, dtype, copy=True)
        cos, sin, gain = (None if t is None else t.to(device, dtype) for t in (self.cos, self.sin, gain))
        out = torch.full((qkv.shape[0], self.H, self.D), float("nan"), device=device, dtype=dtype)
        tables = {"kv_lens": self.kv_lens.to(device), "block_table": self.table.to(device)}
        blocks = {"key_blocks": pool[0], "value_blocks": pool[1]}
        tail = {"cos": cos, "signed_sin": sin, "gain": gain, "eps": EPS, **blocks, **tables}
        op(out, qkv.to(device, dtype), self.positions.to(device), **tail)
        return out.cpu(), pool.cpu()


@pytest.mark.parametrize(("sizes", "dtype"), HEADS)
@pytest.mark.parametrize(("copies", "has_gain"), [(1, False), (12, True), (12, False)])
def test_decode_attention_equals_float32(sizes, has_gain, dtype, copies):
    heads, kv_heads, head_size = sizes
    torch.manual_seed(head_size)
    cache = Cache(*sizes, [0, 7, 15, 16, 100, 255, 256, 300] * copies, dtype)
    cache.kv_lens[1] = 0  # not live
    qkv = torch.randn(8 * copies, (heads + 2 * kv_heads) * head_size).to(dtype)
    gain = torch.randn(heads + kv_heads, head_size).to(dtype) if has_gain else None
    got, pool = cache.run(rotary_attention_, qkv, gain, device=DEVICE, dtype=dtype)
    expected, expected_pool = cache.run(rotary_attention_reference, qkv, gain, device="cpu", dtype=torch.float32)
    assert not got[1].any()
    require_close(got, expected, dtype)
    assert torch.equal(pool.isnan(), expected_pool.isnan())
    require_close(pool.nan_to_num(0.0), expected_pool.nan_to_num(0.0), dtype)


@pytest.mark.parametrize(("rows", "vocab"), [(1, 300), (3, 2048), (64, 49152), (100, 5001)])
def test_the_best_token_is_torchs_argmax_and_lands_in_its_slot(rows, vocab):
    logits = torch.randn(rows, vocab, device=DEVICE)
    logits[0, 200] = logits[0, 250] = 99.0
    logits[rows // 2, vocab - 1] = float("nan") if rows > 1 else 0.0
    tokens, slots = torch.full((1, 200, 1), -1, dtype=torch.int32, device=DEVICE), torch.randperm(200)[:rows]
    best_token_(tokens, logits, slots.to(DEVICE))
    expected = torch.full((200,), -1, dtype=torch.int32)
    expected[slots] = logits.argmax(1).cpu().int()
    assert torch.equal(tokens.view(-1).cpu(), expected)


@pytest.mark.parametrize(("M", "F"), [(576, 1536), (4096, 2048)])
def test_a_chain_of_early_started_kernels_is_right_in_a_graph_at_every_replay(M, F):
    torch.manual_seed(0)
    layers, dtype = 12, torch.bfloat16
    weights = [
        (draw(2 * F, M, dtype=dtype, scale=M**-0.5), draw(M, F, dtype=dtype, scale=F**-0.5)) for _ in range(layers)
    ]
    norm = torch.ones(M, dtype=dtype, device=DEVICE)
    for rows in (1, 64):
        x = draw(rows, M, dtype=dtype)

        def chain(start=x):
            y = start
            normed = norm_linear(y, torch.eye(M, dtype=dtype, device=DEVICE), norm=norm, eps=EPS)
            for gate_up, down in weights:
                y, normed = linear_add_norm(norm_gate_up(normed, gate_up), down, None, y, norm=norm, eps=EPS)
            return y

        def plain(start=x):
            y = start.float()
            for gate_up, down in weights:
                gate, up = functional.linear(functional.rms_norm(y, (M,), None, EPS), gate_up.float()).chunk(2, -1)
                y = y + functional.linear(functional.silu(gate) * up, down.float())
            return y

        chain()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            got = chain()
        for _ in range(20):
            x.copy_(torch.randn(rows, M))
            graph.replay()
            require_close(got, plain(), dtype)
