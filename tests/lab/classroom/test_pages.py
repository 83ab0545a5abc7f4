"""Pages of a graded class."""

from lab.classroom.gradebook import entry
from lab.classroom.pages import (
    class_page,
    exercise_rows,
    misconception_figure,
    misconceptions,
    student_page,
    write_pages,
)
from tests.exercises.classes import course

COURSE = course("ada", "bo", "cy")


def _graded(points, idea=None, note=None):
    checks = [{"name": "one <b>", "kind": "visible", "passed": points > 0, "problem": None if points else "f(1) & co"}]
    checks.append({"name": "two", "kind": "hidden", "passed": points > 1, "problem": None if points > 1 else "f(2)"})
    return {
        "exercise": "ex16",
        "points": points,
        "max_points": 2,
        "checks": checks,
        "misconception": idea and {"id": idea, "text": f"does {idea}"},
        "notes": [note] if note else [],
    }


ENTRIES = [
    entry(COURSE, "ps3", "ada", [_graded(2)], ""),
    entry(COURSE, "ps3", "bo", [_graded(1, "rounds_down")], ""),
    entry(COURSE, "ps3", "cy", [_graded(0, "rounds_down", "the cell <was> split")], ""),
]


def test_wrong_ideas_are_counted_the_most_frequent_first():
    rows = misconceptions([*ENTRIES, entry(COURSE, "ps3", "di", [_graded(1, "always_up")], "")])
    assert [(row["wrong_idea"], row["students"]) for row in rows] == [("rounds down", 2), ("always up", 1)]


def test_the_figure_has_a_bar_for_each_wrong_idea_and_the_tables_numbers():
    rows = misconceptions([*ENTRIES, entry(COURSE, "ps3", "di", [_graded(1, "always_up")], "")])
    [bar] = misconception_figure(rows).data
    assert list(bar.y) == ["ex16 rounds down", "ex16 always up"]
    assert list(bar.x) == [2, 1]
    assert misconception_figure([]) is None


def test_the_class_page_says_that_the_chart_has_only_the_first_ideas():
    many = [entry(COURSE, "ps3", f"s{at}", [_graded(1, f"idea_{at:02d}")], "") for at in range(18)]
    assert "the chart has the first 16 of 18" in class_page("testing", many)
    assert "the chart has" not in class_page("testing", many[:16])


def test_an_exercise_row_names_the_check_that_most_fail():
    [row] = exercise_rows(ENTRIES)
    assert row["solved"] == "1 of 3"
    assert row["mean_points"] == "1.0 of 2"
    assert row["most_failed_check"] == "two (2)"


def test_the_class_page_has_a_figure_beside_its_table_and_loads_nothing():
    text = class_page("testing", ENTRIES)
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text
    assert "ex16 rounds down" in text
    assert "3 students. 2 wrong answers showed a wrong idea that has a name." in text
    assert "2 students. 1 wrong answer showed a wrong idea that has a name." in class_page("testing", ENTRIES[:2])
    assert "1 student. No wrong answer showed a wrong idea that has a name." in class_page("testing", ENTRIES[:1])


def test_a_students_page_has_every_check_and_escapes_what_students_wrote():
    text = student_page("testing", ENTRIES[2:])
    assert "Your function does rounds_down." in text
    assert "one &lt;b&gt;" in text
    assert "f(1) &amp; co" in text
    assert "the cell &lt;was&gt; split" in text
    assert "two (hidden)" in text
    assert "ex16 Choose the bucket (0 of 2 points)" in text
    assert "rounds_down" not in student_page("testing", ENTRIES[:1])


def test_all_pages_are_written(tmp_path):
    written = write_pages({"course": "testing", "entries": ENTRIES}, tmp_path)
    assert [path.name for path in written] == ["class.html", "ada.html", "bo.html", "cy.html"]
    assert all(path.stat().st_size > 500 for path in written)


def test_a_class_without_wrong_ideas_has_no_figure():
    assert "Plotly" not in class_page("testing", ENTRIES[:1])
