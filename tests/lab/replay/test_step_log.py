"""The log of a replay against a plain recount from every record that the loop hands to a probe."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.llm_request import RequestSpec
from engine.probe import Stage
from lab.replay.null_engine import build_null_engine, length_params
from lab.replay.serving_trace import prompt_tokens
from lab.replay.settings import ReplaySettings
from lab.replay.step_log import StepLog
from tests.lab.replay.traces import plain

REQUESTS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12)


class Recount:
    """A probe of the whole loop that adds everything up span by span."""

    def __init__(self):
        self.rows, self.waits, self.last = [], {}, {}

    def emit(self, stage, step, value):
        if stage is Stage.PADDED:
            spans = value.scheduled.spans
            contexts = [span for span in spans if span.kind == "C"]
            self.rows.append((len(spans), len(contexts), sum(s.num_rows for s in spans), sum(s.end for s in spans)))
            for span in spans:
                before = self.last.get(span.request_id, step - 1)
                self.waits[span.request_id] = max(self.waits.get(span.request_id, 0), step - before - 1)
                self.last[span.request_id] = step


def run(requests, *, observed):
    trace = plain(*requests)
    wanted = ReplaySettings(max_batch_size=3, max_num_tokens=32, num_blocks=24)
    engine = build_null_engine(wanted.config(trace))
    log, recount = StepLog(wanted.costs), Recount()
    engine.observe(log)
    if observed:
        engine.executor.set_probe(Both(log, recount))
    for request in trace.requests:
        log.arrive(request.index)
        recount.last[request.index] = -1
        params = length_params(request.output_len)
        engine.submit(RequestSpec(request.index, prompt_tokens(request, 16), params))
    log.num_live = len(requests)
    while engine.executor.has_unfinished:
        engine.executor.step()
        for done in engine.executor.take_finished():
            log.leave(done.request.request_id)
            log.num_live -= 1
    return log, recount


class Both:
    """Two probes as one."""

    def __init__(self, *probes):
        self.probes = probes

    def emit(self, stage, step, value):
        for probe in self.probes:
            probe.emit(stage, step, value)


@settings(max_examples=25, deadline=None)
@given(REQUESTS)
def test_columns_and_the_longest_wait_equal_a_plain_recount(requests):
    log, recount = run(requests, observed=True)
    columns = log.columns()
    names = ("requests", "contexts", "rows")
    assert list(zip(*(columns[name].tolist() for name in names), strict=True)) == [row[:3] for row in recount.rows]
    assert log.max_wait_steps == max(recount.waits.values())
    line = {0: log._costs.graph, 1: log._costs.prefill, 2: log._costs.eager}
    for at, row in enumerate(recount.rows):
        cost = line[int(columns["path"][at])].microseconds(int(columns["computed_rows"][at]), row[3])
        assert columns["cost_us"][at] == int(cost), "the KV lengths are those of all spans"


@settings(max_examples=15, deadline=None)
@given(REQUESTS)
def test_the_numbers_are_the_same_whether_the_loop_is_watched_or_not(requests):
    quiet, watched = run(requests, observed=False)[0], run(requests, observed=True)[0]
    for name, column in quiet.columns().items():
        assert column.tolist() == watched.columns()[name].tolist(), name
    assert quiet.max_wait_steps == watched.max_wait_steps


def test_a_request_that_never_runs_has_waited_until_the_log_is_stopped():
    log, _ = run([(0, 10, 5)], observed=False)
    log.arrive(7)
    log.stop()
    assert log.max_wait_steps == 0
    log.arrive(8)
    log._columns["step"].append(len(log) + 3)
    log.stop()
    assert log.max_wait_steps == 4


def test_charges_and_own_time_are_handed_out_once():
    log, _ = run([(0, 10, 5)], observed=False)
    assert log.take_charge() == pytest.approx(log.columns()["cost_us"].sum(), abs=len(log))
    assert log.take_charge() == 0.0
    assert log.take_own_ns() > 0
    assert log.take_own_ns() == 0
