"""The search for a counterexample."""

from lab.exercises.callers import LocalCaller
from lab.exercises.catalogue import load
from lab.exercises.judge import EXAMPLES, Effort, judge, search

EXERCISE = load("ex16")


def _judged(function, **options):
    caller = LocalCaller(EXERCISE, function)
    return list(judge(EXERCISE, caller, rule="a", effort=Effort(), **options))


def _right(sizes, batch):
    return min((s for s in sizes if s >= batch), default=None) if batch else None


def test_a_right_function_passes_and_hidden_checks_run_only_when_asked_for():
    assert [r.kind for r in _judged(_right)] == ["examples", "visible", "visible", "visible"]
    results = _judged(_right, hidden=True)
    assert [r.kind for r in results[4:]] == ["hidden", "hidden"]
    assert all(r.passed for r in results)


def test_the_counterexample_is_the_smallest_there_is():
    results = _judged(lambda sizes, batch: min(sizes) if batch else None)
    wrong = next(r for r in results if r.name == "every request has a place").counterexample
    assert wrong.case == {"sizes": [1, 2], "batch": 2}
    assert wrong.problem == "a graph for 1 request leaves 1 out"


def test_the_same_seed_finds_the_same():
    one = EXERCISE.checks.properties[1]
    caller = LocalCaller(EXERCISE, lambda sizes, batch: max(sizes))
    found = [search(EXERCISE, one, caller, rule="a", effort=Effort(seed=5)) for _ in range(2)]
    assert found[0] == found[1]


def test_a_function_that_gives_no_answer_fails_every_check_with_the_reason():
    results = _judged(lambda sizes, batch: "two")
    assert not any(r.passed for r in results)
    assert results[0].name == EXAMPLES
    assert results[0].counterexample.problem == "must be an integer or None, is 'two' (str)"


def test_an_error_in_the_second_call_of_a_check_is_the_functions_own():
    def odd(sizes, batch):
        if batch % 2:
            raise KeyError(batch)
        return _right(sizes, batch)

    results = _judged(odd, hidden=True)
    assert results[-1].counterexample.outcome.error_type == "KeyError"
