"""Planted submissions: each gets the fair mark, whatever it tries and whatever happened to its notebook."""

import pytest

from lab.classroom.grading import grade_answer
from lab.classroom.submissions import read_notebook
from lab.exercises.catalogue import load
from tests.exercises.classes import SEED, cell_of, course, free_cell, notebook, source_of

pytestmark = pytest.mark.slow

COURSE = course("ada")
RULE = COURSE.rule("ex16")
RIGHT = source_of("ex16", "solution", 0, RULE)
WEAK = "def bucket_for(sizes, batch):\n    return min(s for s in sizes if s >= batch)\n"
FULL = load("ex16").meta.points


def _graded(raw):
    import json

    answer = read_notebook(json.dumps(raw), ("ex16",))["ex16"]
    return grade_answer("ex16", answer, rule=RULE, seed=SEED)


def _of_source(source):
    return _graded(notebook(COURSE, "ps3", {"ex16": source}))


@pytest.fixture(scope="module")
def weak():
    """The mark of an answer that raises above the last size."""
    mark = _of_source(WEAK)["points"]
    assert 0 < mark < FULL
    return mark


def test_a_right_answer_gets_all_points():
    graded = _of_source(RIGHT)
    assert (graded["points"], graded["max_points"]) == (FULL, FULL)
    assert graded["notes"] == []
    assert graded["misconception"] is None


def test_an_untouched_notebook_gets_nothing():
    graded = _graded(notebook(COURSE, "ps3", {}))
    assert graded["points"] == 0
    assert "NotImplementedError" in graded["checks"][0]["problem"]


def test_an_edited_check_cell_changes_nothing(weak):
    raw = notebook(COURSE, "ps3", {"ex16": WEAK})
    cell_of(raw, "ex16-check")["source"] = "assert True\n6"
    assert _graded(raw)["points"] == weak


def test_a_deleted_check_cell_costs_nothing():
    raw = notebook(COURSE, "ps3", {"ex16": RIGHT})
    raw["cells"].remove(cell_of(raw, "ex16-check"))
    assert _graded(raw)["points"] == FULL


def test_an_endless_loop_costs_that_exercise_and_says_so():
    graded = _of_source("def bucket_for(sizes, batch):\n    while True:\n        pass\n")
    assert graded["points"] == 0
    assert "too slow in 6 of 6 checks: a case may take 2 s of CPU time" in graded["notes"]


def test_a_value_that_equals_everything_is_what_it_holds(weak):
    lying = "class Yes(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n\n"
    source = lying + "def bucket_for(sizes, batch):\n    return Yes(-1)\n"
    assert _of_source(source)["points"] <= 1  # "no dummy too many" holds of -1


@pytest.mark.parametrize(
    "trick",
    [
        "[os.fork() for _ in range(64)]",
        "print('x' * 10**7)",
        'print(\'{"points": 6, "passed": true}\')',
        "sys.stdout.write('6 passed')",
        "sys.modules['lab.exercises.judge'] = None",
        "sys._getframe(1).f_locals.update(value=4, expected=4)",
        "[setattr(o, 'passed', True) for o in gc.get_objects() if type(o).__name__ == 'CheckResult']",
        "sys.settrace(lambda *a: None)",
        "open('/proc/self/mem', 'rb').close()",
        "os.environ.update(STEPSCOPE_POINTS='6')",
    ],
)
def test_a_trick_before_a_weak_answer_gets_the_weak_answers_mark(weak, trick):
    imports = "import os, sys" if "gc." not in trick else "import gc"
    source = f"def bucket_for(sizes, batch):\n    try:\n        {imports}\n        {trick}\n    except Exception:\n"
    graded = _of_source(source + "        pass\n    return min(s for s in sizes if s >= batch)\n")
    assert graded["points"] == weak, graded["checks"]


def test_expected_values_are_nowhere_in_the_process(weak):
    source = """
import sys

def bucket_for(sizes, batch):
    names = ("expected", "answer", "wanted", "examples", "checks")
    frame = sys._getframe()
    while frame is not None:
        for name in names:
            if isinstance(frame.f_locals.get(name), (int, list)) and frame.f_code.co_name != "bucket_for":
                return frame.f_locals[name]
        frame = frame.f_back
    try:
        import gc

        for found in gc.get_objects():
            if isinstance(found, dict) and "answer" in found and "case" in found:
                return found["answer"]
    except ImportError:
        pass
    return min(s for s in sizes if s >= batch)
"""
    assert _of_source(source)["points"] == weak


