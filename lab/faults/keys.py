"""Faults of the graph key and of the dummies that fill a bucket.

Does not: run them (``runs.py``). Source: each fault names the bug or rule it is modelled on.
"""

import contextlib
import dataclasses
from collections.abc import Generator
from typing import Any, Final

from engine.config import SamplingParams
from engine.cuda_graphs.dummies import WARM_UP_DUMMY_ID, PaddingDummies
from engine.cuda_graphs.key import SampleMode
from engine.cuda_graphs.select import GraphFacts, Selection, select_graph
from engine.decisions import Decisions
from engine.errors import OutOfBlocksError
from engine.inputs import pack as packing
from engine.inputs.host_inputs import HostInputs, TokenSource
from engine.inputs.pack import BlockTable, pack
from engine.llm import LLM
from engine.scheduled import PaddedBatch, RowKind, Span
from lab.faults.fault import FOUR, THREE, Fault, Joining, Workload, part, small_config, swapped

_WARM: Final = SamplingParams(max_tokens=10, temperature=4.0, seed=7, ignore_eos=True)
_SHORT: Final = tuple(Joining(one.prompt, params=SamplingParams(max_tokens=5, ignore_eos=True)) for one in THREE)
_TWO_SAMPLERS: Final = small_config(sample_modes=("greedy", "full"))
_FILLER_ID: Final = WARM_UP_DUMMY_ID - 2**20  # holds a block that is nobody's


def _without_sampler_in_key() -> Decisions:
    """Choose graphs as if every batch were greedy."""

    def select(facts: GraphFacts) -> Selection:
        return select_graph(dataclasses.replace(facts, sample_mode=SampleMode.GREEDY))

    return Decisions(select_graph=select)


def _sampler_flag_of_last_replay() -> Decisions:
    """Choose by the flag that the last replay left, and bring it up to date afterwards."""
    flag = [SampleMode.GREEDY]

    def select(facts: GraphFacts) -> Selection:
        chosen = select_graph(dataclasses.replace(facts, sample_mode=flag[0]))
        if chosen.key is not None:
            flag[0] = facts.sample_mode
        return chosen

    return Decisions(select_graph=select)


def _source_by_state(span: Span) -> TokenSource:
    """Tell dummies by what they happen to lack, a previous sample, instead of by their flag."""
    if span.kind is RowKind.CONTEXT:
        return TokenSource.HOST
    return TokenSource.ZERO if span.request.py_batch_idx is None else TokenSource.DEVICE


def _dummy_in_first_block() -> Decisions:
    """Give the dummies the table of the step's first request."""

    def pack_aliased(batch: PaddedBatch, block_table: BlockTable) -> HostInputs:
        first = batch.spans[0].request
        dummies = {span.request_id for span in batch.spans if span.request.is_dummy and not first.is_dummy}
        return pack(batch, lambda request_id: block_table(first.request_id if request_id in dummies else request_id))

    return Decisions(pack=pack_aliased)


def _lose_dummy(llm: LLM) -> None:
    """Forget the dummy that warm-up reserved, and let somebody else have its block."""
    resources = part(llm, "_resources")
    runner = part(part(llm, "_model_engine"), "_runner")
    runner._dummies.drop()
    resources.kv_cache.reserve(_FILLER_ID, 1)


@contextlib.contextmanager
def _allocating_on_demand() -> Generator[None]:
    """Reserve the dummy when a batch first wants one, and never ask again if that fails."""
    failed: list[OutOfBlocksError] = []
    pad = part(PaddingDummies, "pad")

    def pad_on_demand(self: PaddingDummies, scheduled: Any, num_padding: int, **options: Any) -> PaddedBatch:
        try:
            if num_padding:
                self.preallocate()
        except OutOfBlocksError as error:
            failed.append(error)
            num_padding = 0
        return pad(self, scheduled, num_padding, **options)

    def is_hoped_for(_self: PaddingDummies, _draft_len: int = 0) -> bool:
        return not failed

    with (
        swapped(PaddingDummies, "pad", pad_on_demand),
        swapped(PaddingDummies, "available", is_hoped_for),
    ):
        yield


