"""The two runner contracts: who defined the batch decides which one applies.

A ``ScheduledModelRunner`` gets a batch that the scheduler made, and needs the resource manager for its blocks. A
``PackedModelRunner`` gets sequences that somebody else packed (encoders); it has no KV and no steps. "Packed" does
not mean "padded".

Does not: implement a runner. Source: TensorRT-LLM's runner interface.
"""

import abc
import dataclasses

import torch

from engine.cuda_graphs.key import SampleMode
from engine.inputs.records import PackedInputs, RunEvent, ScheduledInputs
from engine.resources import ResourceManager


@dataclasses.dataclass(frozen=True, slots=True)
class ForwardOutputs:
    """What a scheduled forward leaves behind.

    logits [R, V] float32, rows in the order of ``logit_request_ids`` (padding already cut off); None when no row
    wanted logits. The samples are in the persistent new_tokens, by slot.
    Valid: until the next forward, because a graph's outputs lie in a pool that the next replay reuses.
    """

    logits: torch.Tensor | None
    logit_request_ids: tuple[int, ...]
    sample_mode: SampleMode
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
    def warmup(self, resource_manager: ResourceManager) -> "WarmupReport":
        """Capture what will be replayed; nothing is captured afterwards."""


class PackedModelRunner(ModelRunner):
    """Runs batches that arrive packed."""

    @abc.abstractmethod
    def forward(self, inputs: PackedInputs) -> dict[str, torch.Tensor]:
        """Encode the sequences."""


@dataclasses.dataclass(frozen=True, slots=True)
class GraphCapture:
    """One captured graph. Units: bytes of the pool that it added, seconds of its warm-up and capture."""

    key: str
    batch_size: int
    sample_mode: str
    pool_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class WarmupReport:
    """What warm-up did. simulated: the graphs are CPU tapes. pool_bytes: bytes of the shared pool."""

    captures: tuple[GraphCapture, ...]
    pool_bytes: int
    seconds: float
    simulated: bool
