"""Choose a graph for a step, or say why not: pure, over numbers, torch-free.

The conditions are tried in one order; the first that fails is the reason, and later ones stay unevaluated. A miss
is a normal value: the step then runs eagerly with its *unpadded* batch.

Does not: see the metadata object, allocate a dummy, capture. Source: the refusal order of TensorRT-LLM's graph
runner, reduced to a decoder on one rank.
"""

import bisect
import dataclasses
from collections.abc import Collection

from engine.cuda_graphs.key import KeyType, SampleMode, make_key
from engine.reasons import FallOff


@dataclasses.dataclass(frozen=True, slots=True)
class GraphFacts:
    """The numbers of one step that decide its path.

    num_contexts: context requests left after promotion. num_requests: requests before padding.
    buckets: captured batch sizes, ascending. dummy_available: a padding dummy is preallocated.
    captured: every key that has a graph. capture_allowed: inside ``allow_capture()``.
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
    captured: Collection[KeyType]
    capture_allowed: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Condition:
    """One line of the checklist. passed is None when an earlier line had already failed."""

    reason: FallOff
    passed: bool | None
    needed: str
    got: str


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """The chosen path: a key (graph), or None with the reason and every condition as tried."""

    key: KeyType | None
    reason: FallOff | None
    conditions: tuple[Condition, ...]
    bucket: int | None
    num_requests: int

    @property
    def num_padding(self) -> int:
        """Dummy requests that the bucket needs; 0 when eager."""
        return 0 if self.key is None else self.key.batch_size - self.num_requests


def round_up_to_bucket(num_requests: int, buckets: tuple[int, ...]) -> int | None:
    """Return the smallest bucket that holds the batch, or None above the largest."""
    at = bisect.bisect_left(buckets, num_requests)
    return buckets[at] if at < len(buckets) else None


def select_graph(facts: GraphFacts) -> Selection:
    """Try the conditions in order and return the key, or the first reason against it."""
    bucket = round_up_to_bucket(facts.num_requests, facts.buckets)
    exact = bucket == facts.num_requests
    largest = facts.buckets[-1] if facts.buckets else 0
    key = make_key(padded_batch_size=bucket or 0, draft_len=facts.draft_len, sample_mode=facts.sample_mode)
    modes = ", ".join(sorted({k.sample_mode.value for k in facts.captured if k.batch_size == bucket})) or "none"
    is_mode_captured = bool(facts.capture_allowed or key in facts.captured)
    tries: tuple[tuple[FallOff, bool, str, str], ...] = (
        (FallOff.GRAPHS_DISABLED, facts.graphs_enabled, "graphs enabled", str(facts.graphs_enabled)),
        (
            FallOff.WARMUP,
            not facts.is_warmup or facts.capture_allowed,
            "not an eager warm-up step",
            str(facts.is_warmup),
        ),
        (FallOff.HAS_CONTEXT_UNPROMOTED, facts.num_contexts == 0, "0 contexts", str(facts.num_contexts)),
        (FallOff.ABOVE_LARGEST_BUCKET, bucket is not None, f"at most {largest} requests", str(facts.num_requests)),
        (
            FallOff.NO_EXACT_BUCKET_PADDING_OFF,
            exact or facts.padding_enabled,
            "an exact bucket, or padding on",
            f"{facts.num_requests}, buckets {facts.buckets}",
        ),
        (FallOff.NO_DUMMY_SLOT, exact or facts.dummy_available, "a preallocated dummy", str(facts.dummy_available)),
        (FallOff.SAMPLER_MODE_NOT_CAPTURED, is_mode_captured, f"{facts.sample_mode.value} captured", modes),
    )
    conditions: list[Condition] = []
    reason: FallOff | None = None
    for kind, passed, needed, got in tries:
        conditions.append(Condition(kind, passed if reason is None else None, needed, got))
        if reason is None and not passed:
            reason = kind
    return Selection(key if reason is None else None, reason, tuple(conditions), bucket, facts.num_requests)
