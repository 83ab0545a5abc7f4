"""Each refusal names the operation, the line that a reader can change, why, and what to do instead."""

import re

import pytest
import torch

from engine.cuda_graphs.tape import TapeBackend
from engine.cuda_graphs.tape_rules import HOST_READS, refuse_by_schema, source_line
from engine.device import DeviceRegistry
from engine.errors import CaptureRefusedError

aten = torch.ops.aten


@pytest.fixture
def capture():
    registry, x = DeviceRegistry(), torch.arange(12.0).view(3, 4)
    registry.register("x", x)
    backend = TapeBackend(registry)
    return lambda step: backend.capture(lambda: step(x))


HOST = torch.device("cpu")
HOST_READ = "the host would read a value that exists only at replay"
DYNAMIC = "its shape or work depends on data; keep shapes fixed: torch.where or masked_fill, not a mask"
REFUSALS = [
    ("item()", lambda x: x[0, 0].item(), HOST_READ),
    ("tolist()", lambda x: x.tolist(), HOST_READ),
    ("numpy()", lambda x: x.numpy(), HOST_READ),
    ("cpu()", lambda x: x.cpu(), HOST_READ),
    ("__bool__()", lambda x: 1 if x[0, 0] else 2, HOST_READ),
    ("__int__()", lambda x: int(x[0, 0]), HOST_READ),
    ("__float__()", lambda x: float(x[0, 0]), HOST_READ),
    ("__index__()", lambda x: range(x[0, 1].long()), HOST_READ),
    ("__contains__()", lambda x: 3.0 in x, HOST_READ),
    ("__repr__()", lambda x: x.__repr__(), HOST_READ),
    ("__format__()", lambda x: f"{x[0, 0]}", HOST_READ),
    ("equal()", lambda x: torch.equal(x, x), HOST_READ),
    ("allclose()", lambda x: torch.allclose(x, x), HOST_READ),
    ("torch.tensor()", lambda x: x + torch.tensor([1.0], device=x.device), "it copies pageable host memory"),
    ("torch.new_tensor()", lambda x: x.new_tensor([1.0]), "it copies pageable host memory"),
    ("torch.arange()", lambda x: torch.arange(4) + x, "without device= it makes host memory on a CUDA machine"),
    ("torch.zeros()", lambda x: torch.zeros(4) + x, "without device= .*; pass device=x.device"),
    ("to()", lambda x: x.to("cpu"), "it names the CPU, which is host memory on a CUDA machine"),
    ("zeros()", lambda x: torch.zeros(4, device="cpu"), "it names the CPU"),
    ("device()", lambda x: x.to(torch.device("cpu")), "it names the CPU"),
    ("to()", lambda x: x.to(HOST), "its CPU device is no tensor's, .*; use x.device of an input, read inside"),
    ("aten.nonzero.default", lambda x: x.nonzero(), DYNAMIC),
    ("aten.masked_select.default", lambda x: x.masked_select(x > 0), DYNAMIC),
    ("aten._unique2.default", lambda x: x.unique(), DYNAMIC),
    ("aten.index.Tensor", lambda x: x[x > 0], DYNAMIC),
    ("aten.rand_like.default", torch.rand_like, "it draws from a generator, .*; hash"),
    ("aten.bernoulli_.float", lambda x: x.bernoulli_(0.5), "it draws from a generator"),
    ("aten.squeeze_.default", lambda x: x.squeeze_(), "it changes the shape or storage of a tensor in place"),
    ("aten.lift_fresh.default", lambda x: x[[0, 1]], "a constant of the host is pageable memory"),
]


@pytest.mark.parametrize(("operation", "step", "why"), REFUSALS, ids=[row[0] for row in REFUSALS])
def test_a_step_that_no_graph_can_record_is_refused(capture, operation, step, why):
    pattern = rf"^{re.escape(operation)} at test_tape_rules\.py:\d+ cannot be captured: {why}"
    with pytest.raises(CaptureRefusedError, match=pattern):
        capture(step)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: torch.arange(4, device=x.device) + x,
        lambda x: x.new_zeros(4) + torch.zeros_like(x),
        lambda x: x.to(x.device) + x.to(torch.float64),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: [row + 1 for row in x],
        lambda x: x[:, None].expand(3, 2, 4).reshape(6, 4),
        lambda x: (x.shape[0], len(x), x.dim(), x.data_ptr()),
    ],
)
def test_a_step_that_reads_only_shapes_and_devices_is_not(capture, step):
    assert capture(step).nbytes >= 0


def test_attention_that_drops_out_draws_at_random(capture):
    attend = torch.nn.functional.scaled_dot_product_attention
    with pytest.raises(CaptureRefusedError, match="it draws from a generator"):
        capture(lambda x: attend(x[None], x[None], x[None], dropout_p=0.5))


def test_the_schema_alone_refuses_what_returns_to_the_host():
    x = torch.zeros(2)
    with pytest.raises(CaptureRefusedError, match="it returns a value to the host"):
        refuse_by_schema(aten.equal.default, (x, x), {})
    with pytest.raises(CaptureRefusedError, match="it returns a value to the host"):
        refuse_by_schema(aten._local_scalar_dense.default, (x,), {})


@pytest.mark.parametrize("op", [aten.index.Tensor, aten.index_put_.default, aten._unsafe_index.Tensor])
def test_a_mask_is_refused_and_an_integer_index_is_not(op):
    x = torch.zeros(2)
    refuse_by_schema(op, (x, [torch.tensor([1])]), {})
    for kind in (torch.bool, torch.uint8):
        with pytest.raises(CaptureRefusedError, match="depends on data"):
            refuse_by_schema(op, (x, [None, torch.ones(2, dtype=kind)]), {})


def test_the_line_is_the_readers_and_not_torchs():
    assert source_line().startswith("test_tape_rules.py:")
    linear = torch.nn.Linear(2, 2)
    lines = []
    linear.register_forward_hook(lambda *_: lines.append(source_line()))
    linear(torch.zeros(1, 2))
    assert lines[0].startswith("test_tape_rules.py:")


def test_every_way_to_read_a_value_is_a_name_of_torch():
    known = set(dir(torch.Tensor)) | set(dir(torch))
    assert known >= HOST_READS
