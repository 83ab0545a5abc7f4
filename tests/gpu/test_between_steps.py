"""The kernels between two replays on a GPU: each equals plain torch, and what is sent is there behind an event."""

import pytest
import torch

from engine.ops.advance_rows import advance_rows_, advance_rows_reference
from engine.ops.send_to_host import send_to_host_

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]


@pytest.mark.parametrize("rows", [1, 64, 255, 256, 300])
def test_rows_advance_as_in_plain_torch(rows):
    samples = torch.randint(0, 1000, (rows + 3,), dtype=torch.int32, device="cuda")
    slots = torch.randperm(rows + 3, device="cuda")[:rows]
    got, expected = ([torch.zeros(rows, dtype=torch.int32, device="cuda") for _ in range(2)] for _ in range(2))
    for _ids, positions in (got, expected):
        positions.copy_(torch.arange(rows))
    advance_rows_(*got, samples, slots)
    advance_rows_reference(*expected, samples, slots)
    assert all(torch.equal(mine, right) for mine, right in zip(got, expected, strict=True))


@pytest.mark.parametrize("shape", [(1, 2), (1, 65), (5, 257), (3, 300)])
def test_what_is_sent_lies_in_pinned_memory_behind_an_event(shape):
    target = torch.zeros(shape, dtype=torch.int32, pin_memory=True)
    source = torch.randint(1, 1000, shape, dtype=torch.int32, device="cuda")
    torch.cuda._sleep(10_000_000)
    send_to_host_(target, source)
    event = torch.cuda.Event()
    event.record()
    event.synchronize()
    assert torch.equal(target, source.cpu())
