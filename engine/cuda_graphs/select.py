"""Choose a graph for a step, or say why not: pure, over numbers, torch-free.

The conditions are tried in one order, that of ``reasons.FallOff``; the first that fails is the reason, and later ones
stay unevaluated. A miss is a normal value: the step then runs eagerly with its *unpadded* batch. The last two
conditions tell apart a bucket that has a graph for the other sampler only, and one that has none, because warm-up
did not capture it or it was released; serving never captures.

A step that verifies drafts needs a graph of its draft length: it has 1 + K rows for each request.

A step with contexts has no decode graph. Where prefill chains were captured, it has conditions of its own, and the
selection names the chain's bucket in place of a key: its rows, not its requests, are what is padded. Where they were
released, no bucket would help, and the reason says so.

Does not: see the metadata object, allocate a dummy, capture. Source: the refusal order of TensorRT-LLM's graph
runner, reduced to a decoder on one rank.
"""

import dataclasses
import functools

from engine.cuda_graphs.key import KeyType, SampleMode, make_key
from engine.inputs.padding import prefill_bucket, round_up_to_bucket
from engine.reasons import FallOff


@dataclasses.dataclass(frozen=True, slots=True)
class BodyFacts:
    """What there is for the layer stack alone.

    is_recorded: graphs can record it (the tape cannot record a compiled one). prefill_buckets: rows that have a chain,
    ascending. num_rows: of the step, unpadded. released_buckets: rows whose chains are gone, ascending; no chain is
    left then.
    """

    is_recorded: bool = True
    prefill_buckets: tuple[int, ...] = ()
    num_rows: int = 0
    released_buckets: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GraphFacts:
    """The numbers of one step that decide its path.

    num_contexts: context requests left after promotion. num_requests: requests before padding.
    buckets: batch sizes meant to have graphs of this draft length, ascending. max_batch_size: requests that a step may
    hold, dummies included. dummy_available: a padding dummy is preallocated. captured: every key that has a graph.
    """

    num_requests: int
    num_contexts: int
    draft_len: int
    sample_mode: SampleMode
    graphs_enabled: bool
    is_warmup: bool
    padding_enabled: bool
    buckets: tuple[int, ...]
    max_batch_size: int
    dummy_available: bool
    captured: frozenset[KeyType]
    body: BodyFacts = BodyFacts()


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """One line of the checklist. passed is None when an earlier line had already failed."""

    reason: FallOff
    passed: bool | None
    needed: str
    got: str


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """The chosen path: a key (graph), or None with the reason and every condition as tried.

    bucket: the smallest one that holds the batch, whatever the path; None above the largest. prefill_bucket: the rows
    of the chain that runs; then there is neither key nor reason.
    """

    key: KeyType | None
    reason: FallOff | None
    conditions: tuple[Condition, ...]
    bucket: int | None
    num_requests: int
    prefill_bucket: int | None = None

    @property
    def num_padding(self) -> int:
        """Dummy requests that the bucket needs; 0 when eager."""
        return 0 if self.key is None else self.key.batch_size - self.num_requests


@functools.lru_cache(maxsize=1024)  # steps repeat their facts, and the texts cost more than the decision
def select_graph(facts: GraphFacts) -> Selection:
    """Try the conditions in order and return the key, or the first reason against it."""
    usable = tuple(size for size in facts.buckets if size <= facts.max_batch_size)
    bucket = round_up_to_bucket(facts.num_requests, usable)
    key = make_key(padded_batch_size=bucket or 0, draft_len=facts.draft_len, sample_mode=facts.sample_mode)
    rows = prefill_bucket(
        num_tokens=facts.body.num_rows, num_contexts=facts.num_contexts, buckets=facts.body.prefill_buckets
    )
    has_chains = bool(facts.num_contexts and (facts.body.prefill_buckets or facts.body.released_buckets))
    tries = _common_tries(facts)
    tries += _prefill_tries(facts.body, rows) if has_chains else _decode_tries(facts, usable, bucket, key)
    conditions: list[Condition] = []
    reason: FallOff | None = None
    for kind, passed, needed, got in tries:
        conditions.append(Condition(kind, passed if reason is None else None, needed, got))
        if reason is None and not passed:
            reason = kind
    return Selection(
        key=None if has_chains or reason is not None else key,
        reason=reason,
        conditions=tuple(conditions),
        bucket=bucket,
        num_requests=facts.num_requests,
        prefill_bucket=rows if reason is None else None,
    )


