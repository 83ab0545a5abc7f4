from lab.faults.fault import THREE, Workload, small_config
from lab.faults.runs import Difference, Run, StepSeen, first_difference, marks, run_workload, wrong_rows
from tests.lab.faults.expected import healthy_run


def run_of(*steps):
    return Run(tuple(StepSeen(at, *step) for at, step in enumerate(steps)), None, None, simulated=True)


HEALTHY = run_of(("eager", ((4, 7), (9, 8))), ("replay", ((0, 1), (1, 2)), ((2, 5),)), ("replay", ((0, 3), (1, 4))))


def test_equal_runs_do_not_differ():
    assert first_difference(HEALTHY, HEALTHY) == Difference()
    assert marks(HEALTHY, HEALTHY) == ()


def test_the_first_wrong_row_is_the_earliest_step_then_the_lowest_row():
    broken = run_of(("eager", ((4, 7), (9, 8))), ("replay", ((0, 1), (1, 9)), ((2, 5),)), ("replay", ((0, 0), (1, 4))))
    assert first_difference(HEALTHY, broken) == Difference(1, 1)
    assert [(mark.step, mark.row) for mark in marks(HEALTHY, broken)] == [(1, 1), (2, 0)]
    assert marks(HEALTHY, broken)[0].text == "samples 9, the healthy run 2"


def test_wrong_padding_counts_only_where_no_request_is_wrong():
    padding = run_of(*[(s.path, s.tokens, s.padding and ((2, 6),)) for s in HEALTHY.steps])
    assert first_difference(HEALTHY, padding) == Difference(1, 2)
    both = run_of(*[(s.path, s.tokens if at < 2 else ((0, 9),), ((2, 6),)) for at, s in enumerate(HEALTHY.steps)])
    assert first_difference(HEALTHY, both) == Difference(2, 0)


def test_a_step_that_lost_its_graph_is_noted():
    eager = run_of(*[("eager", s.tokens, s.padding) for s in HEALTHY.steps])
    assert first_difference(HEALTHY, eager) == Difference(lost=1)


def test_rows_that_only_one_run_has_are_not_compared():
    assert wrong_rows(((0, 1),), ((0, 1), (1, 5))) == []


def test_a_real_run_notes_every_row_with_padding_last():
    run = healthy_run(Workload(THREE, small_config()), True)
    assert run.simulated
    assert [step.path for step in run.steps] == ["eager"] + ["replay"] * 9
    assert [row for row, _ in run.steps[1].tokens + run.steps[1].padding] == [0, 1, 2, 3]
    assert run.trace is not None
    assert [token for _, token in run.steps[4].tokens] == [token for _, token in run.trace.steps[4].outcome.tokens]


def test_a_planned_interrupt_repeats_the_step_and_loses_nothing():
    calm, broken_off = Workload(THREE, small_config()), Workload(THREE, small_config(), interrupts=(0, 4))
    assert first_difference(healthy_run(calm, False), run_workload(broken_off, "cpu", guarded=False)) == Difference()