def _leaking_reservation() -> contextlib.AbstractContextManager[None]:
    """Ask for a large dummy first; when the pool refuses, keep its slot and go on with a small one."""
    preallocate = part(PaddingDummies, "preallocate")

    def preallocate_twice(self: Any, draft_len: int = 0) -> Any:
        resources = self._resources
        if draft_len not in self.padding_dummy_requests:
            resources.seq_slots.assign(_FILLER_ID)
            with contextlib.suppress(OutOfBlocksError):
                resources.kv_cache.reserve(_FILLER_ID, resources.kv_cache.max_seq_len + 1)
        return preallocate(self, draft_len)

    return swapped(PaddingDummies, "preallocate", preallocate_twice)


KEY_FAULTS: Final = (
    Fault(
        name="missing-key-field",
        explanation=(
            "The graph key leaves out which sampler was captured. A request with a temperature replays the graph that "
            "has the argmax baked in, and gets the most likely token every time."
        ),
        rule="Whatever changes control flow or shapes inside the captured region belongs into the key.",
        source="huggingface/transformers PR 45323: a host scalar was baked into graphs and missing from their key",
        workload=Workload((Joining("Hello there", params=_WARM), *THREE[1:], FOUR[3]), _TWO_SAMPLERS),
        decisions=_without_sampler_in_key,
    ),
    Fault(
        name="stale-greedy-flag",
        explanation=(
            "The flag 'all rows are greedy' is read before this step's batch refreshes it. When a request with a "
            "temperature joins, the first replay still takes the greedy graph."
        ),
        rule="Bring every input of the key up to date, from the padded batch, before the key is built.",
        source="NVIDIA/TensorRT-LLM PR 17710: an earlier step's greedy flag still held when the graph was chosen",
        workload=Workload((*THREE, Joining("once upon", arrival_step=3, params=_WARM)), _TWO_SAMPLERS),
        decisions=_sampler_flag_of_last_replay,
    ),
    Fault(
        name="dummy-by-incidental-state",
        explanation=(
            "A row without a previous sample on the device is taken for a padding dummy. After a step that was undone, "
            "real requests look like that too: their tokens are zeroed."
        ),
        rule="Recognise a dummy by its flag; what it happens to lack, others may lack tomorrow.",
        source="NVIDIA/TensorRT-LLM PRs 4853 and 5058: a reused dummy was taken for a running request",
        workload=Workload(THREE, small_config(), interrupts=(4,)),
        patch=lambda: swapped(packing, "token_source", _source_by_state),
    ),
    Fault(
        name="dummy-aliases-live-block",
        explanation=(
            "The padding dummy has no block of its own and is given the first one of a live request. Each padded step "
            "writes the dummy's key and value over that request's first token."
        ),
        rule="A dummy owns its state: a block, a slot, and whatever else a request owns.",
        source="NVIDIA/TensorRT-LLM PRs 9873 and 13278: padding dummies aliased the state of live requests",
        workload=Workload(THREE, small_config()),
        decisions=_dummy_in_first_block,
    ),
    Fault(
        name="lazy-dummy-in-a-full-pool",
        explanation=(
            "The dummy is reserved when a batch first needs padding. By then requests hold every block, the attempt "
            "fails, and from there on every odd batch runs eagerly: right tokens, lost speed, no error."
        ),
        rule="Reserve what a replay needs at the end of warm-up, before requests can take it.",
        source="NVIDIA/TensorRT-LLM PR 16072: graphs silently unused once the KV cache had been full",
        workload=Workload(_SHORT, small_config(num_blocks=3, tokens_per_block=16)),
        patch=_allocating_on_demand,
        start=_lose_dummy,
    ),
    Fault(
        name="partial-dummy-leaked",
        explanation=(
            "Reserving a dummy takes a slot, then fails to get its blocks, and does not give the slot back. Nothing "
            "happens until the batch is full: then one slot is missing and the whole step fails."
        ),
        rule="Reserve in every manager or in none: on an error give back what was taken.",
        source="NVIDIA/TensorRT-LLM PR 17162: a partial dummy allocation leaked and start-up hung",
        workload=Workload((*THREE, Joining("once upon", arrival_step=3)), small_config()),
        patch=_leaking_reservation,
    ),
)
