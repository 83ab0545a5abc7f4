"""CUDAGraphRunner: owns the static inputs, one metadata object and one graph per key, and the proof before a replay.

The statics are the second of three layers of storage: decoder buffers -> statics -> graph. They are allocated once
for the largest key; each key uses prefix slices, whose addresses are baked into its graph, as are those of the
metadata's tensors. A replay would read these addresses whatever the caller meant, so everything that could differ is
compared first: the metadata object (``is``), row and slot counts, the exact shape of the positions (a copy would
broadcast silently) and, when strict, every address of the metadata, the statics and what else the engine names (the
sampler's state). Weights are as much part of a graph, but nothing in the engine assigns one after loading, and asking
hundreds of tensors before each replay would cost more than it finds.

Does not: choose a key (``select.py``), prepare inputs or metadata, or know the model: the forward is a callable.
Source: TensorRT-LLM's graph runner; its strict check is opt-in, ours is on by default.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import torch

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.graph_backend import CapturedGraph, GraphBackend
from engine.cuda_graphs.key import KeyType
from engine.device import DeviceRegistry, DeviceSpec, Stream
from engine.errors import CaptureRefusedError, ReplayRefusedError
from engine.inputs.records import CheckedItem, PreparedInputs, ReplayCheck

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class GraphInputs:
    """What the captured forward reads: views of the statics, cut to the key.

    Shapes: input_ids [N] int32, position_ids [P, 1, N] int32, seq_slots [N] int64. Every row is a logit row.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    seq_slots: torch.Tensor
    attn_metadata: AttentionMetadata


@dataclasses.dataclass(frozen=True, slots=True)
class GraphStatics:
    """The inputs of the largest key; every key reads a prefix. Shapes: as ``GraphInputs``. Valid: never moves."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    seq_slots: torch.Tensor

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every static."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def cut(self, num_tokens: int, metadata: AttentionMetadata) -> GraphInputs:
        """View the first ``num_tokens`` rows."""
        return GraphInputs(
            self.input_ids[:num_tokens], self.position_ids[..., :num_tokens], self.seq_slots[:num_tokens], metadata
        )


@dataclasses.dataclass(frozen=True, slots=True)
class CaptureReport:
    """What one capture cost. pool_bytes: what the shared pool grew by, so the largest key pays for the rest."""

    key: KeyType
    pool_bytes: int
    warmup_seconds: float
    capture_seconds: float
    simulated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One captured key. addresses and check: the expected side of the replay check, which is also its record."""

    inputs: GraphInputs
    graph: CapturedGraph[Any]
    report: CaptureReport
    addresses: dict[str, int]
    check: ReplayCheck


