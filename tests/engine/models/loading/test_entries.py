from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.models.loading.entries import Entries, naming

GIVEN = Entries({"n": 3, "x": 0.5, "on": True, "t": "a", "in": {"k": 1}, "l": [1, 2], "o": [{"k": 1}], "null": None})


def test_values_that_fit_come_back():
    assert (GIVEN.integer("n"), GIVEN.number("x"), GIVEN.flag("on", default=False)) == (3, 0.5, True)
    assert (GIVEN.text("t"), GIVEN.inner("in").integer("k"), GIVEN.listed("l", "integer")) == ("a", 1, (1, 2))
    assert GIVEN.each("o", lambda entry: entry.integer("k")) == [1]
    assert GIVEN.inner("in").raw("k") == 1
    assert Entries({"a": "1", "b": "2"}).texts() == {"a": "1", "b": "2"}


def test_what_is_absent_or_null_takes_the_default():
    assert "null" not in GIVEN
    assert GIVEN.integer("null", 7) == 7
    assert GIVEN.listed("null", "text") == ()
    assert not GIVEN.inner("none").raw("k")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: GIVEN.integer("none"), r"^the key 'none' is missing$"),
        (lambda: GIVEN.inner("in").text("none"), r"^the key 'in\.none' is missing$"),
        (lambda: GIVEN.integer("n", low=4), r"^n must be an integer of at least 4, got 3$"),
        (lambda: GIVEN.integer("n", at_most=2), r"^n must be at most 2, got 3$"),
        (lambda: GIVEN.number("t"), r"^t must be a finite number in \(0, inf\), got 'a'$"),
        (lambda: GIVEN.flag("n", default=True), r"^n must be True or False, got 3$"),
        (lambda: GIVEN.text("n"), r"^n must be text, got 3$"),
        (lambda: GIVEN.inner("l"), r"^l must be an object, got \[1, 2\]$"),
        (lambda: GIVEN.inner("in").text("k"), r"^in\.k must be text, got 1$"),
        (lambda: GIVEN.listed("in", "text"), r"^in must be a list of texts, got \{'k': 1\}$"),
        (lambda: GIVEN.listed("l", "text"), r"^l\[0\] must be text, got 1$"),
        (lambda: GIVEN.listed("l", "integer", length=3), r"^l must hold 3 integers, got 2$"),
        (lambda: GIVEN.each("l", lambda entry: entry), r"^l\[0\] must be an object, got 1$"),
        (lambda: GIVEN.each("o", lambda entry: entry.text("k")), r"^o\[0\]\.k must be text, got 1$"),
        (lambda: GIVEN.refuse("n", "even", "try 4"), r"^n must be even, got 3; try 4$"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_whole_key(read, message: str):
    with pytest.raises(ModelError, match=message):
        read()


def test_the_file_is_named_in_front():
    with pytest.raises(ModelError, match=r"^folder/x\.json: n must be text, got 3$"), naming(Path("folder/x.json")):
        GIVEN.text("n")
