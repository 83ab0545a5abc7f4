"""PrefillGraphs: the layer stack as a chain of captured segments, one chain a token bucket, attention eager between.

A step with prompts in it has no fixed number of requests, but between two attentions the layers know only rows. So the
stack is cut at each attention (``models/llama.py``): the first segment embeds and projects, each further one goes from
one attention to the next, the last one ends with the final norm. A step is padded with zero *rows* up to a bucket; such
a row belongs to no sequence, so attention gives zeros for it and writes no KV. Attention runs eagerly on the step's own
metadata, between the replays, and hands its result over through a static. So does the last segment: all buckets leave
their hidden states in the same static, that of the largest.

A chain is one epoch of the pool: what a segment leaves there is read before the segment after next takes its place.

Does not: choose a bucket (``select.py``), fill the rows (``inputs/prepare.py``), or compute logits; the permission to
capture is the graph runner's. Source: the breakable prefill graphs of TensorRT-LLM, which are piecewise without a
compiler.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.graph_backend import CapturedGraph, GraphBackend, GraphChain
from engine.device import DeviceRegistry, DeviceSpec, Stream
from engine.errors import CaptureRefusedError, ReplayRefusedError
from engine.inputs.optional_inputs import OptionalInputs
from engine.inputs.records import CheckedItem, PreparedInputs, ReplayCheck
from engine.models.llama import CausalLM

T = TypeVar("T")


def prefill_key(num_tokens: int) -> str:
    """Name a chain as events and errors show it."""
    return f"(prefill {num_tokens})"


@dataclasses.dataclass(frozen=True, slots=True)
class PrefillStatics:
    """What segments read and leave at fixed addresses, as large as the largest bucket; each bucket uses a prefix.

    Shapes: input_ids [N] int32, position_ids [P, 1, N] int32, attended [N, H D], hidden [N, M]. Valid: never moves.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attended: torch.Tensor
    hidden: torch.Tensor

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every static."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def cut(self, num_tokens: int) -> "PrefillStatics":
        """View the first ``num_tokens`` rows."""
        return PrefillStatics(
            self.input_ids[:num_tokens],
            self.position_ids[..., :num_tokens],
            self.attended[:num_tokens],
            self.hidden[:num_tokens],
        )


@dataclasses.dataclass(frozen=True, slots=True)
class PrefillReport:
    """What the capture of one chain cost. pool_bytes: what the shared pool grew by, so the largest bucket pays."""

    num_tokens: int
    num_segments: int
    pool_bytes: int
    warmup_seconds: float
    capture_seconds: float
    simulated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Chain:
    """One captured bucket. enter leaves x, qkv and the rotation, each of advances x and qkv, the last one nothing."""

    inputs: PrefillStatics
    enter: CapturedGraph[tuple[torch.Tensor, ...]]
    advances: tuple[CapturedGraph[tuple[torch.Tensor, ...]], ...]
    report: PrefillReport
    check: ReplayCheck