_Try = tuple[FallOff, bool, str, str]  # the reason if it fails, whether it passed, what was needed, what was got


def _common_tries(facts: GraphFacts) -> tuple[_Try, ...]:
    """Evaluate what holds for every graph; only a body that cannot be recorded has a line about it."""
    enabled = (FallOff.GRAPHS_DISABLED, facts.graphs_enabled, "graphs enabled", _yes_no(facts.graphs_enabled))
    recorded = (FallOff.COMPILE_NOT_RECORDED, False, "a body that can be recorded", "a compiled one")
    serving = (FallOff.WARMUP, not facts.is_warmup, "a step that serves", "warm-up" if facts.is_warmup else "serving")
    return (enabled, serving) if facts.body.is_recorded else (enabled, recorded, serving)


def _prefill_tries(body: BodyFacts, rows: int | None) -> tuple[_Try, ...]:
    if not body.prefill_buckets:
        meant = round_up_to_bucket(body.num_rows, body.released_buckets) or body.released_buckets[-1]
        return ((FallOff.CAPTURE_NOT_ALLOWED_NOW, False, f"a graph for (prefill {meant})", "none"),)
    return (
        (
            FallOff.ABOVE_LARGEST_PREFILL_BUCKET,
            rows is not None,
            f"at most {body.prefill_buckets[-1]} rows",
            str(body.num_rows),
        ),
    )


def _decode_tries(facts: GraphFacts, usable: tuple[int, ...], bucket: int | None, key: KeyType) -> tuple[_Try, ...]:
    is_exact = bucket == facts.num_requests
    has_graph = key in facts.captured
    modes = sorted(
        k.sample_mode.value for k in facts.captured if (k.batch_size, k.draft_len) == (bucket, key.draft_len)
    )
    modes_text = ", ".join(modes) or "none"
    return (
        (FallOff.HAS_CONTEXT_UNPROMOTED, not facts.num_contexts, "0 contexts", str(facts.num_contexts)),
        *_draft_tries(facts),
        (
            FallOff.ABOVE_LARGEST_BUCKET,
            bucket is not None,
            f"at most {max(usable, default=0)} requests",
            str(facts.num_requests),
        ),
        (
            FallOff.NO_EXACT_BUCKET_PADDING_OFF,
            is_exact or facts.padding_enabled,
            "an exact bucket, or padding on",
            f"{facts.num_requests}, buckets {facts.buckets}",
        ),
        (
            FallOff.NO_DUMMY_SLOT,
            is_exact or facts.dummy_available,
            "a preallocated dummy",
            _yes_no(facts.dummy_available),
        ),
        (FallOff.SAMPLER_MODE_NOT_CAPTURED, has_graph or not modes, f"{key.sample_mode.value} captured", modes_text),
        (FallOff.CAPTURE_NOT_ALLOWED_NOW, has_graph, f"a graph for {key}", modes_text),
    )


def _draft_tries(facts: GraphFacts) -> tuple[_Try, ...]:
    """Evaluate what a step of verify rows needs besides; a step without drafts has no line about it."""
    if not facts.draft_len:
        return ()
    captured = sorted({key.draft_len for key in facts.captured})
    got = ", ".join(map(str, captured)) or "none"
    return ((FallOff.DRAFT_LEN_NOT_CAPTURED, bool(facts.buckets), f"draft length {facts.draft_len}", got),)


def _yes_no(fact: bool) -> str:  # noqa: FBT001 - it takes nothing else
    return "yes" if fact else "no"
