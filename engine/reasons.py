"""Why a step ran eagerly, and why a request did not run: enums without sentences.

A member exists only if a real run reaches it (a test proves each). The sentence, the minimal fix and the
article anchor of each live in ``lab/reasons.py``; this file only names the kinds.

Does not: decide anything. ``cuda_graphs/select.py`` and ``scheduler/`` pick the members.
"""

import enum


class FallOff(enum.StrEnum):
    """Why a step left the graph path, in the order in which the conditions are tried."""

    GRAPHS_DISABLED = "GRAPHS_DISABLED"
    COMPILE_NOT_RECORDED = "COMPILE_NOT_RECORDED"
    WARMUP = "WARMUP"
    HAS_CONTEXT_UNPROMOTED = "HAS_CONTEXT_UNPROMOTED"
    ABOVE_LARGEST_PREFILL_BUCKET = "ABOVE_LARGEST_PREFILL_BUCKET"
    DRAFT_LEN_NOT_CAPTURED = "DRAFT_LEN_NOT_CAPTURED"
    ABOVE_LARGEST_BUCKET = "ABOVE_LARGEST_BUCKET"
    NO_EXACT_BUCKET_PADDING_OFF = "NO_EXACT_BUCKET_PADDING_OFF"
    NO_DUMMY_SLOT = "NO_DUMMY_SLOT"
    SAMPLER_MODE_NOT_CAPTURED = "SAMPLER_MODE_NOT_CAPTURED"
    CAPTURE_NOT_ALLOWED_NOW = "CAPTURE_NOT_ALLOWED_NOW"


class DeferralReason(enum.StrEnum):
    """Why a live request got no rows, or fewer rows than it could use, in a step."""

    NO_FREE_BLOCKS = "NO_FREE_BLOCKS"
    BEHIND_BLOCKED_REQUEST = "BEHIND_BLOCKED_REQUEST"
    TOKEN_BUDGET = "TOKEN_BUDGET"
    REQUEST_BUDGET = "REQUEST_BUDGET"
    CHUNK_TRUNCATED = "CHUNK_TRUNCATED"
    WAITS_FOR_BATCH = "WAITS_FOR_BATCH"
    NO_BLOCKS_FOR_STEP = "NO_BLOCKS_FOR_STEP"
    PAUSED = "PAUSED"
    AWAITS_SHARED_PREFIX = "AWAITS_SHARED_PREFIX"


class PathKind(enum.StrEnum):
    """How the forward of a step ran; PREFILL_REPLAY is a chain of captured segments with eager attention between."""

    EAGER = "eager"
    CAPTURE = "capture"
    REPLAY = "replay"
    PREFILL_REPLAY = "prefill_replay"
