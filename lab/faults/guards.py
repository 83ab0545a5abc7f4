"""The engine's own guards, and the switch that takes them off.

On, they are what every engine has: the checks before a replay (metadata object, counts, shapes, and with
``strict_buffers`` every address), the capacities of the metadata, and the ban on captures while serving. Off, a
replay copies whatever it is given, as far as it goes, as an engine without these checks would.

Does not: check anything more (``audit.py``). Source: the unchecked replay is that of TensorRT-LLM before its PR
18207.
"""

import contextlib
from collections.abc import Generator
from typing import Any

from engine.attention.paged import PagedMetadata
from engine.cuda_graphs.key import KeyType
from engine.cuda_graphs.runner import CUDAGraphRunner
from engine.inputs.records import PreparedInputs
from lab.faults.fault import swapped


def replay_unchecked(runner: Any, key: KeyType, prepared: PreparedInputs) -> tuple[object, object]:
    """Copy the rows that there are into the statics, and replay: too few leave a tail, one position spreads out."""
    entry = runner._entries[key]
    inputs, rows = entry.inputs, prepared.input_ids.shape[0]
    stream = runner._stream
    stream.copy_(inputs.input_ids[:rows], prepared.input_ids)
    stream.copy_(inputs.position_ids[..., : max(rows, prepared.position_ids.shape[-1])], prepared.position_ids)
    stream.copy_(inputs.seq_slots[: prepared.seq_slots.shape[0]], prepared.seq_slots)
    stream.launch(entry.graph.replay)
    return entry.graph.outputs, entry.check


def _allow_anything(*_arguments: object) -> None:
    """Stand in for a check that raises."""


@contextlib.contextmanager
def guards_off() -> Generator[None]:
    """Take the engine's guards off for every engine that runs inside the block."""
    with (
        swapped(CUDAGraphRunner, "replay", replay_unchecked),
        swapped(CUDAGraphRunner, "_check_may_capture", _allow_anything),
        swapped(PagedMetadata, "_require_fits", _allow_anything),
    ):
        yield
