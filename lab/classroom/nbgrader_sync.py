"""Write the marks into nbgrader's gradebook, through nbgrader's own API, for a class that uses its tools.

Each exercise becomes the automatic score of its check cell. Students, the assignment and cells that nbgrader does not
know yet are made. The open question stays for a person to mark in nbgrader's own pages.

Does not: run nbgrader's grading, or need nbgrader for anything else (the extra ``classroom``).
"""

import warnings
from typing import Any, Final

from engine.errors import ExerciseError
from lab.exercises.catalogue import problem_set

CHECK: Final = "-check"
_MISSING: Final = "sync-nbgrader needs nbgrader; in the checkout, `.venv/bin/pip install -e '.[classroom]'` brings it"


def sync(book: dict[str, Any], database: str) -> int:
    """Write every entry of a gradebook; return how many scores were written. database: an SQLAlchemy URL.

    Raises: ExerciseError when nbgrader is missing or refuses.
    """
    try:
        from nbgrader.api import Gradebook  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ExerciseError(_MISSING) from error
    try:
        with warnings.catch_warnings(), Gradebook(database) as gradebook:
            warnings.simplefilter("ignore")  # nbgrader's own, about the order in which it fills its session
            return sum(_entry(gradebook, one) for one in book["entries"])
    except Exception as error:
        message = f"nbgrader's gradebook {database} cannot be written: {type(error).__name__}: {error}"
        raise ExerciseError(message) from error


def _entry(gradebook: Any, one: dict[str, Any]) -> int:
    name, student = one["assignment"], one["student_id"]
    fields = {key: one[key] for key in ("first_name", "last_name", "email") if one[key]}
    gradebook.update_or_create_student(student, **fields)
    gradebook.update_or_create_assignment(name)
    gradebook.update_or_create_notebook(name, name)
    for graded in one["exercises"]:
        cell = f"{graded['exercise']}{CHECK}"
        gradebook.update_or_create_grade_cell(cell, name, name, max_score=graded["max_points"], cell_type="code")
    points = problem_set(name)["points"]
    gradebook.update_or_create_grade_cell(f"{name}-open", name, name, max_score=points, cell_type="markdown")
    gradebook.update_or_create_submission(name, student)
    _complete(gradebook, name, student)
    for graded in one["exercises"]:
        grade = gradebook.find_grade(f"{graded['exercise']}{CHECK}", name, name, student)
        grade.auto_score = float(graded["points"])
        grade.needs_manual_grade = False
    gradebook.db.commit()
    return len(one["exercises"])


def _complete(gradebook: Any, name: str, student: str) -> None:
    """Add what an existing submission lacks: a grade for a cell that was made after it."""
    from nbgrader.api import Grade  # pyright: ignore[reportMissingImports]

    notebook = gradebook.find_submission_notebook(name, name, student)
    have = {grade.cell.name for grade in notebook.grades}
    for cell in gradebook.find_notebook(name, name).grade_cells:
        if cell.name not in have:
            gradebook.db.add(Grade(cell=cell, notebook=notebook))
    gradebook.db.commit()
