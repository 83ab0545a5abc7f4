"""A timeline of a run in the Trace Event format (JSON), which Perfetto and chrome://tracing open.

Lanes: the host's stages, one after the other in the order in which they came; the steps (with overlap two are open at a
time, so they are asynchronous slices); one lane a request; fall-offs and deferrals as instants; rows, padding and free
blocks as counters. The host's lane is made of the time that each stage took: what the host did between two stages of
the loop is not in a trace. The device has a lane only where its own events measured it, on its own clock. A device
that the tape simulates computes on the host, within the stage RAN, and the lanes say so.

Does not: know a trace's header (``trace.py``), or measure. Torch-free.
Source: the Trace Event format as Chromium documents it: complete (X), instant (i), counter (C), async (b, e),
metadata (M); times in microseconds.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lab.outline import is_outline
from lab.reasons import GRAPH_PATHS, NOT_RECORDED, recorded_clause
from lab.snapshot import STAGES, StepSnapshot

HOST: Final = 1  # process ids
REQUESTS: Final = 2
DEVICE: Final = 3
STEP_LANE: Final = 1  # thread ids of the host
STAGE_LANE: Final = 2
EVENT_LANE: Final = 3

Event = dict[str, Any]
_KINDS: Final = {"C": "prefill", "E": "verify", "G": "decode"}
_LAUNCHED: Final = STAGES.index("RAN")


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineFacts:
    """What the lanes are named after. simulated: graphs are the CPU tape."""

    model: str
    device: str
    simulated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """A step on the host's clock. stages: (index, begin, microseconds) of each that came. end: the next one's begin."""

    step: StepSnapshot
    stages: tuple[tuple[int, float, float], ...]
    begin: float
    end: float

    @property
    def last(self) -> float:
        """When its last stage ended."""
        return max((begin + us for _, begin, us in self.stages), default=self.begin)


def timeline(steps: Iterable[StepSnapshot], facts: TimelineFacts, pieces: Mapping[int, str]) -> dict[str, Any]:
    """Return the whole file as plain values. pieces: printable text of token ids."""
    placed = place(list(steps))
    events = _names(placed, facts)
    for one in placed:
        events += [*_step_events(one), *_stage_events(one), *_instants(one), *_counters(one)]
        events += [*_request_events(one, pieces), *_device_events(one)]
    said = "host times; graphs simulated by the CPU tape" if facts.simulated else "host times"
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"model": facts.model, "device": facts.device, "times": said, "source": "stepscope"},
    }


def place(steps: Sequence[StepSnapshot]) -> list[Placed]:
    """Put the stages of all steps on one clock: each begins when the one before it in time has ended.

    Order: as the steps came. A stage whose order was not recorded comes after those of the steps before.
    """
    moments: list[tuple[int, int, int]] = []  # (order, place of the step, stage)
    for at, step in enumerate(steps):
        order = step.graph.flight.order
        moments += [
            (order[stage] if order else at * len(STAGES) + stage, at, stage)
            for stage, us in enumerate(step.host_us.tolist())
            if not math.isnan(us)
        ]
    if not all(step.graph.flight.order for step in steps):
        moments = [(at * len(STAGES) + stage, at, stage) for _, at, stage in moments]
    clock = 0.0
    stages: list[list[tuple[int, float, float]]] = [[] for _ in steps]
    for _, at, stage in sorted(moments):
        us = round(float(steps[at].host_us[stage]), 3)
        stages[at].append((stage, round(clock, 3), us))
        clock += us
    begins: list[float] = []
    for own in stages:
        begins.append(own[0][1] if own else (begins[-1] if begins else 0.0))
    ends = [*begins[1:], round(clock, 3)][: len(steps)]
    return [
        Placed(step, tuple(own), begin, max(begin, end))
        for step, own, begin, end in zip(steps, stages, begins, ends, strict=True)
    ]


def _names(placed: Sequence[Placed], facts: TimelineFacts) -> list[Event]:
    simulated = " (graphs simulated)" * facts.simulated
    lanes = [
        (HOST, 0, "process_name", f"host: {facts.model} on {facts.device}{simulated}"),
        (HOST, STEP_LANE, "thread_name", "steps"),
        (HOST, STAGE_LANE, "thread_name", f"stages, host time{simulated}"),
        (HOST, EVENT_LANE, "thread_name", "fall-offs and deferrals"),
    ]
    ids = sorted({span.request_id for one in placed for span in one.step.schedule.spans if span.request_id >= 0})
    if ids:
        lanes += [(REQUESTS, 0, "process_name", "requests")]
        lanes += [(REQUESTS, request_id + 1, "thread_name", f"request {request_id}") for request_id in ids]
    if any(one.step.graph.flight.device_us is not None for one in placed):
        lanes += [(DEVICE, 0, "process_name", "device, by its own events and on its own clock")]
        lanes += [(DEVICE, 1, "thread_name", "forwards")]
    named = [
        {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": {"name": text}} for pid, tid, name, text in lanes
    ]
    order = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}}
        for pid in (1, 2, 3)
    ]
    return named + order[: 3 if lanes[-1][0] == DEVICE else 2 if ids else 1]


def _facts_of(step: StepSnapshot) -> dict[str, Any]:
    found: dict[str, Any] = {
        "step": step.step,
        "path": step.graph.path,
        "requests": step.schedule.budget.num_requests,
        "rows": step.num_rows,
        "padding rows": step.num_padding_rows,
        "graph": step.graph.key,
        "reason": step.path.reason,
        "simulated": step.graph.simulated and step.graph.path in GRAPH_PATHS,
        "imported": is_outline(step),
    }
    return {name: value for name, value in found.items() if value not in (None, False)}


def _step_events(one: Placed) -> list[Event]:
    step = one.step
    event = {
        "cat": "step",
        "id": step.step,
        "pid": HOST,
        "tid": STEP_LANE,
        "name": f"step {step.step}: {step.graph.path}",
    }
    return [{**event, "ph": "b", "ts": one.begin, "args": _facts_of(step)}, {**event, "ph": "e", "ts": one.last}]


def _stage_events(one: Placed) -> list[Event]:
    lane = {"ph": "X", "pid": HOST, "tid": STAGE_LANE, "cat": "stage"}
    return [
        {**lane, "name": STAGES[stage], "ts": begin, "dur": us, "args": {"step": one.step.step}}
        for stage, begin, us in one.stages
    ]


def _instants(one: Placed) -> list[Event]:
    step = one.step
    lane = {"ph": "i", "s": "t", "pid": HOST, "tid": EVENT_LANE, "ts": one.begin}
    found: list[Event] = []
    if step.schedule.spans and step.graph.path not in GRAPH_PATHS:
        reason = step.path.reason or NOT_RECORDED
        args = {"step": step.step, "reason": reason, "words": recorded_clause(reason)}
        found.append({**lane, "cat": "fall-off", "name": f"fall-off: {reason}", "args": args})
    for held in step.schedule.deferrals:
        args = {
            "step": step.step,
            "needed": held.needed,
            "available": held.available,
            "words": recorded_clause(held.reason),
        }
        found.append(
            {**lane, "cat": "deferral", "name": f"request {held.request_id} waits: {held.reason}", "args": args}
        )
    return found


def _counters(one: Placed) -> list[Event]:
    step, padding = one.step, one.step.num_padding_rows
    counter = {"ph": "C", "pid": HOST, "tid": 0, "ts": one.begin}
    found = [{**counter, "name": "rows", "args": {"of requests": step.num_rows - padding, "padding": padding}}]
    free = step.schedule.budget.num_free_blocks
    if free is not None and free >= 0:
        found.append({**counter, "name": "free KV blocks", "args": {"blocks": free}})
    return found


def _request_events(one: Placed, pieces: Mapping[int, str]) -> list[Event]:
    """Return a slice for each request that ran, up to the next step's begin, and an instant for what it got."""
    lane = {"pid": REQUESTS, "cat": "request"}
    found: list[Event] = []
    for span in one.step.schedule.spans:
        if span.request_id >= 0:
            args = {"step": one.step.step, "first position": span.start, "rows": span.num_rows}
            name = f"{_KINDS[span.kind]} {span.num_rows}" if span.num_rows > 1 else _KINDS[span.kind]
            times = {"ts": one.begin, "dur": round(one.end - one.begin, 3)}
            found.append({**lane, "ph": "X", "tid": span.request_id + 1, "name": name, **times, "args": args})
    instant = {**lane, "ph": "i", "s": "t", "ts": one.last}
    for request_id, token in one.step.outcome.tokens:
        text = pieces.get(token, "")
        args = {"step": one.step.step, "token": token, "text": text}
        found.append({**instant, "tid": request_id + 1, "name": "token", "args": args})
    for request_id, reason in one.step.outcome.finished:
        found.append({**instant, "tid": request_id + 1, "name": f"finished: {reason}", "args": {"step": one.step.step}})
    return found


def _device_events(one: Placed) -> list[Event]:
    measured = one.step.graph.flight.device_us
    if measured is None:
        return []
    begin, end = measured
    lane = {"ph": "X", "pid": DEVICE, "tid": 1, "cat": "device"}
    return [{**lane, "name": f"step {one.step.step}", "ts": begin, "dur": end - begin, "args": _facts_of(one.step)}]
