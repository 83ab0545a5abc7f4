"""Faults of the input buffers: rows too few, left over, spread out, moved, or rewritten too early.

Does not: run them (``runs.py``). Source: each fault names the bug or rule it is modelled on.
"""

import contextlib
import copy
import functools
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import torch

from engine.attention.native import NativeBackend
from engine.attention.paged import PagedMetadata
from engine.cuda_graphs.key import KeyType
from engine.cuda_graphs.runner import CUDAGraphRunner
from engine.device import PinnedRing, Stream
from engine.inputs import input_buffers
from engine.inputs.prepare import DecoderInputPreparer
from engine.inputs.records import BufferWrite, PreparedInputs, Writer
from lab.faults.fault import FOUR, THREE, Fault, Joining, Workload, part, small_config, swapped

_LATE: Final = 64  # device actions that the host may be ahead: more than one step has
_SENTINEL: Final = 1  # what memory that a graph should no longer read holds


def _replaying(change: Callable[[PreparedInputs], PreparedInputs]) -> contextlib.AbstractContextManager[None]:
    """Change what every replay is given."""
    replay = part(CUDAGraphRunner, "replay")

    def replay_changed(self: Any, key: KeyType, prepared: PreparedInputs) -> Any:
        return replay(self, key, change(prepared))

    return swapped(CUDAGraphRunner, "replay", replay_changed)


def misshapen(prepared: PreparedInputs, name: str, tensor: torch.Tensor) -> PreparedInputs:
    """Copy a record with one tensor of a shape that does not fit, past the shape checks of its constructor."""
    changed = copy.copy(prepared)
    object.__setattr__(changed, name, tensor)
    return changed


def _without_last_token(prepared: PreparedInputs) -> PreparedInputs:
    return misshapen(prepared, "input_ids", prepared.input_ids[:-1])


def _first_position_only(prepared: PreparedInputs) -> PreparedInputs:
    return misshapen(prepared, "position_ids", prepared.position_ids[..., :1])


def _skip_zero_fill() -> contextlib.AbstractContextManager[None]:
    """Write what the host and the device know, and leave the dummies' rows as the last step left them."""
    write = part(DecoderInputPreparer, "_write_tokens")

    def write_tokens(self: Any, host: Any, previous: Any) -> list[BufferWrite]:
        zero = host.segments[2]
        left_over = self.buffers.input_ids[zero.start : zero.end].clone()
        writes = write(self, host, previous)
        self.buffers.input_ids[zero.start : zero.end] = left_over
        return [one for one in writes if one.writer is not Writer.ZERO_FILL]

    return swapped(DecoderInputPreparer, "_write_tokens", write_tokens)


@contextlib.contextmanager
def _rebinding_kv_lens() -> Generator[None]:
    """Give a graph's metadata new lengths in every step: ``self.kv_lens = ...`` where ``copy_`` was meant."""
    prepare = part(PagedMetadata, "prepare")

    def prepare_and_rebind(self: Any, step: Any) -> None:
        if self.capacity.is_cuda_graph and step.request_ids[0] < 1 << 62:  # not at warm-up
            old = self.kv_lens
            self.kv_lens = self._flat["kv_lens"] = torch.zeros_like(old)  # `old` lives on in step_table
            old.fill_(_SENTINEL)
        prepare(self, step)

    with swapped(PagedMetadata, "prepare", prepare_and_rebind):
        yield


@contextlib.contextmanager
def _fresh_metadata_each_step() -> Generator[None]:
    """Hand out another metadata object of the same kind and size for every step on a graph, to be prepared anew."""
    make, find = part(NativeBackend, "make_metadata"), part(CUDAGraphRunner, "metadata_for")
    made_by: dict[Any, Callable[[], Any]] = {}

    def make_and_remember(self: Any, storage: Any, capacity: Any) -> Any:
        metadata = make(self, storage, capacity)
        made_by[metadata] = functools.partial(make, self, storage, capacity)
        return metadata

    def find_twin(self: Any, key: KeyType) -> Any:
        return made_by[find(self, key)]()

    with (
        swapped(NativeBackend, "make_metadata", make_and_remember),
        swapped(CUDAGraphRunner, "metadata_for", find_twin),
    ):
        yield


