"""Block copies on CUDA: pinned host blocks, one staging block, everything on the step's stream, nobody waits."""

import dataclasses

import pytest
import torch

from engine import LLM
from engine.device import make_stream, resolve_device
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.storage import KVStorage
from tests.equivalence.margin import assert_equal_by_margin, reference_cases
from tests.equivalence.test_reuse import ROWS, ReuseCounter, Row, conversations

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]


def on_cuda(config):
    return dataclasses.replace(config, device="cuda", dtype="float32")


@pytest.fixture(scope="module")
def cases():
    plain = on_cuda(Row(backend="vanilla").config())
    plain = dataclasses.replace(plain, kv_cache=dataclasses.replace(plain.kv_cache, enable_block_reuse=False))
    with LLM("tiny", plain) as llm:
        return conversations(lambda prompt, count: reference_cases(llm, [prompt], [count])[0])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_go_to_the_host_and_come_back_byte_for_byte_while_their_places_are_rewritten(dtype):
    spec = resolve_device("cuda", dtype)
    storage = KVStorage.allocate(
        num_layers=32,
        num_blocks=24,
        tokens_per_block=16,
        num_kv_heads=8,
        head_size=128,
        spec=spec,
        num_host_blocks=16,
    )
    stream = make_stream(spec)
    assert storage.host_blocks is not None
    assert storage.host_blocks.is_pinned()
    storage.blocks.normal_()
    before = storage.blocks.clone()
    storage.run_copies([BlockCopy(CopyKind.OFFLOAD, block, block, 16) for block in range(16)], stream)
    storage.blocks[:, :, :, :16].fill_(float("nan"))  # the new owners, at once
    storage.run_copies([BlockCopy(CopyKind.ONBOARD, block, 15 - block, 16) for block in range(16)], stream)
    storage.run_copies([BlockCopy(CopyKind.ONBOARD, 3, 20, 5), BlockCopy(CopyKind.DEVICE, 12, 21, 7)], stream)
    stream.synchronize()
    assert torch.equal(storage.blocks[:, :, :, :16], before[:, :, :, :16].flip(3))
    assert torch.equal(storage.blocks[:, :, :, 20, :5], before[:, :, :, 3, :5])
    assert torch.equal(storage.blocks[:, :, :, 20, 5:], before[:, :, :, 20, 5:])
    assert torch.equal(storage.blocks[:, :, :, 21, :7], before[:, :, :, 3, :7])


@pytest.mark.parametrize("row", [row for row in ROWS if not row.lag], ids=str)
def test_reused_blocks_give_the_tokens_that_computed_ones_give(cases, row):
    counter = ReuseCounter()
    with LLM("tiny", on_cuda(row.config())) as llm:
        llm.set_probe(counter)
        alone = assert_equal_by_margin(llm, cases, together=False)
        together = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert min(alone, together) >= 0.9 * sum(len(case.greedy_ids) for case in cases)
    assert counter.counts["credit"] > 0
    assert bool(counter.counts[CopyKind.OFFLOAD]) == bool(row.host_blocks)
