"""The course file."""

import pytest

from engine.errors import ExerciseError
from lab.classroom.course import read_course, read_seed
from lab.exercises.catalogue import exercise_names

GOOD = """
[course]
id = "serving"
seed = "autumn"
[[students]]
id = "ada"
email = "ada@example.org"
[[students]]
id = "bo.2"
[due]
ps1 = 2026-12-14
ps3 = "2026-12-21"
"""


def _course(tmp_path, text):
    path = tmp_path / "course.toml"
    path.write_text(text, encoding="utf-8")
    return read_course(path)


def test_a_course_file_becomes_a_course(tmp_path):
    course = _course(tmp_path, GOOD)
    assert (course.id, course.is_per_student, course.include_further) == ("serving", False, False)
    assert course.due == {"ps1": "2026-12-14", "ps3": "2026-12-21"}
    assert course.student("ada").email == "ada@example.org"
    assert course.student("unknown").id == "unknown"
    assert course.exercises("ps3") == ("ex16", "ex17", "ex18", "ex19")


def test_a_seed_chooses_the_rules_for_the_course_or_for_each_student(tmp_path):
    course = _course(tmp_path, GOOD)
    other = _course(tmp_path, GOOD.replace("autumn", "spring"))
    chosen = [course.rule(name) for name in exercise_names()]
    assert chosen == [course.rule(name, "ada") for name in exercise_names()]
    assert chosen != [other.rule(name) for name in exercise_names()]
    own = _course(tmp_path, GOOD.replace('seed = "autumn"', 'seed = "autumn"\nrules = "student"'))
    ada, bo = ([own.rule(name, who) for name in exercise_names()] for who in ("ada", "bo.2"))
    assert ada != bo
    assert set(chosen) == set(ada) == {"a", "b"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('id = "serving"', "", "needs id = "),
        ('seed = "autumn"', "seed = 3", "needs seed = "),
        ('seed = "autumn"', 'seed = "x"\nrules = "each"', 'rules must be "course" or "student", got \'each\''),
        ('id = "ada"', 'id = "../ada"', "must consist of letters, digits"),
        ('id = "bo.2"', 'id = "ada"', "'ada' is listed twice"),
        ("ps1 = 2026-12-14", "ps9 = 2026-12-14", "names 'ps9'; there are ps1"),
        ("ps1 = 2026-12-14", 'ps1 = "soon"', "must be YYYY-MM-DD, got 'soon'"),
        ("[course]", "[course", "cannot read a course file"),
    ],
)
def test_what_is_wrong_with_a_course_file_is_said(tmp_path, old, new, words):
    with pytest.raises(ExerciseError, match=words.replace("(", r"\(")):
        _course(tmp_path, GOOD.replace(old, new, 1))


def test_a_seed_file_needs_a_seed_that_nobody_guesses(tmp_path):
    path = tmp_path / "seed.toml"
    path.write_text('seed = "long enough"', encoding="utf-8")
    assert read_seed(path) == "long enough"
    path.write_text('seed = "short"', encoding="utf-8")
    with pytest.raises(ExerciseError, match="at least 8 characters, got 'short'"):
        read_seed(path)
