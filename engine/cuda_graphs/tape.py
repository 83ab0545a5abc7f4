"""The tape: a graph backend for machines without a GPU, with CUDA's rules and none of its speed.

Capture computes nothing. Each operation is dispatched here, checked against ``tape_rules``, and recorded with the
addresses that it will read and write. Shapes come from fake tensors; results lie in the pool (``tape_arena``) and
hold poison until the first replay. Views run, since they only make addresses; operations that write their arguments
are recorded and not run, so capture leaves the KV cache and every other buffer untouched. Inputs must lie in the
pool or in registered device memory.

Replay runs the recorded calls in order, through their ``out=`` form where there is one, which is bit-equal to eager
on equal shapes. Before that it poisons the outputs of every other graph that has replayed since: on CUDA their
destruction is possible, here it is certain. The graphs of a chain spare each other, until the first of them replays.

Does not: say anything about speed or stream order; whatever is shown of it is labelled simulated.
Source: the semantics of torch.cuda.CUDAGraph, carried by torch's dispatch modes.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from engine.cuda_graphs.graph_backend import CapturedGraph, GraphBackend, GraphChain, map_tensors
from engine.cuda_graphs.tape_arena import TapeArena, poison_value
from engine.cuda_graphs.tape_rules import HostReadGuard, refuse, refuse_by_schema, schema_of
from engine.cuda_graphs.tape_shapes import ShapePropagation, TensorShape, map_leaves, tensors_in
from engine.device import DeviceRegistry
from engine.ops.host_kernels import fixed_call, host_kernel

T = TypeVar("T")
Call: TypeAlias = Callable[[], object]


# Schemas that do not admit to being views.
_HIDDEN_VIEWS = frozenset({"aten._unsafe_view.default"})
_ALLOCATIONS = ("aten.empty.", "aten.empty_strided.", "aten.empty_like.", "aten.new_empty.", "aten.new_empty_strided.")


class TapeBackend(GraphBackend):
    """Captures tapes into one arena, and trusts only registered memory."""

    simulated = True

    def __init__(self, registry: DeviceRegistry) -> None:
        """Start with an empty pool."""
        self._registry = registry
        self._arena = TapeArena()
        self._shapes = ShapePropagation()
        self._chains: set[GraphChain] = set()  # those that have a graph
        self._fresh: list[_TapeGraph[Any]] = []  # those whose outputs hold what a replay computed

    def capture(self, fn: Callable[[], T], *, chain: GraphChain | None = None) -> CapturedGraph[T]:
        """Record what fn would run."""
        before = self._arena.nbytes
        self._arena.begin()
        recorder = _Recorder(self._arena, self._registry, self._shapes)
        with torch.no_grad(), HostReadGuard(), recorder:
            outputs = fn()
        self._arena.poison_fresh()
        borrowed = map_tensors(outputs, self._arena.alias)
        begins = chain is None or chain not in self._chains
        if chain is not None:
            self._chains.add(chain)
        return _TapeGraph(
            self, recorder.calls, borrowed, nbytes=self._arena.nbytes - before, chain=chain, begins_epoch=begins
        )

    @property
    def pool_bytes(self) -> int:
        """Bytes of the arena."""
        return self._arena.nbytes

    def release(self) -> None:
        """Forget graphs and pool; tensors that somebody still holds keep their bytes."""
        self._chains.clear()
        self._fresh.clear()
        self._arena = TapeArena()

    def check(self) -> None:
        """Recompute the pool's tiling, and that the outputs of one graph, or of one chain, at most are alive."""
        self._arena.check()
        assert len({graph.epoch for graph in self._fresh}) <= 1

    def pool_tensors(self, outputs: object) -> list[torch.Tensor]:
        """List the tensors of a graph's outputs that lie in the pool; persistent ones survive a replay."""
        found: list[torch.Tensor] = []

        def visit(tensor: torch.Tensor) -> torch.Tensor:
            if self._arena.owns(tensor):
                found.append(tensor)
            return tensor

        map_tensors(outputs, visit)
        return found

    def poison_others(self, replaying: "_TapeGraph[Any]") -> None:
        """Destroy the outputs of the graphs that replayed before this one, but for those that lead up to it."""
        spared: list[_TapeGraph[Any]] = []
        for graph in self._fresh:
            if graph is replaying or (graph.epoch is replaying.epoch and not replaying.begins_epoch):
                spared.append(graph)
            else:
                graph.poison()
        self._fresh = spared

    def mark_fresh(self, replayed: "_TapeGraph[Any]") -> None:
        """Note that a graph's outputs hold what a replay computed."""
        if replayed not in self._fresh:
            self._fresh.append(replayed)


