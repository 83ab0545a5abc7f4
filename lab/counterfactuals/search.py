"""Counterfactual: the smallest change that would have put an eager step on a graph, proved by running it again.

The trace's header holds all that a run was made of, so its workload is run again: first unchanged, then with one
changed field after another, then with two, then three. A change is proved when the re-run has a step that does *the
same work* and takes a graph.

**The same work**: the same requests (by their place in the order of submission) compute the same rows (first position
and number of rows), and nobody else is in the step. Which step number that is may differ.

Fewest fields come first, and among equals the changes that the failed condition reads. A longer change is only tried on
top of one that got the step further down the engine's own checklist: the conditions are tried in one order, so a change
that leaves the step at the same failed condition has not helped.

Does not: list the changes (``changes.py``), run the workload (``workload.py``), or judge speed.
Source: the smallest change, verified by a re-run, is what users of serving engines ask for and none gives.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from engine.config import EngineConfig, SamplingParams
from engine.errors import StepscopeError, TraceError
from engine.models.registry import LoadedModel
from engine.reasons import FallOff
from lab.counterfactuals.changes import FieldChange, StepFacts, Variation, variations
from lab.counterfactuals.workload import Proof, Workload, runnable_here
from lab.reasons import GRAPH_PATHS
from lab.snapshot import StepSnapshot
from lab.trace import Trace
from lab.widgets.strings import translate
from lab.widgets.whatif import Said

MAX_FIELDS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """A change that did not help. outcome: the reason the same step still had, or what came instead of it."""

    change: tuple[FieldChange, ...]
    outcome: str


@dataclasses.dataclass(frozen=True, slots=True)
class Counterfactual:
    """The answer about one step.

    step: index into the trace. reason: why it was eager, None when it was not. change: the smallest that helps, empty
    when none is needed or none helps. proof: None when the step was on a graph already, or nothing helps.
    say: the sentences as (id, arguments), for the stepper.
    """

    step: int
    reason: str | None
    change: tuple[FieldChange, ...]
    proof: Proof | None
    tried: tuple[Attempt, ...]
    say: tuple[Said, ...]

    @property
    def sentence(self) -> str:
        """The answer in plain words."""
        return " ".join(translate(name, arguments) for name, arguments in self.say)

    def __str__(self) -> str:
        """Say it."""
        return self.sentence


def counterfactual(
    trace: Trace, i: int, *, model: str | LoadedModel | None = None, max_fields: int = MAX_FIELDS
) -> Counterfactual:
    """Find the smallest change that puts step ``i`` of the trace on a graph, and prove it.

    model: where the trace's model lies by now, or the model itself (``llm.loaded``), which saves loading it; None takes
    the name in the header.
    Raises: TraceError for a step that is not there, or a trace that cannot be run again (redacted, without prompts or
    configuration, other weights, of another version, recorded from the middle of a run), or not here (its device, or
    its memory).
    """
    if not isinstance(trace, Trace):
        message = (
            f"counterfactual takes a Trace and an index, got a {type(trace).__name__}; a session's is session.trace"
        )
        raise TraceError(message)
    if isinstance(max_fields, bool) or not isinstance(max_fields, int) or max_fields < 0:
        message = f"max_fields must be an integer of at least 0, got {max_fields!r}"
        raise TraceError(message)
    i = trace.place(i)
    step = trace.steps[i]
    if step.graph.path in GRAPH_PATHS:
        return Counterfactual(i, None, (), None, (), (("whatif.already", {}),))
    workload = Workload.of(trace, i, model)
    with runnable_here():
        baseline = workload.run(workload.config)
    if baseline is None:
        message = (
            f"step {i} cannot be run again: a re-run of the recorded requests has no step with the same rows of the "
            "same requests. Record from the first step of an engine on, with every request in the trace"
        )
        raise TraceError(message)
    if baseline.path in GRAPH_PATHS:
        return _answer(i, step, (), baseline, [])
    return _search(i, step, workload, _Start(workload.config, (), baseline), max_fields)


def _search(i: int, step: StepSnapshot, workload: Workload, baseline: "_Start", max_fields: int) -> Counterfactual:
    """Try changes of one field, then of two on top of those that got further, and so on."""
    tried: list[Attempt] = []
    starts, seen = [baseline], set[frozenset[str]]()
    for _ in range(max_fields):
        further: list[_Start] = []
        for start in starts:
            for variation in variations(start.config, _facts(start.proof)):
                change = (*start.change, variation.change)
                names = frozenset(one.name for one in change)
                if len(names) < len(change) or names in seen:
                    continue
                seen.add(names)
                proof, outcome = _try(workload, variation)
                if proof is not None and proof.path in GRAPH_PATHS:
                    return _answer(i, step, change, proof, tried)
                tried.append(Attempt(change, outcome))
                if proof is not None and variation.config is not None and _rank(proof) > _rank(start.proof):
                    further.append(_Start(variation.config, change, proof))
        starts = further
    return _answer(i, step, (), None, tried)


@dataclasses.dataclass(frozen=True, slots=True)
class _Start:
    """A configuration whose re-run is known, from which further changes go."""

    config: EngineConfig
    change: tuple[FieldChange, ...]
    proof: Proof


def _try(workload: Workload, variation: Variation) -> tuple[Proof | None, str]:
    """Run one variation; the outcome says how the same step ran, or why there is none."""
    if variation.config is None:
        return None, f"refused: {variation.refusal}"
    try:
        proof = workload.run(variation.config)
    except StepscopeError as error:
        return None, f"refused: {error}"
    return proof, "no step does this work" if proof is None else _reason(proof)


def _facts(proof: Proof) -> StepFacts:
    """Return what the re-run's own step suggests: its buckets are those of the configuration that ran."""
    header, step = proof.trace.header, proof.trace.steps[proof.step]
    params = {request.request_id: SamplingParams(**request.params) for request in header.requests}
    is_greedy = all(params[span.request_id].is_greedy for span in step.schedule.spans)
    return StepFacts(
        reason=step.path.reason or "",
        num_requests=step.path.num_requests,
        num_rows=sum(span.num_rows for span in step.schedule.spans),
        sample_mode="greedy" if is_greedy else "full",
        buckets=tuple(header.buckets),
        draft_len=step.schedule.draft_len,
    )


