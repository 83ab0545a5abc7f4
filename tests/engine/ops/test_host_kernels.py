"""The kernel behind an op is what the dispatcher would have reached."""

import pytest
import torch

from engine.ops import gated_mlp, linear, paged_attention, rms_norm
from engine.ops.host_kernels import fixed_call, host_kernel
from engine.ops.linear import pack
from tests.engine.attention.paged_world import World

OPS = torch.ops.stepscope


@pytest.mark.parametrize(
    "op",
    [
        OPS.linear.default,
        OPS.linear.out,
        OPS.rms_norm.default,
        OPS.rms_norm.out,
        OPS.gated_mlp.default,
        OPS.gated_mlp.out,
        OPS.paged_attention_.default,
    ],
    ids=str,
)
def test_each_cpu_op_of_ours_has_its_kernel(op):
    files = (gated_mlp, linear, paged_attention, rms_norm)
    assert host_kernel(op) in {value for file in files for value in vars(file).values() if callable(value)}


def test_an_op_of_torch_has_none():
    assert host_kernel(torch.ops.aten.mm.default) is None


def test_kernel_and_dispatcher_give_the_same_bits():
    x, weight, residual = torch.randn(3, 16), torch.randn(24, 16), torch.randn(3, 24)
    kernel = host_kernel(OPS.linear.default)
    assert torch.equal(kernel(x, weight, None, residual), OPS.linear.default(x, weight, None, residual))


def test_a_fixed_call_of_torchs_own_op_is_the_op():
    x, out = torch.randn(3, 4), torch.empty(3, 4)
    fixed_call(torch.ops.aten.neg.out, (x,), {"out": out})()
    assert torch.equal(out, -x)


@pytest.mark.parametrize("rows", [1, 3, 5, 8, 9])
@pytest.mark.parametrize("with_residual", [False, True])
def test_a_fixed_call_reads_what_its_arguments_hold_at_each_call(rows, with_residual):
    torch.manual_seed(rows)
    weights = {OPS.linear.out: (torch.randn(96, 32),), OPS.gated_mlp.out: (torch.randn(192, 32), torch.randn(32, 96))}
    for op, matrices in weights.items():
        for weight in matrices:
            pack(weight)
        x, out = torch.empty(rows, 32), torch.empty(rows, matrices[-1].shape[0])
        residual = torch.empty_like(out) if with_residual else None
        between = (None,) if op is OPS.linear.out else ()  # the bias
        call = fixed_call(op, (x, *matrices, *between, residual), {"out": out})
        for _ in range(2):
            x.normal_()
            if residual is not None:
                residual.normal_()
            call()
            assert torch.equal(out, op(x, *matrices, *between, residual, out=torch.empty_like(out)))


def test_fixed_attention_follows_lengths_dead_rows_and_steps_that_are_not_decode():
    """One call serves steps of single rows, with a row that is dead, and with several rows of a sequence."""
    eager, fixed = World("native"), World("native")
    worlds = (eager, fixed)
    for world in worlds:
        world.scatter(3)
        world.run(world.metadata(), [6, 1, 3])
        world.storage.blocks[1, :, :, world.sequences[0].blocks[-1]] = float("nan")
    both = [(world, world.metadata(sequences=3, rows=4)) for world in worlds]
    call, statics = None, None
    for counts in ([1, 1, 2], [1, 1, 2], [2, 1, 1], [1, 1, 1], [1, 1, 2]):
        results = []
        for world, metadata in both:
            step, rows = world.step(counts), world.rows(counts)
            rows = [torch.cat((row, row.new_zeros(4 - len(row), *row.shape[1:]))) for row in rows]
            metadata.prepare(step)
            if world is eager:
                results.append(metadata.attend(1, *rows))
                continue
            if statics is None or call is None:
                statics = [torch.empty_like(row) for row in rows]
                out = torch.empty_like(statics[0])
                call = fixed_call(OPS.paged_attention_.default, (out, *statics), attention_arguments(metadata))
            for static, row in zip(statics, rows, strict=True):
                static.copy_(row)
            call()
            results.append(out.clone())
        assert not results[0].isnan().any()
        torch.testing.assert_close(*results, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(eager.storage.blocks, fixed.storage.blocks, equal_nan=True)


def attention_arguments(metadata):
    key_blocks, value_blocks = metadata.storage.layer(1)
    names = ("scratch", "step_table", "kv_lens", "block_table", "row_to_sequence", "query_start")
    named = {name: getattr(metadata, name) for name in names}
    return {"key_blocks": key_blocks, "value_blocks": value_blocks, **named}
