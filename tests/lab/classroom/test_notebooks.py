"""The notebooks of a problem set."""

import pytest

from lab.classroom.notebooks import source_notebook, student_notebook, visible_points
from lab.exercises.catalogue import load, problem_sets
from tests.exercises.classes import course

COURSE = course("ada", "bo")


@pytest.mark.parametrize("set_name", list(problem_sets()))
def test_every_exercise_has_a_task_an_answer_cell_and_a_check(set_name):
    cells = student_notebook(COURSE, set_name).cells
    marks = {cell.metadata["nbgrader"]["grade_id"]: cell for cell in cells}
    assert len(marks) == len(cells)
    for name in COURSE.exercises(set_name):
        meta = load(name).meta
        assert load(name).rule(COURSE.rule(name)).text in marks[f"{name}-task"].source
        answer, check = marks[f"{name}-answer"], marks[f"{name}-check"]
        assert answer.source.startswith(f"def {meta.entry}(") or "import" in answer.source
        assert "raise NotImplementedError" in answer.source
        assert answer.metadata["nbgrader"]["solution"]
        assert check.metadata["nbgrader"]["points"] == visible_points(load(name))
        assert check.metadata["nbgrader"]["locked"]
        assert f'rule="{COURSE.rule(name)}"' in check.source
    assert marks[f"{set_name}-open"].metadata["nbgrader"]["points"] == problem_sets()[set_name]["points"]


def test_the_same_release_is_the_same_notebook():
    assert student_notebook(COURSE, "ps3") == student_notebook(COURSE, "ps3")


def test_students_get_rules_of_their_own_where_the_course_says_so():
    own = course("ada", "bo", per_student=True)
    texts = [str([cell.source for cell in student_notebook(own, "ps4", name).cells]) for name in ("ada", "bo")]
    assert texts[0] != texts[1]


def test_a_source_notebook_has_solutions_between_nbgraders_marks():
    cells = source_notebook(COURSE, "ps3", {"ex16": "def bucket_for(sizes, batch):\n    return 1"}).cells
    answer = next(cell for cell in cells if cell.metadata["nbgrader"]["grade_id"] == "ex16-answer")
    assert answer.source.startswith("def bucket_for(sizes: list[int], batch: int) -> int | None:\n")
    assert answer.source.endswith("    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION")


@pytest.mark.parametrize("set_name", list(problem_sets()))
def test_the_page_above_the_tasks_names_a_hint_of_this_set(set_name):
    title = student_notebook(COURSE, set_name).cells[0].source
    first = COURSE.exercises(set_name)[0]
    assert f'`hint("{first}")` in a cell of your own' in title
    assert title.count("hint(") == title.count(f'hint("{first}"') == 3