class CUDAGraphRunner:
    """Captures at warm-up, replays afterwards, on either graph backend."""

    def __init__(
        self,
        backend: GraphBackend,
        *,
        stream: Stream,
        spec: DeviceSpec,
        registry: DeviceRegistry,
        max_num_tokens: int,
        num_position_planes: int = 1,
        strict: bool = True,
        more_tensors: Callable[[], dict[str, torch.Tensor]] = dict,
    ) -> None:
        """Allocate the statics with neutral contents and register them.

        max_num_tokens: rows of the largest key. more_tensors: names what else graphs bake in, for the strict check.
        """
        device = spec.torch_device
        shape = (num_position_planes, 1, max_num_tokens)
        self.statics = GraphStatics(
            input_ids=torch.ones(max_num_tokens, dtype=torch.int32, device=device),
            position_ids=torch.zeros(shape, dtype=torch.int32, device=device),
            seq_slots=torch.zeros(max_num_tokens, dtype=torch.int64, device=device),
        )
        for name, tensor in self.statics.tensors().items():
            registry.register(f"graph_statics.{name}", tensor)
        self.is_capture_allowed = False
        self._backend = backend
        self._stream = stream
        self._registry = registry
        self._is_strict = strict
        self._more_tensors = more_tensors
        self._entries: dict[KeyType, _Entry] = {}
        self.captured_keys: frozenset[KeyType] = frozenset()  # every key that can replay
        self._metadata_names: set[str] = set()

    @property
    def simulated(self) -> bool:
        """Whether the graphs are CPU tapes."""
        return self._backend.simulated

    @property
    def reports(self) -> tuple[CaptureReport, ...]:
        """The captures, in order."""
        return tuple(entry.report for entry in self._entries.values())

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool that all graphs share."""
        return self._backend.pool_bytes

    def metadata_for(self, key: KeyType) -> AttentionMetadata:
        """Return the one metadata object whose tensors the key's graph reads."""
        return self._entries[key].inputs.attn_metadata

    def graph_for(self, key: KeyType) -> CapturedGraph[Any]:
        """Return the key's graph, to be timed outside a step: it runs over whatever its addresses hold."""
        return self._entries[key].graph

    @contextlib.contextmanager
    def allow_capture(self) -> Generator[None]:
        """Permit captures inside the block: warm-up is the only place where nothing live can be overwritten."""
        before, self.is_capture_allowed = self.is_capture_allowed, True
        try:
            yield
        finally:
            self.is_capture_allowed = before

    def capture(
        self,
        key: KeyType,
        forward_fn: Callable[[GraphInputs], T],
        metadata: AttentionMetadata,
        *,
        prepared: PreparedInputs | None = None,
        is_warmup_only: bool = False,
    ) -> CaptureReport | None:
        """Run the key's forward once eagerly, then capture it; the graph has computed nothing before its first replay.

        metadata: prepared for a dummy batch of the key; the runner keeps it for the key. prepared: contents for the
        statics (None: token 1, position 0, slot 0). is_warmup_only: stop after the eager run (the first of two
        passes, in which every workspace reaches its final size), and return None.
        Raises: CaptureRefusedError outside ``allow_capture``, for a key captured before, for a key larger than one
        captured before (the first graph must size the shared pool) or than the statics.
        """
        self._check_may_capture(key)
        inputs = self.statics.cut(key.num_tokens(), metadata)
        self._fill(inputs, prepared)
        began = time.perf_counter()
        with torch.no_grad():
            self._stream.launch(lambda: forward_fn(inputs))
        self._stream.synchronize()
        warmed_up = time.perf_counter()
        if is_warmup_only:
            return None
        self._register_metadata(key, metadata)
        with self._stream.capturing():
            graph = self._backend.capture(lambda: forward_fn(inputs))
        report = CaptureReport(
            key, graph.nbytes, warmed_up - began, time.perf_counter() - warmed_up, self._backend.simulated
        )
        addresses = self._addresses(metadata)
        check = self._compare(key, inputs, addresses, given=inputs, given_addresses=addresses)
        self._entries[key] = _Entry(inputs, graph, report, addresses, check)
        self.captured_keys = frozenset(self._entries)
        return report

    def replay(self, key: KeyType, prepared: PreparedInputs) -> tuple[Any, ReplayCheck]:
        """Check, copy the step's inputs into the statics, replay.

        The outputs are those of the captured forward. Valid: until another key replays.
        Raises: ReplayRefusedError, naming the key and both sides of every difference; nothing ran then.
        """
        entry = self._entries[key]
        inputs = entry.inputs
        addresses = self._addresses(prepared.attn_metadata) if self._is_strict else entry.addresses
        is_same = (
            prepared.attn_metadata is inputs.attn_metadata
            and prepared.input_ids.shape == inputs.input_ids.shape
            and prepared.position_ids.shape == inputs.position_ids.shape
            and prepared.seq_slots.shape == inputs.seq_slots.shape
            and addresses == entry.addresses
        )
        if not is_same:
            self._refuse(key, entry, prepared, addresses)
        stream = self._stream
        stream.copy_(inputs.input_ids, prepared.input_ids)
        stream.copy_(inputs.position_ids, prepared.position_ids)
        stream.copy_(inputs.seq_slots, prepared.seq_slots)
        stream.launch(entry.graph.replay)
        return entry.graph.outputs, entry.check

    def release_graphs(self) -> None:
        """Drop every graph; call before freeing any buffer that they read."""
        self._stream.synchronize()
        self._entries.clear()
        self.captured_keys = frozenset()
        self._backend.release()
        for name in self._metadata_names:
            self._registry.forget(name)
        self._metadata_names.clear()

    def check(self) -> None:
        """Recompute what capture promised: descending sizes, a metadata object a bucket, prefixes of the statics."""
        sizes = [key.num_tokens() for key in self._entries]
        assert sizes == sorted(sizes, reverse=True)
        assert self.captured_keys == frozenset(self._entries)
        owners = {id(entry.inputs.attn_metadata) for entry in self._entries.values()}
        assert len(owners) == len(self._entries), "two keys share a metadata object"
        for key, entry in self._entries.items():
            fresh = self.statics.cut(key.num_tokens(), entry.inputs.attn_metadata)
            for name in self.statics.tensors():
                mine, expected = getattr(entry.inputs, name), getattr(fresh, name)
                assert (mine.data_ptr(), mine.shape) == (expected.data_ptr(), expected.shape), name
            if self._is_strict:
                assert self._addresses(entry.inputs.attn_metadata) == entry.addresses

    def _check_may_capture(self, key: KeyType) -> None:
        smallest = min((captured.num_tokens() for captured in self._entries), default=key.num_tokens())
        capacity = self.statics.input_ids.numel()
        if not self.is_capture_allowed:
            message = f"graph {key} would be captured while serving; capture belongs into warm-up (allow_capture())"
        elif key in self._entries:
            message = f"graph {key} is captured already; release_graphs() comes before a second capture"
        elif key.num_tokens() > smallest:
            message = (
                f"graph {key} has {key.num_tokens()} rows, a captured one has {smallest}; capture the largest first, "
                "so that it sizes the pool that all share"
            )
        elif key.num_tokens() > capacity:
            message = f"graph {key} has {key.num_tokens()} rows, the statics hold {capacity}; raise max_num_tokens"
        else:
            return
        raise CaptureRefusedError(message)

    def _fill(self, inputs: GraphInputs, prepared: PreparedInputs | None) -> None:
        if prepared is None:
            self._stream.launch(lambda: inputs.input_ids.fill_(1))
            self._stream.launch(inputs.position_ids.zero_)
            self._stream.launch(inputs.seq_slots.zero_)
            return
        for name in self.statics.tensors():
            self._stream.copy_(getattr(inputs, name), getattr(prepared, name))

    def _register_metadata(self, key: KeyType, metadata: AttentionMetadata) -> None:
        for name, tensor in metadata.tensors().items():
            full_name = f"metadata {key}.{name}"
            self._registry.register(full_name, tensor)
            self._metadata_names.add(full_name)

    def _addresses(self, metadata: AttentionMetadata) -> dict[str, int]:
        addresses = {f"metadata.{name}": tensor.data_ptr() for name, tensor in metadata.tensors().items()}
        for name, tensor in self._more_tensors().items():
            addresses[name] = tensor.data_ptr()
        statics = self.statics
        addresses["statics.input_ids"] = statics.input_ids.data_ptr()
        addresses["statics.position_ids"] = statics.position_ids.data_ptr()
        addresses["statics.seq_slots"] = statics.seq_slots.data_ptr()
        return addresses

    def _compare(
        self,
        key: KeyType,
        inputs: GraphInputs,
        addresses: dict[str, int],
        *,
        given: GraphInputs | PreparedInputs,
        given_addresses: dict[str, int],
    ) -> ReplayCheck:
        """Lay both sides out as text. When all is equal both sides are those of capture: the record is a constant."""
        is_own = given.attn_metadata is inputs.attn_metadata
        mine = f"the metadata object of {key}"
        items = [CheckedItem("metadata object", mine, mine if is_own else "another metadata object", is_own)]
        for name, field in (("rows", "input_ids"), ("position shape", "position_ids"), ("slots", "seq_slots")):
            expected, got = tuple(getattr(inputs, field).shape), tuple(getattr(given, field).shape)
            items.append(CheckedItem(name, str(expected), str(got), expected == got))
        if self._is_strict:
            for name in addresses | given_addresses:
                expected, got = addresses.get(name), given_addresses.get(name)
                texts = ["absent" if side is None else hex(side) for side in (expected, got)]
                items.append(CheckedItem(f"address of {name}", texts[0], texts[1], expected == got))
        return ReplayCheck(tuple(items))

    def _refuse(self, key: KeyType, entry: _Entry, prepared: PreparedInputs, addresses: dict[str, int]) -> None:
        check = self._compare(key, entry.inputs, entry.addresses, given=prepared, given_addresses=addresses)
        differences = "; ".join(f"{i.name}: captured {i.expected}, got {i.got}" for i in check.items if not i.passed)
        message = f"graph {key} would replay wrongly: {differences}; run this step eagerly, or prepare it for this key"
        raise ReplayRefusedError(message)
