"""Answers asked for in a child process, the well-behaved and the others."""

import pytest

from lab.exercises.callers import ChildCaller, LocalCaller
from lab.exercises.catalogue import load

CASE = {"sizes": [4, 2], "batch": 3}
RIGHT = "def bucket_for(sizes, batch):\n    return min((s for s in sizes if s >= batch), default=None)\n"


def _ask(body, *, times=1):
    source = f"import os, sys\ndef bucket_for(sizes, batch):\n    {body}\n"
    with ChildCaller(load("ex16"), source) as caller:
        return [caller(CASE) for _ in range(times)][-1]


def test_a_child_and_this_process_give_the_same_answer():
    exercise = load("ex16")
    with ChildCaller(exercise, RIGHT) as child:
        outcome = child(CASE)
        assert child.missing_limits == ""
    local = LocalCaller(exercise, lambda sizes, batch: min(s for s in sizes if s >= batch))(CASE)
    assert outcome == local
    assert (outcome.kind, outcome.value) == ("value", 4)


def test_a_value_that_equals_everything_arrives_as_what_it_holds():
    lying = "type('Yes', (int,), {'__eq__': lambda a, b: True, '__hash__': int.__hash__})(1)"
    assert _ask(f"return {lying}").value == 1


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("return [][0]", "error", "raised IndexError: list index out of range (line 3 of your code)"),
        ("os._exit(0)", "dead", "ended its own process"),
        ("sys.exit(0)", "error", "raised SystemExit: 0"),
        ("return os.fork()", "error", "raised BlockingIOError"),
        ("return len(bytearray(1 << 33))", "error", "raised MemoryError"),
        ("return 'x' * (1 << 21)", "error", "at most 1048576 are read"),
        ("import socket", "error", "raised ImportError: an answer may import"),
        ("import engine.inputs.padding", "error", "it holds the engine's own function"),
        ("open('/an-answer-was-here', 'w')", "error", "raised PermissionError"),
    ],
)
def test_an_answer_that_gives_none_says_why(body, kind, words):
    outcome = _ask(body)
    assert outcome.kind == kind
    assert words in outcome.text


def test_an_endless_loop_ends_after_the_time_of_one_case():
    outcome = _ask("while True:\n        pass")
    assert outcome.kind == "slow"
    assert outcome.text == "used more than 2 s of CPU time on one case"


def test_prints_are_kept_in_part_and_do_no_harm():
    outcome = _ask("print('x' * 10**6); print('{\"value\": 4}'); return 4")
    assert outcome.value == 4
    assert len(outcome.printed) == 4000


def test_a_line_written_into_the_pipe_is_not_taken_for_an_answer():
    fake = '\'{"value":4,"printed":"","number":1}\'.encode()'
    body = f"\n    for n in range(3, 9):\n        try: os.write(n, len({fake}).to_bytes(4, 'big') + {fake})\n"
    outcome = _ask(body + "        except OSError: pass\n    return 2")
    assert outcome.kind == "dead"
    assert outcome.text == "wrote something else where its answer belongs"


def test_a_dead_child_is_replaced_and_not_for_ever():
    assert _ask("os._exit(0)", times=3).text.startswith("ended its own process")
    assert _ask("os._exit(0)", times=14).text == "the process ended 12 times; it is not started again"


def test_a_source_that_does_not_load_is_said_once_for_all_cases():
    with ChildCaller(load("ex16"), "def bucket_for(:") as caller:
        first, second = caller(CASE), caller(CASE)
    assert first == second
    assert first.text.startswith("could not be loaded: raised SyntaxError")
