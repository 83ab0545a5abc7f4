"""The steady-generation fast path: when the next step may be derived on the device from the one before it.

Two tests, and only both together make it sound. *Recording*: a full step whose every row was a generation with its
token gathered from the previous sample may leave a record. *Use*: the next step has the same requests in the same
order and nothing else. Then positions are those of the last step plus one, tokens are one gather over the same slots,
and lengths are the same ones. Every full step drops the record first, and so does every rollback: a step that
came between would put positions one off, with no error.

A padded batch never records: its dummies have no previous sample. So the path is taken at exact bucket sizes and in
eager steps.

Does not: apply anything (``prepare.py``, ``attention/paged.py``), or hold the record (the runner does). Torch-free.
Source: TensorRT-LLM's steady-generation cache; its recording test, left out of most descriptions, is what makes it
safe.
"""

import dataclasses
import enum

from engine.llm_request import LlmRequest


class SteadyRefusal(enum.StrEnum):
    """Why a step leaves no record, or may not use one; the first condition that fails, in this order."""

    IS_WARMUP = "IS_WARMUP"
    HAS_CONTEXTS = "HAS_CONTEXTS"
    HAS_EXTENDS = "HAS_EXTENDS"
    NO_GENERATIONS = "NO_GENERATIONS"
    HAS_PADDING = "HAS_PADDING"
    HAS_HOST_TOKENS = "HAS_HOST_TOKENS"
    ROWS_WITHOUT_PREVIOUS_SAMPLE = "ROWS_WITHOUT_PREVIOUS_SAMPLE"
    HAS_DRAFTS = "HAS_DRAFTS"
    SEVERAL_BEAMS = "SEVERAL_BEAMS"
    TOKENS_PADDED = "TOKENS_PADDED"
    MODEL_ADDS_INPUTS = "MODEL_ADDS_INPUTS"
    NOTHING_RECORDED = "NOTHING_RECORDED"
    NO_PREVIOUS_SAMPLE = "NO_PREVIOUS_SAMPLE"
    OTHER_NUMBER_OF_REQUESTS = "OTHER_NUMBER_OF_REQUESTS"
    OTHER_REQUESTS = "OTHER_REQUESTS"
    TABLES_UNKNOWN = "TABLES_UNKNOWN"


@dataclasses.dataclass(frozen=True, slots=True)
class RecordingFacts:
    """A full step, in numbers. num_extends: promoted contexts and verified drafts. model_adds_inputs: per request."""

    is_warmup: bool
    num_contexts: int
    num_extends: int
    num_generations: int
    num_padding: int
    num_host_tokens: int
    num_previous_samples: int
    num_rows: int
    draft_len: int = 0
    beam_width: int = 1
    is_token_padded: bool = False
    model_adds_inputs: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyRecord:
    """What a step leaves behind. Order: requests is that of the rows. table_version: of the block tables."""

    requests: tuple[LlmRequest, ...]
    table_version: int


@dataclasses.dataclass(frozen=True, slots=True)
class UseFacts:
    """The step that would use the record.

    num_contexts: promoted ones count. requests: in row order; requests are compared as objects, which costs no look at
    any of them. changed: ids of requests whose block table changed since the record; None when not known.
    """

    is_warmup: bool
    has_previous_sample: bool
    num_contexts: int
    requests: tuple[LlmRequest, ...]
    changed: frozenset[int] | None
    draft_len: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class SteadyRows:
    """The packed form of a steady step: nothing is packed.

    changed_rows, changed_tables: the rows whose block table grew, ascending, and their tables.
    """

    requests: tuple[LlmRequest, ...]
    changed_rows: tuple[int, ...] = ()
    changed_tables: tuple[tuple[int, ...], ...] = ()

    @property
    def request_ids(self) -> tuple[int, ...]:
        """The rows' requests; for observers, since it asks each of them."""
        return tuple([request.request_id for request in self.requests])

    @property
    def num_rows(self) -> int:
        """Rows of the step: one for each request."""
        return len(self.requests)


def why_not_record(facts: RecordingFacts) -> SteadyRefusal | None:
    """Name the first condition that keeps a full step from leaving a record; None when all hold."""
    blocked = (
        (SteadyRefusal.IS_WARMUP, facts.is_warmup),
        (SteadyRefusal.HAS_CONTEXTS, facts.num_contexts > 0),
        (SteadyRefusal.HAS_EXTENDS, facts.num_extends > 0),
        (SteadyRefusal.NO_GENERATIONS, facts.num_generations < 1),
        (SteadyRefusal.HAS_PADDING, facts.num_padding > 0),
        (SteadyRefusal.HAS_HOST_TOKENS, facts.num_host_tokens > 0),
        (SteadyRefusal.ROWS_WITHOUT_PREVIOUS_SAMPLE, facts.num_previous_samples != facts.num_rows),
        (SteadyRefusal.HAS_DRAFTS, facts.draft_len > 0),
        (SteadyRefusal.SEVERAL_BEAMS, facts.beam_width != 1),
        (SteadyRefusal.TOKENS_PADDED, facts.is_token_padded),
        (SteadyRefusal.MODEL_ADDS_INPUTS, facts.model_adds_inputs),
    )
    return next((refusal for refusal, fails in blocked if fails), None)


def why_not_use(record: SteadyRecord | None, facts: UseFacts) -> SteadyRefusal | None:
    """Name the first condition that keeps a step from using the record; None when all hold."""
    if record is None:
        return SteadyRefusal.NOTHING_RECORDED
    if facts.is_warmup:
        return SteadyRefusal.IS_WARMUP
    if not facts.has_previous_sample:
        return SteadyRefusal.NO_PREVIOUS_SAMPLE
    if facts.num_contexts or facts.draft_len:
        return SteadyRefusal.HAS_CONTEXTS if facts.num_contexts else SteadyRefusal.HAS_DRAFTS
    if len(facts.requests) != len(record.requests):
        return SteadyRefusal.OTHER_NUMBER_OF_REQUESTS
    if facts.requests != record.requests:
        return SteadyRefusal.OTHER_REQUESTS
    if facts.changed is None:
        return SteadyRefusal.TABLES_UNKNOWN
    return None