class PrefillGraphs:
    """Captures chains at warm-up, runs them afterwards, on either graph backend.

    may_capture: asked before each capture; the graph runner's permission.
    """

    def __init__(
        self,
        backend: GraphBackend,
        model: CausalLM,
        *,
        stream: Stream,
        spec: DeviceSpec,
        registry: DeviceRegistry,
        buckets: tuple[int, ...],
        may_capture: Callable[[], bool],
        strict: bool = True,
        optional: OptionalInputs | None = None,
    ) -> None:
        """Allocate the statics and register them. buckets: rows, ascending; none at all allocates next to nothing.

        optional: what the model takes besides; segments read its buffers themselves.
        """
        self.buckets = buckets
        self.statics = _allocate(model, max(buckets, default=0), spec)
        for name, tensor in self.statics.tensors().items():
            if buckets:
                registry.register(f"prefill_statics.{name}", tensor)
        self._backend = backend
        self._model = model
        self._stream = stream
        self._may_capture = may_capture
        self._is_strict = strict
        self._optional = optional
        self._addresses = self._measure()
        self._chains: dict[int, _Chain] = {}

    @property
    def captured(self) -> tuple[int, ...]:
        """Buckets that can run, ascending."""
        return tuple(sorted(self._chains))

    @property
    def reports(self) -> tuple[PrefillReport, ...]:
        """The captures, in order."""
        return tuple(chain.report for chain in self._chains.values())

    def capture(
        self, bucket: int, metadata: AttentionMetadata, *, is_warmup_only: bool = False
    ) -> PrefillReport | None:
        """Run the whole stack once eagerly over neutral rows, then capture its segments, which computes nothing.

        metadata: prepared for a step of no sequence. is_warmup_only: stop after the eager run and return None.
        Raises: CaptureRefusedError outside ``allow_capture``, for a bucket captured before, one larger than one
        captured before, or than the statics.
        """
        self._check_may_capture(bucket)
        inputs = self.statics.cut(bucket)
        began = time.perf_counter()
        for tensor in inputs.tensors().values():
            self._stream.launch(tensor.zero_)
        self._stream.launch(lambda: self._run_eagerly(inputs, metadata))
        self._stream.synchronize()
        warmed_up = time.perf_counter()
        if is_warmup_only:
            return None
        with self._stream.capturing():
            enter, *advances = self._record(inputs)
        report = PrefillReport(
            num_tokens=bucket,
            num_segments=1 + len(advances),
            pool_bytes=sum(segment.nbytes for segment in (enter, *advances)),
            warmup_seconds=warmed_up - began,
            capture_seconds=time.perf_counter() - warmed_up,
            simulated=self._backend.simulated,
        )
        check = self._compare(inputs, len(advances), given=inputs, addresses=self._addresses)
        self._chains[bucket] = _Chain(inputs, enter, tuple(advances), report, check)
        return report

    def run(self, bucket: int, prepared: PreparedInputs) -> tuple[torch.Tensor, ReplayCheck]:
        """Check, copy the rows into the statics, and run the chain: segment, attention, segment, and so on.

        Returns hidden [bucket, M], final norm applied; rows behind the step's own mean nothing. Valid: until the next
        run of any bucket, in stream order; no other graph touches it.
        Raises: ReplayRefusedError, naming the bucket and both sides of every difference; nothing ran then.
        """
        chain, stream = self._chains[bucket], self._stream
        inputs, metadata = chain.inputs, prepared.attn_metadata
        addresses = self._measure() if self._is_strict else self._addresses
        is_same = (
            prepared.input_ids.shape == inputs.input_ids.shape
            and prepared.position_ids.shape == inputs.position_ids.shape
            and len(chain.advances) == self._model.config.num_layers
            and addresses == self._addresses
        )
        if not is_same:
            self._refuse(chain, prepared, addresses)
        stream.copy_(inputs.input_ids, prepared.input_ids)
        stream.copy_(inputs.position_ids, prepared.position_ids)
        stream.launch(lambda: self._replay(chain, metadata))
        return inputs.hidden, chain.check

    def release(self) -> None:
        """Forget every chain; the pool itself is released by the graph runner, which owns it."""
        self._stream.synchronize()
        self._chains.clear()

    def check(self) -> None:
        """Recompute what capture promised: descending buckets, whole chains, prefixes of statics that never moved."""
        assert list(self._chains) == sorted(self._chains, reverse=True)
        assert set(self._chains) <= set(self.buckets)
        for bucket, chain in self._chains.items():
            assert len(chain.advances) == self._model.config.num_layers
            for name, fresh in self.statics.cut(bucket).tensors().items():
                mine: torch.Tensor = getattr(chain.inputs, name)
                assert (mine.data_ptr(), mine.shape) == (fresh.data_ptr(), fresh.shape), name
        assert self._measure() == self._addresses

    def _run_eagerly(self, inputs: PrefillStatics, metadata: AttentionMetadata) -> None:
        with torch.no_grad():
            more = self._more_inputs(inputs)
            inputs.hidden.copy_(self._model(inputs.input_ids, inputs.position_ids, metadata, **more))

    def _record(self, inputs: PrefillStatics) -> list[CapturedGraph[tuple[torch.Tensor, ...]]]:
        """Capture segment by segment. What a segment leaves is held until the next one, which reads it, is captured."""
        chain = GraphChain()
        first, entered = self._record_segment(functools.partial(self._enter, inputs), chain)
        segments, held = [first], entered
        for layer in range(self._model.config.num_layers):
            advance = functools.partial(self._advance, inputs, layer, held)
            segment, held = self._record_segment(advance, chain)
            segments.append(segment)
        del entered  # until here: every attention reads the rotation, so no segment may take its place
        return segments

    def _enter(self, inputs: PrefillStatics) -> tuple[torch.Tensor, ...]:
        """Embed and select the rotation, up to the first attention."""
        entered = self._model.enter(inputs.input_ids, **self._more_inputs(inputs))
        return (*entered, *self._model.rotation(inputs.position_ids))

    def _more_inputs(self, inputs: PrefillStatics) -> dict[str, torch.Tensor]:
        return {} if self._optional is None else self._optional.views(inputs.input_ids.shape[0])

    def _advance(
        self, inputs: PrefillStatics, layer: int, before: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, ...]:
        """Go from one attention to the next, or from the last one to the static that takes the hidden states."""
        x, qkv = self._model.advance(layer, inputs.attended, before[0])
        if layer + 1 < self._model.config.num_layers:
            return x, qkv
        inputs.hidden.copy_(x)
        return ()

    def _record_segment(self, fn: Callable[[], T], chain: GraphChain) -> tuple[CapturedGraph[T], T]:
        """Capture one segment; beside the graph, whose outputs are borrowed, return strong references to them."""
        kept: list[T] = []

        def run() -> T:
            kept.append(fn())
            return kept[0]

        return self._backend.capture(run, chain=chain), kept[0]

    def _replay(self, chain: _Chain, metadata: AttentionMetadata) -> None:
        """Run the segments; the metadata's rows end with the step, so attention leaves the rows behind it at zero."""
        chain.enter.replay()
        _x, qkv, *rotation = chain.enter.outputs
        cos, signed_sin = rotation
        positions = chain.inputs.position_ids[0, 0]
        with torch.no_grad():
            for layer, segment in zip(self._model.stack, chain.advances, strict=True):
                chain.inputs.attended.copy_(layer.attend(qkv, (cos, signed_sin), positions, metadata))
                segment.replay()
                if segment.outputs:
                    _x, qkv = segment.outputs

    def _check_may_capture(self, bucket: int) -> None:
        smallest, capacity = min(self._chains, default=bucket), self.statics.input_ids.numel()
        if not self._may_capture():
            message = (
                f"graph {prefill_key(bucket)} would be captured while serving; capture belongs into warm-up "
                "(allow_capture())"
            )
        elif bucket in self._chains:
            message = f"graph {prefill_key(bucket)} is captured already; release comes before a second capture"
        elif bucket > smallest:
            message = (
                f"graph {prefill_key(bucket)} has {bucket} rows, a captured one has {smallest}; capture the largest "
                "first, so that it sizes the pool that all share"
            )
        elif bucket > capacity:
            message = f"graph {prefill_key(bucket)} has {bucket} rows, the statics hold {capacity}; add the bucket"
        else:
            return
        raise CaptureRefusedError(message)

    def _measure(self) -> dict[str, int]:
        optional = {} if self._optional is None else self._optional.tensors()
        return {name: tensor.data_ptr() for name, tensor in (self.statics.tensors() | optional).items()}

    def _compare(
        self, inputs: PrefillStatics, num_advances: int, *, given: Any, addresses: dict[str, int]
    ) -> ReplayCheck:
        """Lay both sides out as text."""
        layers = self._model.config.num_layers
        items = [CheckedItem("segments", str(1 + num_advances), str(1 + layers), num_advances == layers)]
        for name, field in (("rows", "input_ids"), ("position shape", "position_ids")):
            expected, got = tuple(getattr(inputs, field).shape), tuple(getattr(given, field).shape)
            items.append(CheckedItem(name, str(expected), str(got), expected == got))
        if self._is_strict:
            for name, address in self._addresses.items():
                moved = addresses[name]
                items.append(CheckedItem(f"address of prefill.{name}", hex(address), hex(moved), address == moved))
        return ReplayCheck(tuple(items))

    def _refuse(self, chain: _Chain, prepared: PreparedInputs, addresses: dict[str, int]) -> None:
        check = self._compare(chain.inputs, len(chain.advances), given=prepared, addresses=addresses)
        differences = "; ".join(f"{i.name}: captured {i.expected}, got {i.got}" for i in check.items if not i.passed)
        message = (
            f"graph {prefill_key(chain.report.num_tokens)} would replay wrongly: {differences}; run this step eagerly, "
            "or pad it to the bucket"
        )
        raise ReplayRefusedError(message)


def _allocate(model: CausalLM, num_tokens: int, spec: DeviceSpec) -> PrefillStatics:
    """Allocate with neutral contents, for so many rows."""
    config, device = model.config, spec.torch_device
    return PrefillStatics(
        input_ids=torch.zeros(num_tokens, dtype=torch.int32, device=device),
        position_ids=torch.zeros(1, 1, num_tokens, dtype=torch.int32, device=device),
        attended=torch.zeros(num_tokens, config.num_heads * config.head_size, dtype=spec.dtype, device=device),
        hidden=torch.zeros(num_tokens, config.hidden_size, dtype=spec.dtype, device=device),
    )