class _TapeGraph(CapturedGraph[T]):
    """epoch: who shares this graph's epoch of the pool, its chain or itself. begins_epoch: nothing leads up to it."""

    def __init__(
        self,
        backend: TapeBackend,
        calls: list[Call],
        outputs: T,
        *,
        nbytes: int,
        chain: GraphChain | None,
        begins_epoch: bool,
    ) -> None:
        self.outputs = outputs
        self.nbytes = nbytes
        self.num_calls = len(calls)
        self.epoch: object = self if chain is None else chain
        self.begins_epoch = begins_epoch
        self._backend = backend
        self._calls = calls
        self._pooled = backend.pool_tensors(outputs)

    def replay(self) -> None:
        """Run the recorded calls."""
        self._backend.poison_others(self)
        with torch.inference_mode():  # spares every operation its autograd bookkeeping
            for call in self._calls:
                call()
        self._backend.mark_fresh(self)

    def poison(self) -> None:
        """Overwrite the outputs."""
        for tensor in self._pooled:
            tensor.fill_(poison_value(tensor.dtype))


class _Recorder(TorchDispatchMode):
    """Turns the operations of one capture into calls."""

    def __init__(self, arena: TapeArena, registry: DeviceRegistry, shapes: ShapePropagation) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._arena = arena
        self._registry = registry
        self._shapes = shapes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare every operation a detour through torch's compiler: nothing is compiled in here."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Refuse, run (views), or record one operation."""
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            refuse(str(func), "it is no plain operation", "call the operations themselves")
        if func.namespace == "profiler":
            return func(*args, **kwargs)
        refuse_by_schema(func, args, kwargs)
        if func.is_view or str(func) in _HIDDEN_VIEWS:
            return func(*args, **kwargs)
        return self._record(func, args, kwargs)

    def _record(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        self._require_device_memory(func, args, kwargs)
        is_out_form = any(argument.is_out for argument in schema_of(func).arguments)
        results = () if _is_in_place(func) and not is_out_form else self._shapes.propagate(func, args, kwargs)
        if _is_in_place(func):
            self.calls.append(fixed_call(func, self._aliases(args), self._aliases(kwargs)))
            return _written_arguments(func, args, kwargs)
        outputs = map_leaves(results, TensorShape, lambda s: self._arena.allocate(s.size, s.stride, s.dtype))
        if not str(func).startswith(_ALLOCATIONS):
            self.calls.append(_bind(func, self._aliases(args), self._aliases(kwargs), self._aliases(outputs)))
        return outputs

    def _aliases(self, value: Any) -> Any:
        return map_leaves(value, torch.Tensor, self._arena.alias)

    def _require_device_memory(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        for tensor in tensors_in((args, kwargs)):
            if tensor.numel() and not self._registry.owns(tensor) and not self._arena.owns(tensor):
                shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
                why = f"it uses a {dtype} tensor of shape {shape} that is not registered as device memory"
                refuse(str(func), why, "make it on the device before capture and register it")


def _is_in_place(func: OpOverload) -> bool:
    """Whether it returns nothing but what it writes, so that there is no shape to ask for."""
    return all(result.alias_info is not None for result in schema_of(func).returns)


def _written_arguments(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what the operation returns: the arguments that it writes, in order."""
    results: list[object] = []
    for at, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            results.append(kwargs[argument.name] if argument.name in kwargs else args[at])
    results = results[: len(schema_of(func).returns)]
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _bind(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any) -> Call:
    """Make the call that computes the outputs in place: by the operation's out= form, or by a copy of its result."""
    form = _out_form(func)
    if form is not None:
        overload, names = form
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        return fixed_call(overload, args, {**kwargs, **dict(zip(names, results, strict=True))})
    targets, kernel = list(tensors_in(outputs)), host_kernel(func) or func

    def compute_and_copy() -> None:
        for target, source in zip(targets, tensors_in(kernel(*args, **kwargs)), strict=True):
            target.copy_(source)

    return compute_and_copy


@functools.cache
def _out_form(func: OpOverload) -> tuple[OpOverload, tuple[str, ...]] | None:
    """Find the overload that takes the same arguments and writes its results, if the operation has one."""
    wanted = [(argument.name, str(argument.type)) for argument in schema_of(func).arguments]
    packet = func.overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        arguments = schema_of(overload).arguments
        inputs = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        outs = tuple(argument.name for argument in arguments if argument.is_out)
        if outs and inputs == wanted and len(outs) == len(schema_of(func).returns):
            return overload, outs
    return None
