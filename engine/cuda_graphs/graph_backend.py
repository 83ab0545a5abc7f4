"""The seam of device graphs: capture a callable once, replay its kernels at the captured addresses.

All graphs of a backend share one memory pool. Capture computes nothing. A graph's outputs are *borrowed* from the
pool: once another graph replays, they are dead. Graphs that are replayed one behind the other as a *chain* are one
epoch of the pool: what one of them leaves is there for those behind it.

Does not: implement a backend (``device_graph.py`` has CUDA's, ``tape.py`` the CPU's), know keys, buckets or inputs, or
decide when to capture (``runner.py``). Source: torch.cuda.CUDAGraph; the shared pool is TensorRT-LLM's.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import torch

T = TypeVar("T")


def map_tensors(value: T, fn: Callable[[torch.Tensor], torch.Tensor]) -> T:
    """Rebuild a value with fn applied to every tensor in its tuples, lists, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        return cast("T", fn(value))
    if isinstance(value, tuple):
        parts = [map_tensors(part, fn) for part in cast("tuple[object, ...]", value)]
        make = getattr(cast("object", value), "_make", tuple)  # a named tuple is made by _make
        return cast("T", make(parts))
    if isinstance(value, list):
        return cast("T", [map_tensors(part, fn) for part in cast("list[object]", value)])
    if isinstance(value, dict):
        return cast("T", {name: map_tensors(part, fn) for name, part in cast("dict[object, object]", value).items()})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: map_tensors(getattr(value, name), fn) for name in fields})
    return value


class GraphChain:
    """Names the graphs of a chain; compared by identity.

    Whoever captures a chain keeps a strong reference to what later graphs read, until those are captured: the pool
    then gives that memory to nobody else in the chain.
    """

    __slots__ = ()


class CapturedGraph(abc.ABC, Generic[T]):
    """One graph.

    outputs: what the callable returned; tensors of it lie in the pool. Valid: after a replay, until another
    graph of the backend replays; in a chain, until a graph outside it replays, or its first one again.
    nbytes: bytes that the pool grew by when this graph was captured.
    """

    outputs: T
    nbytes: int

    @abc.abstractmethod
    def replay(self) -> None:
        """Run the recorded kernels over the present contents of the captured addresses."""


class GraphBackend(abc.ABC):
    """Captures graphs into one pool. simulated: no CUDA graph is involved, and no claim about speed is."""

    simulated: bool

    @abc.abstractmethod
    def capture(self, fn: Callable[[], T], *, chain: GraphChain | None = None) -> CapturedGraph[T]:
        """Record the kernels that fn launches, without running any.

        chain: the one that this graph goes on, or begins when it is the first captured for it.
        Raises: CaptureRefusedError for what a graph cannot record; whatever fn raises.
        """

    @property
    @abc.abstractmethod
    def pool_bytes(self) -> int:
        """Bytes that the pool holds."""

    @abc.abstractmethod
    def release(self) -> None:
        """Drop every graph and the pool; graphs handed out must not be replayed afterwards."""
