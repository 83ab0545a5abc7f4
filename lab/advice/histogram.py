"""How often a step of each size came: batch sizes of decode steps, rows of steps with prompts.

A step counts as decode when a decode graph could have run it, whether one did or not: no contexts, or only such as were
promoted. Every step counts once, since each is padded once. Two sources: a serving trace, replayed in virtual time, and
a recorded run.

Does not: weigh a step by its time, or price anything (``optimum.py``). Torch-free but for who replayed.
"""

import collections
import dataclasses

from lab.replay.outcome import Replay
from lab.replay.step_log import GRAPH
from lab.snapshot import StepSnapshot
from lab.trace import Trace


@dataclasses.dataclass(frozen=True, slots=True)
class StepSizes:
    """Two histograms, size -> steps, and the largest size that a step may legally have."""

    decode: dict[int, int]
    prefill: dict[int, int]
    max_batch_size: int
    max_num_tokens: int
    source: str


def sizes_of_replay(replay: Replay) -> StepSizes:
    """Count the steps of a replay."""
    columns, limits = replay.columns, replay.config.scheduler
    is_decode = (columns["contexts"] == 0) | (columns["path"] == GRAPH)
    decode = collections.Counter(columns["requests"][is_decode].tolist())
    prefill = collections.Counter(columns["rows"][~is_decode].tolist())
    return StepSizes(
        decode=dict(sorted(decode.items())),
        prefill=dict(sorted(prefill.items())),
        max_batch_size=min(limits.max_batch_size, limits.max_num_tokens),
        max_num_tokens=limits.max_num_tokens,
        source=f"{replay.trace.path}, {len(replay.trace.requests)} requests replayed in virtual time",
    )


def sizes_of_recording(trace: Trace, path: str) -> StepSizes:
    """Count the steps of a recorded run, those without a forward left out."""
    decode: collections.Counter[int] = collections.Counter()
    prefill: collections.Counter[int] = collections.Counter()
    steps = [step for step in trace.steps if step.schedule.spans]
    for step in steps:
        if _is_decode(step):
            decode[step.schedule.budget.num_requests] += 1
        else:
            prefill[step.schedule.budget.num_tokens] += 1
    limits = [step.schedule.budget for step in steps]  # an imported step may not know its own: then the largest is one
    max_num_tokens = max((budget.max_num_tokens or budget.num_tokens for budget in limits), default=1)
    max_batch_size = max((budget.max_batch_size or budget.num_requests for budget in limits), default=1)
    return StepSizes(
        decode=dict(sorted(decode.items())),
        prefill=dict(sorted(prefill.items())),
        max_batch_size=max(1, min(max_batch_size, max_num_tokens)),
        max_num_tokens=max_num_tokens,
        source=f"{path}, {len(steps)} recorded steps",
    )


def _is_decode(step: StepSnapshot) -> bool:
    num_contexts = sum(span.kind == "C" for span in step.schedule.spans)
    return num_contexts == 0 or num_contexts == len(step.schedule.promoted)
