"""The form of an answer."""

import pytest

from lab.exercises.shape import Pair, counted, mismatch, same


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (4, int),
        (None, (int, None)),
        ([1, 2], [int]),
        ([], [int]),
        ([[1, "a"]], [Pair((int, str))]),
        ({"tokens": [1]}, {"tokens": [int]}),
        (True, bool),
        (2, float),
    ],
)
def test_an_answer_of_the_right_form_has_no_mismatch(value, shape):
    assert mismatch(value, shape) is None


@pytest.mark.parametrize(
    ("value", "shape", "words"),
    [
        (4.0, int, "must be an integer, is 4.0 (float)"),
        (True, int, "must be an integer, is True (bool)"),
        ("8", (int, None), "must be an integer or None, is '8' (str)"),
        ([1, None], [int], "entry 1: must be an integer, is None (NoneType)"),
        ([[1]], [Pair((int, int))], "entry 0: must be a list of 2 entries, is [1] (list)"),
        ({"rows": 1}, {"tokens": int}, "must be a dictionary with the keys tokens, is {'rows': 1} (dict)"),
        ({"tokens": "x"}, {"tokens": int}, "'tokens': must be an integer, is 'x' (str)"),
        (3, [int], "must be a list (an integer each), is 3 (int)"),
    ],
)
def test_another_form_is_said_in_words(value, shape, words):
    assert mismatch(value, shape) == words


def test_true_is_not_one_and_order_of_keys_does_not_matter():
    assert not same(True, 1)
    assert same({"a": 1, "b": [2]}, {"b": [2], "a": 1})


def test_a_number_has_its_noun_in_the_right_form():
    assert [counted(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]
    assert [counted(n, "copy") for n in (1, 3)] == ["1 copy", "3 copies"]
