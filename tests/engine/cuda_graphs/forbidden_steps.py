"""Single steps inside capture that a graph cannot record, or only one of the two machines can: rows of the table.

Each row is (run, verdict on the tape, verdict on CUDA, why they differ).
"""

import dataclasses

import numpy as np
import torch

CAPTURE = "refused(CaptureRefusedError)"
STOPPED = "raised(RuntimeError)"
OWN_ERROR = "raised(ZeroDivisionError)"
HOST = torch.device("cpu")


def flatten_positions(inputs):
    """Make positions that a copy would broadcast to every row."""
    return dataclasses.replace(inputs, position_ids=inputs.position_ids.flatten()[:1])


def inside(step):
    """Capture one step over a matrix x; what it gives must equal what it gives eagerly."""

    def run(machine):
        x = machine.rows()
        graph = machine.capture(lambda: step(x, machine))
        x.neg_()
        right = step(x, machine).clone()
        return machine.replay(graph), right

    return run


def after(step):
    """Let a step that is not allowed go first, and compute something plain."""
    return inside(lambda x, machine: (step(x, machine), x * 2)[1])


def masked_write(x, _machine):
    y = x * 1
    y[y > 0] = 0.0
    return y


def add_a_host_tensor(x, machine):
    host = torch.ones(8)
    return x + host.to(machine.device)


def add_a_pinned_tensor(machine):
    x = machine.rows()
    host = torch.ones(8, pin_memory=machine.device.type == "cuda")
    graph = machine.capture(lambda: x + host.to(machine.device, non_blocking=True))
    return machine.replay(graph), x + 1


def scale_by_a_host_number(machine):
    x, number = machine.rows(), torch.tensor(2.0)
    return machine.replay(machine.capture(lambda: x * number)), x * 2


def use_unregistered_memory(machine):
    x, other = machine.rows(), torch.ones(8, device=machine.device)
    return machine.replay(machine.capture(lambda: x + other)), x + 1


def draw_at_random(machine):
    x = machine.rows()
    graph = machine.capture(lambda: x + torch.rand_like(x))
    first, second = machine.replay(graph).clone(), machine.replay(graph).clone()
    return (first != second).any(1).float(), torch.ones(4, device=machine.device)


def wait_for_the_device(x, machine):
    machine.world.stream.synchronize() if machine.world.stream._is_capturing else None
    return x * 2


def without_a_fake(machine):
    library = torch.library.Library("scenario", "FRAGMENT")
    library.define("no_fake(Tensor x) -> Tensor")
    for kind in ("CPU", "CUDA"):
        library.impl("no_fake", lambda x: x + 1, kind)
    x = machine.rows()
    return machine.replay(machine.capture(lambda: torch.ops.scenario.no_fake(x))), x + 1


def index_by_a_list(x, _machine):
    return x[[3, 0, 1, 2]]


TABLE = {
    "item": (after(lambda x, _m: x[0, 0].item()), CAPTURE, CAPTURE),
    "tolist": (after(lambda x, _m: x.tolist()), CAPTURE, CAPTURE),
    "numpy": (after(lambda x, _m: np.asarray(x.cpu())), CAPTURE, CAPTURE),
    "repr": (after(lambda x, _m: repr(x)), CAPTURE, CAPTURE),
    "format": (after(lambda x, _m: f"{x[0, 0]:.2f}"), CAPTURE, CAPTURE),
    "if": (after(lambda x, _m: 1 if x.sum() > 0 else 2), CAPTURE, CAPTURE),
    "in": (after(lambda x, _m: 0.5 in x), CAPTURE, CAPTURE),
    "int as an index": (inside(lambda x, _m: x[int(x[0, 0] > 9) :]), CAPTURE, CAPTURE),
    "torch.equal": (after(lambda x, _m: torch.equal(x, x + 1)), CAPTURE, CAPTURE),
    "allclose": (after(lambda x, _m: torch.allclose(x, x + 1)), CAPTURE, CAPTURE),
    "a device spelt cpu": (after(lambda x, _m: x.to("cpu")), CAPTURE, CAPTURE),
    "nonzero": (after(lambda x, _m: x.nonzero()), CAPTURE, CAPTURE),
    "unique": (after(lambda x, _m: torch.unique(x)), CAPTURE, CAPTURE),
    "masked_select": (after(lambda x, _m: x.masked_select(x > 0)), CAPTURE, CAPTURE),
    "a boolean index": (after(lambda x, _m: x[x > 0]), CAPTURE, CAPTURE),
    "repeat_interleave": (
        after(lambda x, _m: x.repeat_interleave((x[:, 0] > -9).long(), dim=0)), CAPTURE, CAPTURE,
    ),
    "a constant of the host": (
        inside(lambda x, m: x + torch.tensor([1.0] * 8, device=m.device)), CAPTURE, CAPTURE,
    ),
    "a list as index": (inside(index_by_a_list), CAPTURE, CAPTURE),
    "a pageable host tensor": (inside(add_a_host_tensor), CAPTURE, CAPTURE),
    "waiting for the device": (inside(wait_for_the_device), CAPTURE, CAPTURE),
    "where in place of a mask": (inside(lambda x, _m: torch.where(x > 0, x, 0.0)), "ok", "ok"),
    "masked_fill": (inside(lambda x, _m: x.masked_fill(x > 0, 0.0)), "ok", "ok"),
    "a factory on the inputs' device": (
        inside(lambda x, _m: x + torch.arange(8, device=x.device)), "ok", "ok",
    ),
    "a branch on a shape": (inside(lambda x, _m: x * 2 if x.shape[0] > 2 else x), "ok", "ok"),
    "shapes that do not fit": (inside(lambda x, _m: x @ x), STOPPED, STOPPED),
    "an error of our own": (inside(lambda x, _m: x * (1 // 0)), OWN_ERROR, OWN_ERROR),
    "a write by mask": (
        inside(masked_write), CAPTURE, "ok", "torch turns it into masked_fill on CUDA too; the tape refuses every mask",
    ),
    "a pinned host tensor": (
        add_a_pinned_tensor, CAPTURE, "ok", "CUDA bakes the host address in; the tape trusts only registered memory",
    ),
    "a host number as tensor": (
        scale_by_a_host_number, CAPTURE, "ok", "CUDA bakes the number in; the tape cannot tell it from an input",
    ),
    "unregistered memory": (
        use_unregistered_memory, CAPTURE, "ok", "on a CPU nothing but the registry says what is device memory",
    ),
    "random numbers": (
        draw_at_random, CAPTURE, "ok", "CUDA advances a registered generator; the tape has no such generator",
    ),
    "an op without a fake": (without_a_fake, CAPTURE, "ok", "the tape needs the shape without computing"),
    "a factory without device": (
        inside(lambda x, _m: x + torch.arange(8)), CAPTURE, STOPPED, "on CUDA the eager run fails on two devices",
    ),
    "a CPU device from outside": (
        after(lambda x, _m: x.to(HOST)), CAPTURE, CAPTURE,
    ),
    "a device read from an input": (inside(lambda x, _m: x.to(x.device) * 2), "ok", "ok"),
    "a device kept since before capture": (
        inside(lambda x, m: x.to(m.device) * 2), CAPTURE, "ok", "on a CPU it may as well be the host's; read x.device",
    ),
}  # fmt: skip