def test_the_engines_own_function_is_refused_with_a_message():
    for source in (
        "from engine.inputs.padding import round_up_to_bucket\ndef bucket_for(sizes, batch):\n    return 1\n",
        "def bucket_for(sizes, batch):\n    import lab.exercises\n",
    ):
        graded = _of_source(source)
        assert graded["points"] == 0
        assert "holds the engine's own function" in graded["notes"][0]
    hidden = "def bucket_for(sizes, batch):\n    return __import__('engine.inputs.padding').inputs\n"
    assert "holds the engine's own function" in _of_source(hidden)["checks"][0]["problem"]


def test_a_right_answer_that_is_slow_gets_all_points_within_the_limit_and_a_message_beyond():
    def sleepy(turns):
        wait = f"    n = 0\n    while n < {turns}:\n        n += 1\n"
        return f"{RIGHT}\n_fast = bucket_for\ndef bucket_for(sizes, batch):\n{wait}    return _fast(sizes, batch)\n"

    assert _of_source(sleepy(20_000))["points"] == FULL
    graded = _of_source(sleepy(10**10))
    assert graded["points"] == 0
    assert "too slow in 6 of 6 checks" in graded["notes"][0]
    assert "used more than 2 s of CPU time on one case" in graded["checks"][0]["problem"]


def test_a_split_cell_is_put_together():
    helper = (
        "import bisect\n\ndef smallest(sizes, batch):\n    return min((s for s in sizes if s >= batch), default=None)\n"
    )
    zero = "None" if RULE == "a" else "smallest(sizes, 0)"
    main = f"def bucket_for(sizes, batch):\n    return smallest(sizes, batch) if batch else {zero}\n"
    raw = notebook(COURSE, "ps3", {"ex16": main})
    raw["cells"].insert(3, free_cell(helper))
    graded = _graded(raw)
    assert graded["points"] == FULL
    assert graded["notes"] == ["taken from other cells: smallest"]


def test_a_retyped_answer_counts_where_it_is_found():
    raw = notebook(COURSE, "ps3", {"ex16": RIGHT})
    raw["cells"].remove(cell_of(raw, "ex16-answer"))
    raw["cells"].append(free_cell(RIGHT))
    graded = _graded(raw)
    assert graded["points"] == FULL
    assert graded["notes"] == ["bucket_for was found in another cell (the answer cell is missing)"]


def test_a_duplicated_answer_cell_counts_once_the_last_time():
    raw = notebook(COURSE, "ps3", {"ex16": WEAK})
    raw["cells"].append({**cell_of(raw, "ex16-answer"), "source": RIGHT})
    graded = _graded(raw)
    assert graded["points"] == FULL
    assert graded["notes"] == ["there are 2 answer cells; the last one counts"]


def test_an_answer_cell_of_another_type_is_read_all_the_same():
    raw = notebook(COURSE, "ps3", {"ex16": RIGHT})
    cell_of(raw, "ex16-answer")["cell_type"] = "raw"
    graded = _graded(raw)
    assert graded["points"] == FULL
    assert graded["notes"] == ["the answer cell was turned into a raw cell; its text was taken as code"]


def test_a_trial_run_under_the_answer_harms_nobody():
    graded = _of_source(RIGHT + "\n%time bucket_for([1], 1)\nprint(bucket_for([4], 2))\n")
    assert graded["points"] == FULL


def test_no_answer_at_all_is_said():
    raw = notebook(COURSE, "ps3", {})
    raw["cells"].remove(cell_of(raw, "ex16-answer"))
    graded = _graded(raw)
    assert graded["points"] == 0
    assert graded["notes"] == ["there is no answer cell, and bucket_for is defined nowhere"]


def test_the_same_answer_gets_the_same_verdict_to_the_byte():
    assert _of_source(WEAK) == _of_source(WEAK)
