"""CUDA's graph backend, and the choice of the machine's: CUDA graphs, or the tape where there is no GPU.

A graph records into a private pool of the caching allocator. Its outputs are made weak, so that the next capture may
reuse their memory; CUDA's own refusals come out as ours, with the line that caused them.

Does not: know keys, buckets or inputs (``runner.py``). Source: torch.cuda.CUDAGraph; the weak outputs are
TensorRT-LLM's.
"""

import dataclasses
import gc
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from engine.cuda_graphs.graph_backend import CapturedGraph, GraphBackend, GraphChain, map_tensors
from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry, DeviceSpec
from engine.errors import CaptureRefusedError

T = TypeVar("T")


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

    def capture(self, fn: Callable[[], T], *, chain: GraphChain | None = None) -> CapturedGraph[T]:
        """Record fn on a side stream. A chain needs nothing more: strong references keep its memory apart."""
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
    return CudaGraphBackend(spec) if spec.is_cuda else TapeBackend(registry)
