"""The four functions of a notebook's cells."""

import pytest

from engine.errors import ExerciseError
from lab.exercises import check, exercise_names, hint, predict, spec


def test_a_cell_checks_a_function():
    assert check("ex16", lambda sizes, batch: min((s for s in sizes if s >= batch), default=None), rule="b").passed


def test_texts_show_without_quotes():
    assert repr(predict("ex16", 8)).endswith("8: that is right.")
    assert repr(hint("ex16", 3)).startswith("ex16, hint 3 of 3: ")
    assert repr(spec("ex16", rule="b")).startswith("# ex16 Choose the bucket\n\n")


def test_a_fourth_hint_is_refused():
    with pytest.raises(ExerciseError, match="hints have the levels 1, 2 and 3, got 4"):
        hint("ex16", 4)


def test_the_package_names_what_it_offers():
    import lab.exercises

    assert "ex16" in exercise_names()
    assert "check" in dir(lab.exercises)
    with pytest.raises(AttributeError, match="it offers check"):
        _ = lab.exercises.solution
