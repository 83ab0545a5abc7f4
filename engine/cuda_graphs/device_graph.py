"""Device graphs behind one seam: capture a callable once, replay its kernels at the captured addresses.

Two backends: CUDA's own graphs here, and a tape for machines without a GPU in ``tape.py``, which has the same rules
and never the same speed. All graphs of a backend share one memory pool. Capture computes nothing. A graph's outputs
are *borrowed* from the pool: once another graph replays, they are dead.

Does not: know keys, buckets, inputs or when to capture (``runner.py``). Source: torch.cuda.CUDAGraph; the shared
pool and the weak outputs are TensorRT-LLM's.
"""

import abc
import dataclasses
import gc
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import torch

from engine.device import DeviceRegistry, DeviceSpec
from engine.errors import CaptureRefusedError

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


class CapturedGraph(abc.ABC, Generic[T]):
    """One graph.

    outputs: what the callable returned; tensors of it lie in the pool. Valid: after a replay, until another
    graph of the backend replays. nbytes: bytes that the pool grew by when this graph was captured.
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
    def capture(self, fn: Callable[[], T]) -> CapturedGraph[T]:
        """Record the kernels that fn launches, without running any.

        Raises: CaptureRefusedError for what a graph cannot record; whatever fn raises.
        """

    @property
    @abc.abstractmethod
    def pool_bytes(self) -> int:
        """Bytes that the pool holds."""

    @abc.abstractmethod
    def release(self) -> None:
        """Drop every graph and the pool; graphs handed out must not be replayed afterwards."""


class _CudaGraph(CapturedGraph[T]):
    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: T, nbytes: int) -> None:
        self._graph = graph
        self.outputs = outputs
        self.nbytes = nbytes

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._graph.replay()


class CudaGraphBackend(GraphBackend):
    """CUDA graphs over a private memory pool, whose handle lives exactly as long as this object's graphs."""

    simulated = False

    def __init__(self, spec: DeviceSpec) -> None:
        """Ask for a pool; it holds no memory yet."""
        self._device = spec.torch_device
        self._pools = [torch.cuda.graph_pool_handle()]  # a failed capture spoils the last one
        self._graphs: list[torch.cuda.CUDAGraph] = []
        self._pool_bytes = 0  # asked for once a capture: the answer takes a walk through the allocator

    def capture(self, fn: Callable[[], T]) -> CapturedGraph[T]:
        """Record fn on a side stream."""
        stream = torch.cuda.current_stream(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.no_grad(), torch.cuda.device(self._device), torch.cuda.graph(graph, pool=self._pools[-1]):
                outputs = fn()
        except RuntimeError as error:
            # When the end of a capture fails, torch leaves its side stream current and the pool recording.
            torch.cuda.set_stream(stream)
            self._pools.append(torch.cuda.graph_pool_handle())
            _refuse_if_cuda_did(error)
            raise
        self._graphs.append(graph)
        # Strong references to outputs would keep their memory from the graphs that are captured next.
        borrowed = map_tensors(outputs, _borrow)
        del outputs
        before, self._pool_bytes = self._pool_bytes, self._measure_pools()
        return _CudaGraph(graph, borrowed, self._pool_bytes - before)

    @property
    def pool_bytes(self) -> int:
        """Bytes of the segments that the caching allocator keeps for the pool, as of the last capture."""
        return self._pool_bytes

    def _measure_pools(self) -> int:
        segments = cast("list[dict[str, Any]]", torch.cuda.memory_snapshot())
        return sum(segment["total_size"] for segment in segments if tuple(segment["segment_pool_id"]) in self._pools)

    def release(self) -> None:
        """Reset the graphs, so that their memory goes back to the allocator."""
        torch.cuda.synchronize(self._device)
        for graph in self._graphs:
            graph.reset()
        self._graphs.clear()
        self._pool_bytes = 0
        gc.collect()
        self._pools = [torch.cuda.graph_pool_handle()]


def _refuse_if_cuda_did(error: BaseException) -> None:
    """Turn CUDA's refusal to capture into ours, with the line that caused it; leave other errors alone."""
    if "captur" not in str(error):
        return
    first = error
    while first.__context__ is not None:  # the end of a capture that went wrong raises over what went wrong
        first = first.__context__
    torch_folder = str(Path(torch.__file__).parent)
    frames = [f for f in traceback.extract_tb(first.__traceback__) if not f.filename.startswith(torch_folder)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    message = f"the operation at {where} cannot be captured: {str(first).splitlines()[0]}"
    raise CaptureRefusedError(message) from error


@dataclasses.dataclass(frozen=True, slots=True)
class _Borrowed:
    """Memory described by CUDA's array interface: a tensor made from it owns nothing."""

    __cuda_array_interface__: dict[str, object]


# The interface has no letter for bfloat16 and bool is a byte in it; integers of the same width carry the bits.
_CARRIERS = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}


def _borrow(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor over the same memory that does not keep it allocated."""
    if not tensor.is_cuda or not tensor.numel():
        return tensor
    size = tensor.element_size()
    described = _Borrowed(
        {
            "shape": tuple(tensor.shape),
            "strides": tuple(stride * size for stride in tensor.stride()),
            "typestr": _CARRIERS[size],
            "data": (tensor.data_ptr(), False),
            "version": 3,
        },
    )
    return torch.as_tensor(described, device=tensor.device).view(tensor.dtype)


def make_graph_backend(spec: DeviceSpec, registry: DeviceRegistry) -> GraphBackend:
    """Make the machine's backend: CUDA graphs, or the tape, which trusts only registered memory."""
    if spec.is_cuda:
        return CudaGraphBackend(spec)
    from engine.cuda_graphs.tape import TapeBackend  # a CUDA machine needs no tape

    return TapeBackend(registry)
