import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import fields
from engine.errors import ConfigError, ModelError


class Unprintable:
    def __repr__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "'text'"),
        ((1, 2), "(1, 2)"),
        ({"b": 1, "a": [2]}, "{'a': [2], 'b': 1}"),
        (np.array([[1, 2], [3, 4]]), "array([[1, 2],        [3, 4]])"),
        ("x" * 1000, f"'{'x' * 37}...{'x' * 38}'"),
        (b"x" * 1000, f"b'{'x' * 36}...{'x' * 38}'"),
        (range(10**30), "range(0, 1000000000000000000000000000000)"),
    ],
)
def test_a_value_is_quoted_in_one_line(value, text):
    assert fields.shown(value) == text


def test_what_is_too_long_or_has_no_repr_is_still_quoted_in_eighty_characters():
    assert fields.shown(10**5000) == "an integer of 16610 bits"
    assert fields.shown([1] * 10**6) == f"[{'1, ' * 24}...]"
    assert fields.shown(Unprintable()).startswith("<Unprintable instance at ")
    assert "Unprintable" in fields.shown([Unprintable()])


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=30))
def test_short_values_are_quoted_whole_and_long_ones_cut(value):
    text = fields.shown(value)
    assert len(text) <= fields.MAX_SHOWN
    if len(repr(value)) <= 30:
        assert text == repr(value)


def test_the_words_of_another_library_keep_to_one_line():
    assert fields.cut(ValueError("a\n  b")) == "a b"
    assert len(fields.cut("x" * 999)) == 240
    assert fields.cut("abcdefgh", most=6) == "abc..."


def refusal(take, *arguments, **options):
    with pytest.raises(ModelError) as caught:
        take("f.json: key", *arguments, refusal=ModelError, **options)
    return str(caught.value)


def test_each_kind_of_value_is_refused_in_the_same_wording():
    assert refusal(fields.integer, "x", low=1) == "f.json: key must be an integer of at least 1, got 'x'"
    assert refusal(fields.integer, 7, low=1, high=5) == "f.json: key must be an integer from 1 to 5, got 7"
    assert refusal(fields.integer, 7, low=1, at_most=5) == "f.json: key must be at most 5, got 7"
    assert refusal(fields.integer, 3.0, low=1) == "f.json: key must be an integer of at least 1, got 3.0; use 3"
    assert refusal(fields.integer, 0, low=1, hint="leave it out").endswith("at least 1, got 0; leave it out")
    assert refusal(fields.number, "1", 0.0) == "f.json: key must be a finite number in [0, inf), got '1'"
    assert refusal(fields.number, 0, 0.0, 1.0, low_open=True).endswith("must be a finite number in (0, 1], got 0")
    assert refusal(fields.flag, "true") == "f.json: key must be True or False, got 'true'"
    assert refusal(fields.choice, 3, ("a", None)) == "f.json: key must be one of 'a', None, got 3"
    assert refusal(fields.choice, "A", ("a", None)) == "f.json: key must be one of 'a', None, got 'A'; use 'a'"
    assert refusal(fields.choice, "None", ("a", None)).endswith("got 'None'; use None")
    assert refusal(fields.items, "ab", "words") == "f.json: key must be a sequence of words, got 'ab'"


@pytest.mark.parametrize(
    ("value", "limits", "end"),
    [
        ("7", {}, "got '7'; use 7"),
        ("0", {}, "got '0'"),
        ("7", {"high": 5}, "got '7'"),
        ("7", {"at_most": 5}, "got '7'"),
        (7.0, {"at_most": 5}, "got 7.0"),
        ("\u0663", {}, "got '\u0663'"),
        ("9" * 30, {}, f"got '{'9' * 30}'"),
        ("-7", {"hint": "leave it out"}, "got '-7'; leave it out"),
    ],
)
def test_a_text_that_spells_an_integer_is_refused_with_the_integer_if_that_would_be_taken(value, limits, end):
    assert refusal(fields.integer, value, low=1, **limits).endswith(end)


def test_an_endless_iterator_is_refused_after_the_limit():
    with pytest.raises(ConfigError, match=r"must be at most 65536 ids, got count\(65537\)"):
        fields.items("ids", itertools.count(), "ids", refusal=ConfigError)


def test_a_sequence_that_fails_while_it_is_read_is_refused():
    class Broken:
        def __iter__(self):
            raise ZeroDivisionError

        def __repr__(self):
            return "Broken()"

    assert refusal(fields.items, Broken(), "words") == "f.json: key must be a sequence of words, got Broken()"
    halfway = (1 // (2 - at) for at in range(4))
    assert "must be a sequence of words, got <generator" in refusal(fields.items, halfway, "words")


def test_what_fits_comes_back_plain():
    assert type(fields.integer("n", np.int64(5), refusal=ConfigError, low=0)) is int
    assert type(fields.number("n", np.float32(0.5), 0.0, refusal=ConfigError)) is float
    assert fields.items("n", range(3), "integers", refusal=ConfigError) == (0, 1, 2)


def test_sizes_are_said_in_the_unit_that_suits_them():
    assert [fields.bytes_in_words(n) for n in (5, 1 << 20, 3 << 29)] == ["5 bytes", "1.0 MiB", "1.5 GiB"]
