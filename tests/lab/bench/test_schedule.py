"""The step loop's benchmark: what it says it measures is what runs."""

import itertools

import pytest

from engine.errors import ConfigError
from lab.bench.schedule import PROMPT, SETTLE, ScheduleBench, measure


def test_each_policy_has_both_kinds_of_step_with_and_without_a_queue():
    rows = list(measure(ScheduleBench(running=4, waiting=6, steps=3)))
    assert [(row["policy"], row["stage"], row["waiting"]) for row in rows] == [
        (policy, f"step loop, {kind}", waiting)
        for policy in ("guaranteed_no_evict", "max_utilization")
        for kind in ("repeating", "changing")
        for waiting in (0, 6)
    ]
    assert all(row["step_us"] > 0 and row["running"] == 4 for row in rows)
    assert all(row["us_per_request"] == pytest.approx(row["step_us"] / 4, abs=0.05) for row in rows)


@pytest.mark.parametrize("is_changing", [False, True])
def test_a_changing_step_lets_one_in_for_one_that_ended_and_a_repeating_one_changes_nobody(monkeypatch, is_changing):
    from lab.bench import schedule

    batches = []

    class Watch:
        def emit(self, stage, step, value):
            if stage.name == "PADDED":
                batches.append({span.request_id for span in value.scheduled.spans})

    build = schedule.build_null_engine

    def watched(config):
        engine = build(config)
        engine.observe(Watch())
        return engine

    monkeypatch.setattr(schedule, "build_null_engine", watched)
    bench = ScheduleBench(running=20, waiting=30, steps=5)
    assert schedule._step_us(bench, "guaranteed_no_evict", 30, is_changing=is_changing) > 0
    measured = batches[SETTLE:]
    assert {len(batch) for batch in measured} == {20}
    changed = [len(after - before) for before, after in itertools.pairwise(measured)]
    assert set(changed) == {int(is_changing)}


def test_a_count_below_one_is_refused():
    with pytest.raises(ConfigError, match="waiting must be at least 1, got 0"):
        list(measure(ScheduleBench(waiting=0)))
    assert PROMPT >= 1
