"""What the child does with one case, called in this process."""

import enum
import sys

import numpy as np
import pytest

from lab.exercises.child import Printed, answer_case, describe, direct, load_answer, plain


class Agreeable(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


def test_an_answer_becomes_plain():
    value = plain([Agreeable(3), (1, 2), np.int32(7), np.arange(2), {"a": enum.IntEnum("E", "one").one}])
    assert value == [3, [1, 2], 7, [0, 1], {"a": 1}]
    assert type(value[0]) is int


@pytest.mark.parametrize("value", [{1, 2}, object(), (n for n in range(2))])
def test_what_json_cannot_hold_is_refused_in_words(value):
    with pytest.raises(TypeError, match="return integers, strings, lists and dictionaries"):
        plain(value)


def test_a_huge_answer_is_refused():
    with pytest.raises(TypeError, match="at most 1048576 are read"):
        plain("x" * (1 << 21))


def test_an_outcome_is_a_value_an_error_or_slow_with_what_was_printed():
    value = answer_case(direct, lambda a: sys.stdout.write("hm") and a + 1, '{"a":1}', 1.0)
    assert value == {"value": 2, "printed": "hm"}
    error = answer_case(direct, lambda a: [][a], '{"a":1}', 1.0)
    assert error["kind"] == "IndexError"
    assert error["error"].startswith("IndexError: list index out of range")

    def hang(a):
        while True:
            try:
                while True:
                    a += 1
            except Exception:  # a learner's handler must not swallow the limit
                continue

    assert answer_case(direct, hang, '{"a":1}', 0.05) == {"slow": 0.05, "printed": ""}
    assert answer_case(direct, lambda a: sys.exit(), '{"a":1}', 1.0)["kind"] == "SystemExit"


def test_every_case_is_fresh():
    def greedy(a):
        a.append(1)
        return len(a)

    assert [answer_case(direct, greedy, '{"a":[]}', 1.0)["value"] for _ in range(2)] == [1, 1]


def test_only_the_beginning_of_prints_is_kept():
    printed = Printed()
    for _ in range(100):
        assert printed.write("x" * 100) == 100
    assert len(printed.getvalue()) == 4000


def test_a_source_without_the_function_is_refused_and_the_line_of_an_error_is_named():
    with pytest.raises(TypeError, match="there is no function named f"):
        load_answer("g = 1", "f")
    function = load_answer("def f(a):\n    return 1 // a\n", "f")
    with pytest.raises(ZeroDivisionError) as info:
        function(0)
    assert describe(info.value).endswith("(line 2 of your code)")