def _reason(proof: Proof) -> str:
    return proof.trace.steps[proof.step].path.reason or proof.path


def _rank(proof: Proof) -> int:
    """Return how far down the engine's checklist a step came."""
    reason = proof.trace.steps[proof.step].path.reason
    names = [member.value for member in FallOff]
    return names.index(reason) if reason in names else -1


def _answer(
    i: int, step: StepSnapshot, change: tuple[FieldChange, ...], proof: Proof | None, tried: Sequence[Attempt]
) -> Counterfactual:
    reason = step.path.reason
    said: list[Said] = [("whatif.change", _change_words(one)) for one in change]
    if proof is None:
        names = ", ".join(dict.fromkeys(str(one) for attempt in tried for one in attempt.change))
        said.append(("whatif.none", {"tried": names}) if tried else ("whatif.untried", {}))
    else:
        words = {"step": proof.step, "path": (f"run.{proof.path}", {}), "key": proof.key or "–"}
        said.append(("whatif.proved" if change else "whatif.by_itself", words))
        if not change:
            said.append(("whatif.outside", {"reason": reason}))
        if proof.trace.header.device.simulated:
            said.append(("whatif.simulated", {}))
        if tried:
            said.append(("whatif.tried", {"n": len(tried)}))
    return Counterfactual(i, reason, change, proof, tuple(tried), tuple(said))


def _change_words(change: FieldChange) -> dict[str, Any]:
    return {"field": change.field, "before": str(change.before), "after": str(change.after)}