class _SharedRing(PinnedRing):
    """Stages every list of one dtype through the same pinned memory, and lets no event protect it."""

    shared: ClassVar[dict[torch.dtype, torch.Tensor]] = {}

    def stage(self, values: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Overwrite the one mirror, whether its last copy has run or not."""
        mirror = self.shared[self._mirrors[0].dtype]
        mirror.numpy()[: len(values)] = values
        return mirror[: len(values)]

    def mark_copied(self, stream: Stream) -> None:
        """Remember nothing."""

    @classmethod
    @contextlib.contextmanager
    def instead(cls) -> Generator[None]:
        """Make the input lists' rings of this kind; the metadata keeps its own."""
        dtypes = (torch.int32, torch.int64)
        cls.shared.update({dtype: torch.empty(64, dtype=dtype, pin_memory=_has_gpu()) for dtype in dtypes})
        with swapped(input_buffers, "PinnedRing", cls):
            yield
        cls.shared.clear()


def _has_gpu() -> bool:
    return torch.cuda.is_available()


BUFFER_FAULTS: Final = (
    Fault(
        name="short-input-stale-tail",
        explanation=(
            "The step hands the graph one token too few. The copy fills the rows it has, and the last row keeps the "
            "token of the step before: that request is fed its own past."
        ),
        rule="A graph reads all its rows whatever was copied; refuse an input that is not exactly as long.",
        source="NVIDIA/TensorRT-LLM PR 18207: statics kept a stale tail when fewer rows were copied",
        workload=Workload(FOUR, small_config()),
        patch=lambda: _replaying(_without_last_token),
    ),
    Fault(
        name="padding-rows-not-zeroed",
        explanation=(
            "Neither the host copy nor the gather reaches the rows of padding dummies. Nobody zeroes them either, so "
            "the graph computes padding from tokens that another request left there."
        ),
        rule="Every row that a graph reads gets a value that means something in this step, padding included.",
        source="sgl-project/sglang issue 24361: stale values in the padded tail were read hours later",
        workload=Workload(THREE, small_config()),
        patch=_skip_zero_fill,
    ),
    Fault(
        name="rebound-buffer",
        explanation=(
            "The lengths are put into a new tensor each step. The attribute is right, but the graph has the old "
            "address baked in and attends over lengths that nobody updates any more."
        ),
        rule="Change a captured tensor's contents, never the tensor: write with copy_, do not assign.",
        source="verl-project/verl PR 7455: a tensor was made anew after capture, and the graph kept its old address",
        workload=Workload(FOUR, small_config()),
        patch=_rebinding_kv_lens,
    ),
    Fault(
        name="equal-but-other-metadata",
        explanation=(
            "The step prepares another metadata object of the same kind. Its contents are all that they should be, and "
            "the graph does not read them: it reads the tensors of the object that it was captured with."
        ),
        rule="One metadata object per graph key; compare it with `is`, not with equality.",
        source="vllm-project/vllm PR 44868: full graphs replayed over the metadata tensors of their capture",
        workload=Workload(FOUR, small_config()),
        patch=_fresh_metadata_each_step,
    ),
    Fault(
        name="broadcast-positions",
        explanation=(
            "The positions arrive as one number. The copy into the graph's buffer spreads it over all rows without a "
            "word, and every other request is rotated and stored at the first one's position."
        ),
        rule="copy_ broadcasts silently: compare exact shapes before every copy into a static buffer.",
        source="NVIDIA/TensorRT-LLM PR 18207: positions of the wrong shape were broadcast at replay",
        workload=Workload(FOUR, small_config()),
        patch=lambda: _replaying(_first_position_only),
    ),
    Fault(
        name="pinned-source-rewritten",
        explanation=(
            "All lists of a step are staged through the same pinned memory. An asynchronous copy reads its source "
            "when it runs, not when it is queued, so a busy device reads the list that was staged after it."
        ),
        rule="A pinned source belongs to its copy until the event behind that copy has passed.",
        source="NVIDIA/TensorRT-LLM PR 15546 and vllm-project/vllm PR 25279: a pinned table reused under a late copy",
        workload=Workload((*THREE, Joining("once upon", arrival_step=3)), small_config(), lag=_LATE),
        patch=_SharedRing.instead,
    ),
)
