"""Make the notebooks of a problem set: for students, and as sources for nbgrader's own tools.

Each exercise is a task (locked), an answer cell and a check cell (locked); each set ends with an open question that a
person marks. The cells carry nbgrader's metadata (schema 3). The value of a check cell is the number of checks that
hold, which nbgrader takes for partial credit.

Does not: run a notebook, or write files.
"""

import ast
import hashlib
import textwrap
from typing import Any, Final

import nbformat

from lab.classroom.course import Course
from lab.exercises.catalogue import load, problem_set
from lab.exercises.exercise import Exercise

_SCHEMA: Final = 3
_BEGIN: Final = "### BEGIN SOLUTION"
_END: Final = "### END SOLUTION"


def student_notebook(course: Course, set_name: str, student: str = "") -> Any:
    """Return the notebook that students get. Raises: ExerciseError."""
    return _notebook(course, set_name, student, {})


def source_notebook(course: Course, set_name: str, solutions: dict[str, str], student: str = "") -> Any:
    """Return the notebook with solutions between nbgrader's marks, for its generate command. Raises: ExerciseError."""
    return _notebook(course, set_name, student, solutions)


def visible_points(exercise: Exercise) -> int:
    """Return the points of the checks that a student may run."""
    return exercise.meta.points - len(exercise.meta.hidden)


def _notebook(course: Course, set_name: str, student: str, solutions: dict[str, str]) -> Any:
    chosen = problem_set(set_name)
    names = course.exercises(set_name)
    cells = [_locked_text(f"{set_name}-title", f"# {set_name}: {chosen['title']}\n\n{_HOW.format(first=names[0])}")]
    for name in names:
        cells += _exercise(load(name), course.rule(name, student), solutions.get(name))
    cells += _open_question(set_name, chosen)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "stepscope": {"course": course.id, "set": set_name},
    }
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.validate(notebook)
    return notebook


_HOW: Final = (
    "Write each function in the cell under its task and run the cell, then the check below it. A check shows the "
    "worked examples, the smallest counterexample that was found and, where it is a known one, the wrong idea behind "
    'it; at the end it names the hidden checks that only grading runs. After a check, `hint("{first}")` in a cell of '
    'your own gives a hint, and `hint("{first}", 2)` and `hint("{first}", 3)` say more. An '
    "answer may import `bisect`, `collections`, `functools`, `heapq`, `itertools`, `math` and the like (and "
    "`numpy` where arrays come in), but not `engine` or `lab`."
)


def _exercise(exercise: Exercise, rule: str, solution: str | None) -> list[Any]:
    meta = exercise.meta
    title = f"## {exercise.id} {meta.title}\n\n*About {meta.minutes} minutes, {meta.points} points.*\n\n"
    cells = [_locked_text(f"{exercise.id}-task", title + exercise.spec(rule))]
    prediction = exercise.checks.prediction
    if prediction is not None:
        call = f'predict("{exercise.id}", ..., rule="{rule}")'
        ask = f"from lab.exercises import predict\n\n{call}  # replace the three dots by your answer"
        cells.append(_code(f"{exercise.id}-prediction", ask, grade=False, solution=False, locked=False))
    code = _starter_code(exercise) if solution is None else _with_solution(_starter_code(exercise), solution)
    check = (
        f"from lab.exercises import check, hint\n\n"
        f'{exercise.id} = check("{exercise.id}", {meta.entry}, rule="{rule}")\n'
        f"print({exercise.id})\n"
        f"{exercise.id}.points"
    )
    return [
        *cells,
        _code(f"{exercise.id}-answer", code, grade=False, solution=True),
        _code(f"{exercise.id}-check", check, grade=True, solution=False, points=visible_points(exercise)),
    ]


def _starter_code(exercise: Exercise) -> str:
    """Return the starter without its module docstring."""
    body = ast.parse(exercise.starter).body
    return "\n".join(exercise.starter.splitlines()[body[1].lineno - 1 :])


def _with_solution(starter: str, solution: str) -> str:
    """Put a solution's body where the starter raises, between nbgrader's marks, with its imports before it."""
    tree = ast.parse(solution)
    *imports, function = tree.body
    assert isinstance(function, ast.FunctionDef), "a solution is imports and one function"
    body = "\n".join(ast.unparse(statement) for statement in (*imports, *function.body))
    return starter.replace("    raise NotImplementedError", textwrap.indent(f"{_BEGIN}\n{body}\n{_END}", "    "))


def _open_question(set_name: str, chosen: dict[str, Any]) -> list[Any]:
    text = f"## An open question\n\n*{chosen['points']} points, marked by a person.*\n\n{chosen['question']}"
    answer = nbformat.v4.new_markdown_cell("*Your answer here.*", id=_cell_id(f"{set_name}-open"))
    answer.metadata["nbgrader"] = _marks(f"{set_name}-open", grade=True, solution=True, points=chosen["points"])
    return [_locked_text(f"{set_name}-question", text), answer]


def _locked_text(grade_id: str, text: str) -> Any:
    cell = nbformat.v4.new_markdown_cell(text.rstrip(), id=_cell_id(grade_id))
    cell.metadata["nbgrader"] = _marks(grade_id, grade=False, solution=False)
    return cell


def _code(grade_id: str, text: str, *, grade: bool, solution: bool, points: int = 0, locked: bool | None = None) -> Any:
    cell = nbformat.v4.new_code_cell(text.rstrip(), id=_cell_id(grade_id))
    marks = _marks(grade_id, grade=grade, solution=solution, points=points)
    cell.metadata["nbgrader"] = marks if locked is None else {**marks, "locked": locked}
    return cell


def _marks(grade_id: str, *, grade: bool, solution: bool, points: int = 0) -> dict[str, Any]:
    marks: dict[str, Any] = {
        "schema_version": _SCHEMA,
        "grade_id": grade_id,
        "grade": grade,
        "solution": solution,
        "locked": not solution,
        "task": False,
    }
    return {**marks, "points": points} if grade else marks


def _cell_id(grade_id: str) -> str:
    """Return a cell id that is the same in every release."""
    return hashlib.sha256(grade_id.encode()).hexdigest()[:12]
