"""The calls that prepare a decode step, timed one by one with nothing between them but a wait for the device.

The full path: pack, copy the inputs, prepare the metadata. The steady path: the use test, advance the inputs, advance
the metadata, keep the record. Both run over the records of a real step, on which nothing runs afterwards.

Does not: run a model, or undo what it wrote into the buffers.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

import torch

from engine.cuda_graphs.key import SampleMode
from engine.decisions import Decisions
from engine.device import Stream, make_stream
from engine.inputs.host_inputs import HostInputs
from engine.inputs.pack import BlockTable, pack
from engine.inputs.prepare import DecoderInputPreparer, attention_step
from engine.inputs.records import PreparedInputs, SampleStateTensors, ScheduledInputs
from engine.inputs.steady import SteadyRows
from engine.kv_cache.manager import KVCacheManager
from engine.llm import LLM
from engine.probe import Stage
from engine.runners.steady_path import SteadyPath, SteadyUse, StepPlan, recording_facts
from engine.scheduled import PaddedBatch

NUM_SAMPLES = 64
_MOST_ADVANCES = 8  # steady steps after one full one


@dataclasses.dataclass(frozen=True, slots=True)
class DecodeStep:
    """A real full step, and what prepares it again. previous: stands in for the samples, which nobody reads."""

    batch: PaddedBatch
    plan: StepPlan
    preparer: DecoderInputPreparer
    previous: SampleStateTensors
    stream: Stream


class GrowingTables:
    """The part of a KV manager that preparation asks: tables, and which of them are others than before.

    A table with room for the steps to come stands in for each real one; that it grew shows in a new object.
    is_spread: every step, the tables of one sequence in a block's length grow; otherwise none does.
    """

    def __init__(self, tables: dict[int, tuple[int, ...]], tokens_per_block: int, *, is_spread: bool) -> None:
        self._tokens_per_block = tokens_per_block
        self._is_spread = is_spread
        room = (0,) * -(-(1 + _MOST_ADVANCES) // tokens_per_block)
        self._tables = {request_id: table + room for request_id, table in tables.items()}
        self._ids = tuple(tables)
        self._grown: tuple[int, ...] = ()
        self.table_version = 0

    def grow(self) -> None:
        """Let the next share of the sequences have a new table."""
        if not self._is_spread:
            return
        self.table_version += 1
        self._grown = self._ids[self.table_version % self._tokens_per_block :: self._tokens_per_block]
        for request_id in self._grown:
            *table, last = self._tables[request_id]
            self._tables[request_id] = (*table, last)

    def block_table(self, request_id: int) -> tuple[int, ...]:
        """Look a table up."""
        return self._tables[request_id]

    def changed_since(self, version: int) -> frozenset[int]:
        """Name the sequences whose tables grew last."""
        return frozenset(self._grown)


class StepKeeper:
    """A probe and a decision: keeps what a full step was packed from, and its plan."""

    def __init__(self) -> None:
        self._batch: PaddedBatch | None = None
        self._host: HostInputs | None = None
        self._seen: dict[Stage, Any] = {}

    def pack(self, batch: PaddedBatch, block_table: BlockTable) -> HostInputs:
        """Pack as the engine does, and keep both sides."""
        self._batch, self._host = batch, pack(batch, block_table)
        return self._host

    def emit(self, stage: Stage, step: int, value: Any) -> None:
        """Keep the records that outlive the step."""
        if stage in (Stage.GRAPH_CHOSEN, Stage.METADATA):
            self._seen[stage] = value

    def kept(self, llm: LLM, *, is_spread: bool) -> tuple[DecodeStep, GrowingTables]:
        """Put together what the calls need; the engine's buffers are written from now on."""
        assert self._batch is not None
        assert self._host is not None
        host, metadata = self._host, self._seen[Stage.METADATA]
        spec = llm.device_spec
        stream = make_stream(spec)
        samples = torch.zeros(1, 1 + max(host.seq_slots), 1, dtype=torch.int32, device=spec.torch_device)
        step = DecodeStep(
            batch=self._batch,
            plan=StepPlan(self._seen[Stage.GRAPH_CHOSEN], SampleMode.GREEDY, metadata),
            preparer=DecoderInputPreparer(llm.input_buffers, stream, spec),
            previous=SampleStateTensors(samples),
            stream=stream,
        )
        tables = dict(zip(host.request_ids, host.block_tables, strict=True))
        return step, GrowingTables(tables, metadata.capacity.tokens_per_block, is_spread=is_spread)


def full_seconds(step: DecodeStep, tables: GrowingTables, num_samples: int = NUM_SAMPLES) -> float:
    """Return the median seconds of packing, copying and preparing a step."""
    times: list[float] = []
    for _ in range(1 + num_samples):
        tables.grow()
        times.append(_timed(step.stream, lambda: _prepare(step, tables)))
    return statistics.median(times[1:])


def steady_seconds(step: DecodeStep, tables: GrowingTables, num_samples: int = NUM_SAMPLES) -> float:
    """Return the median seconds of deciding for the steady path and advancing a step."""
    times: list[float] = []
    while len(times) < num_samples:
        path = _recorded(step, tables)
        for turn in range(1 + _MOST_ADVANCES):
            tables.grow()
            seconds = _timed(step.stream, lambda path=path: _advance(step, tables, path))
            times += [seconds] if turn else []
    return statistics.median(times)


def _prepare(step: DecodeStep, tables: GrowingTables) -> tuple[HostInputs, PreparedInputs]:
    host = pack(step.batch, tables.block_table)
    prepared = step.preparer.copy_inputs(host, step.previous, step.plan.metadata)
    step.plan.metadata.prepare(attention_step(host))
    return host, prepared


def _recorded(step: DecodeStep, tables: GrowingTables) -> SteadyPath:
    """Run a full step that leaves its record."""
    host, prepared = _prepare(step, tables)
    path = SteadyPath(Decisions())
    rows = SteadyRows(tuple([span.request for span in step.batch.spans]))
    use = SteadyUse(step.plan, step.preparer.steady_inputs(prepared, step.previous), rows)
    facts = recording_facts(step.batch, host, is_dummy=False, model_adds_inputs=False)
    path.record(facts, use, cast("KVCacheManager", tables))
    return path


def _advance(step: DecodeStep, tables: GrowingTables, path: SteadyPath) -> None:
    manager = cast("KVCacheManager", tables)
    use = path.take(ScheduledInputs(step.batch.scheduled, 0, step.previous), manager, is_dummy=False)
    assert use is not None, path.refusal
    step.preparer.advance_inputs(use.inputs)
    use.plan.metadata.advance(use.step)
    path.keep(use, manager)


def _timed(stream: Stream, fn: Callable[[], object]) -> float:
    began = time.perf_counter()
    fn()
    seconds = time.perf_counter() - began
    stream.synchronize()
    return seconds
