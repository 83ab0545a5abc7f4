"""The two runner contracts: who defined the batch decides which one applies.

A ``ScheduledModelRunner`` gets a batch that the scheduler made, and needs the resource manager for its blocks. A
``PackedModelRunner`` gets sequences that somebody else packed (encoders); it has no KV and no steps. "Packed" does
not mean "padded".

Does not: implement a runner. Source: TensorRT-LLM's runner interface.
"""

import abc
import dataclasses

import torch

from engine.cuda_graphs.prefill import PrefillReport
from engine.cuda_graphs.runner import CaptureReport
from engine.errors import CaptureRefusedError
from engine.inputs.records import PackedInputs, RunEvent, ScheduledInputs
from engine.probe import Probe
from engine.resources import ResourceManager


class PendingLogits:
    """Logits that the device may not have computed yet (a lagged stream runs the forward later).

    tensor: read it only after an event recorded behind the forward.
    """

    __slots__ = ("_tensor",)

    def __init__(self) -> None:
        """Start without a result."""
        self._tensor: torch.Tensor | None = None

    def set(self, tensor: torch.Tensor | None) -> None:
        """Store what the forward returned; called by the device work itself."""
        self._tensor = tensor

    @property
    def tensor(self) -> torch.Tensor:
        """The logits [R, V] float32."""
        assert self._tensor is not None, "logits read before the forward ran, or of a step without logit rows"
        return self._tensor


@dataclasses.dataclass(frozen=True, slots=True)
class ForwardOutputs:
    """What a scheduled forward leaves behind.

    logits: [R, V] float32, the batch's logit rows in order, then those of dummies. The samples are in the
    persistent new_tokens, by slot.
    Valid: until the next forward, because a graph's outputs lie in a pool that the next replay reuses.
    """

    logits: PendingLogits
    event: RunEvent


class ModelRunner(abc.ABC):
    """What every runner must be able to end safely."""

    @abc.abstractmethod
    def release_graphs(self) -> None:
        """Drop captured graphs; call before freeing any buffer that they read."""

    @abc.abstractmethod
    def wait_for_input_copy(self) -> None:
        """Block until the device has read the host memory that the last step staged."""


class ScheduledModelRunner(ModelRunner):
    """Runs batches of the scheduler."""

    @abc.abstractmethod
    def forward(
        self, inputs: ScheduledInputs, *, resource_manager: ResourceManager, is_dummy: bool = False
    ) -> ForwardOutputs:
        """Run one step. is_dummy marks warm-up, never padding."""

    @abc.abstractmethod
    def set_probe(self, probe: Probe | None) -> None:
        """Attach or detach the observer of the runner's stages."""

    @abc.abstractmethod
    def roll_back(self) -> None:
        """Forget the last step: it was undone, so the next one must not be derived from it."""

    @abc.abstractmethod
    def warmup(self, resource_manager: ResourceManager) -> "WarmupReport":
        """Capture what will be replayed; nothing is captured afterwards.

        Raises: CaptureRefusedError while there are graphs from before; they stay.
        """


class PackedModelRunner(ModelRunner):
    """Runs batches that arrive packed."""

    @abc.abstractmethod
    def forward(self, inputs: PackedInputs) -> dict[str, torch.Tensor]:
        """Encode the sequences."""


@dataclasses.dataclass(frozen=True, slots=True)
class WarmupReport:
    """What warm-up did. simulated: the graphs are CPU tapes. pool_bytes: bytes of the pool that all captures share."""

    captures: tuple[CaptureReport, ...]
    pool_bytes: int
    seconds: float
    simulated: bool
    prefill_captures: tuple[PrefillReport, ...] = ()


def require_cold(*, is_warm: bool) -> None:
    """Refuse a second warm-up: it would capture over graphs that serve. Raises: CaptureRefusedError."""
    if is_warm:
        message = "warm-up runs once, and this engine's graphs serve already; for other graphs make a new LLM"
        raise CaptureRefusedError(message)
