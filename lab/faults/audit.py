"""StepAudit: a probe that recomputes, from the requests alone, what each step must hold, and raises where it does not.

It stands behind the engine's guards and looks at what they cannot see: every row's token and position, lengths and
block tables as they lie on the device, which KV cells the step wrote, whether every sample was computed in this step,
and whether memory that a graph reads has moved. It reads the device at every stage and poisons the samples before
they are computed, so it costs much more than a step: it is for lessons and for hunting, not for serving.

Does not: change what a healthy step computes, or repair anything.
Source: TensorRT-LLM's strict buffer check, taken further; poison and canaries are old habits of debugging.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch

from engine.cuda_graphs.select import Selection
from engine.errors import StepscopeError
from engine.inputs.records import PreparedInputs
from engine.llm import LLM
from engine.probe import Stage
from engine.py_executor import SampledTokens
from engine.reasons import FallOff
from engine.runners.decoder import sample_mode
from engine.runners.interface import ForwardOutputs
from engine.scheduled import PaddedBatch, Span

POISON: Final = -1  # no token
CANARY: Final = 0.5  # what free blocks hold while a step runs; finite, so that it harms nobody who should not read it


class AuditError(StepscopeError):
    """A step does not hold what its requests say; the message names the row, both sides and the rule."""


class StepAudit:
    """Observe one engine and refuse its first wrong step.

    outputs: the step's ``ForwardOutputs``, asked for once they are computed.
    """

    def __init__(self, llm: LLM, outputs: Callable[[], ForwardOutputs]) -> None:
        """Remember where everything lies now, after warm-up."""
        self._llm: Any = llm
        self._outputs = outputs
        self._new_tokens: torch.Tensor = self._llm._executor._samples.previous.new_tokens[0, :, 0]
        self._stream = self._llm._executor._samples.stream
        self._kv_cache = self._llm._resources.kv_cache
        self._addresses = self._frozen_addresses()
        self._padded: PaddedBatch | None = None
        self._spans: Sequence[Span] = ()
        self._kv_blocks: torch.Tensor | None = None
        self._kv_before: torch.Tensor | None = None
        self._handlers: dict[Stage, Callable[[Any], None]] = {
            Stage.SCHEDULED: self._on_scheduled,
            Stage.PADDED: self._on_padded,
            Stage.GRAPH_CHOSEN: self._on_chosen,
            Stage.COPIED: self._on_copied,
            Stage.METADATA: self._on_metadata,
            Stage.SAMPLED: self._on_sampled,
        }

    def emit(self, stage: Stage, step: int, value: object) -> None:
        """Check one stage. Raises: AuditError."""
        if stage in self._handlers:
            self._handlers[stage](value)

    def _on_scheduled(self, _value: object) -> None:
        """Nothing that a graph reads has moved, and nobody but live requests and the dummies holds a slot."""
        for name, address in self._frozen_addresses().items():
            if address != self._addresses[name]:
                message = (
                    f"the graphs were captured with {name} at {self._addresses[name]:#x}, and it lies at {address:#x} "
                    f"now; bring memory that a graph reads to its final size before warm-up"
                )
                raise AuditError(message)
        dummies = self._llm._model_engine._runner._dummies
        known = set(self._llm._executor._live)
        known |= {dummy.request_id for dummy in dummies.padding_dummy_requests.values()} if dummies else set()
        for request_id, slot in self._llm._resources.seq_slots._slots.items():
            if request_id not in known:
                message = f"slot {slot} is held by {request_id}, which is no live request and no padding dummy"
                raise AuditError(message)

    def _on_padded(self, padded: PaddedBatch) -> None:
        self._padded = padded

    def _on_chosen(self, selection: Selection) -> None:
        """Compare the key's sampler with the one that the padded batch needs; find the dummy whenever one is wanted."""
        assert self._padded is not None
        if selection.reason is FallOff.NO_DUMMY_SLOT:
            message = (
                f"{selection.num_requests} requests fit the graph of {selection.bucket}, and no padding dummy exists; "
                f"reserve it at the end of warm-up, before requests can fill the pool"
            )
            raise AuditError(message)
        self._spans = self._padded.spans if selection.key is not None else self._padded.scheduled.spans
        needed = sample_mode(self._padded)
        if selection.key is not None and selection.key.sample_mode is not needed:
            message = f"the batch needs the {needed.value} sampler, and the key {selection.key} replays the other one"
            raise AuditError(message)

    def _on_copied(self, prepared: PreparedInputs) -> None:
        """Every row holds its request's token at its position, and every sample its slot."""
        self._stream.synchronize()
        tokens, positions = prepared.input_ids.tolist(), prepared.position_ids[0, 0].tolist()
        for row, (span, position) in enumerate(_rows(self._spans)):
            token = 0 if span.request.is_dummy else span.request.token_range(position, position + 1)[0]
            _same(f"row {row} of input_ids ({_owner(span)})", token, tokens[row])
            _same(f"row {row} of position_ids ({_owner(span)})", position, positions[row])
        slots = prepared.seq_slots.tolist()
        wanted = [span for span in self._spans for _ in range(span.num_logit_rows)]
        for row, span in enumerate(wanted):
            _same(f"row {row} of seq_slots ({_owner(span)})", span.request.py_seq_slot, slots[row])

    def _on_metadata(self, metadata: Any) -> None:
        """Lengths and tables are those of the requests, and no row writes into another request's block."""
        self._stream.synchronize()
        kv_lens, tables = metadata.kv_lens.tolist(), metadata.block_table.tolist()
        for at, span in enumerate(self._spans):
            if span.request.is_dummy:  # how a padding row is neutralised is the backend's affair
                continue
            _same(f"kv_lens[{at}] ({_owner(span)})", span.end, kv_lens[at])
            table = list(self._kv_cache.block_table(span.request_id))
            padding = [0] * (len(tables[at]) - len(table))
            _same(f"block_table[{at}] ({_owner(span)})", table + padding, tables[at])
        self._check_owners(kv_lens, tables)
        blocks: torch.Tensor = metadata.storage.blocks
        free = sorted(self._kv_cache.free_block_ids())
        blocks[:, :, :, free] = CANARY  # or a write of what was there before would not be seen
        self._kv_blocks, self._kv_before = blocks, blocks.clone()
        slots = [_slot(span) for span in self._spans if span.num_logit_rows]
        self._new_tokens[slots] = POISON

    def _on_sampled(self, sampled: SampledTokens) -> None:
        """Every sample was computed in this step, is what the host read, and only this step's KV cells changed."""
        on_device = self._new_tokens.tolist()
        spans = [span for span in self._spans if span.num_logit_rows]
        for span, (request_id, token) in zip(spans, sampled.token_ids, strict=False):
            got = on_device[_slot(span)]
            if got == POISON:
                message = f"nothing sampled for request {request_id} in this step: its graph was not replayed"
                raise AuditError(message)
            _same(f"the token that the host read for request {request_id}", got, token)
        if not torch.isfinite(self._outputs().logits.tensor).all():
            message = "a logit is not finite: something read memory that nobody wrote, or masked by multiplying"
            raise AuditError(message)
        self._check_written_cells()

    def _check_owners(self, kv_lens: list[int], tables: list[list[int]]) -> None:
        size = self._kv_cache.tokens_per_block
        holders: dict[int, Span] = {}
        for at, span in enumerate(self._spans):
            for block in tables[at][: -(-kv_lens[at] // size)]:
                other = holders.setdefault(block, span)
                is_reused = self._kv_cache.ledger.num_uses(block) > 1  # by requests that begin alike
                if other.request_id != span.request_id and not is_reused:
                    message = f"block {block} is in the tables of {_owner(other)} and of {_owner(span)}"
                    raise AuditError(message)

    def _check_written_cells(self) -> None:
        assert self._kv_before is not None
        assert self._kv_blocks is not None
        before, after, size = self._kv_before, self._kv_blocks, self._kv_cache.tokens_per_block
        differs = (before != after) & ~(before.isnan() & after.isnan())
        changed = {(block, offset) for block, offset in differs.amax((0, 1, 2, 5)).nonzero().tolist()}
        for span, position in _rows(self._spans):
            changed.discard((self._kv_cache.block_table(span.request_id)[position // size], position % size))
        for block, offset in sorted(changed):
            if block < before.shape[3] - 1:  # the last one is the sink
                message = f"the step wrote KV token {offset} of block {block}, where none of its rows belongs"
                raise AuditError(message)

    def _frozen_addresses(self) -> dict[str, int]:
        llm = self._llm
        model = {**llm.loaded.model.state_dict(keep_vars=True), **dict(llm.loaded.model.named_buffers())}
        groups = {"model": model, "statics": llm.graph_statics.tensors(), "buffers": llm.input_buffers.tensors()}
        return {f"{group}.{name}": t.data_ptr() for group, tensors in groups.items() for name, t in tensors.items()}


def _rows(spans: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Walk the flat layout: the span and the position of every row."""
    for span in spans:
        for position in range(span.start, span.end):
            yield span, position


def _slot(span: Span) -> int:
    assert span.request.py_seq_slot is not None
    return span.request.py_seq_slot


def _owner(span: Span) -> str:
    return "padding" if span.request.is_dummy else f"request {span.request_id}"


def _same(what: str, needed: object, got: object) -> None:
    if needed != got:
        message = f"{what} must be {needed}, and holds {got}"
        raise AuditError(message)
