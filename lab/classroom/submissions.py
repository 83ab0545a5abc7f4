"""Find the answers in a submitted notebook: by cell id first, by the function's name where cells were lost or changed.

Students delete, split, duplicate and retype cells. What can be read is read, and each oddity becomes a note in the
report. The notebook is never run as a whole.

Does not: run an answer, or change a notebook.
"""

import ast
import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from engine.errors import ExerciseError
from lab.exercises.catalogue import load

ANSWER: Final = "-answer"
_MOST_BYTES: Final = 20 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The source of one answer. source is empty where none was found. notes: what was odd."""

    source: str
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Cell:
    kind: str
    grade_id: str
    text: str


def read_notebook(text: str, exercises: Sequence[str]) -> dict[str, Answer]:
    """Return each exercise's answer. Raises: ExerciseError for a text that is no notebook."""
    cells = _cells(text)
    return {name: _answer(cells, name) for name in exercises}


def rule_named(text: str, exercise: str) -> str | None:
    """Return the version of the rule that a notebook's check cell names, or None where there is no such cell."""
    call = re.compile(rf"""check\(\s*["']{exercise}["'][^)]*rule\s*=\s*["'](\w+)["']""")
    found = [call.search(cell.text) for cell in _cells(text) if cell.kind == "code"]
    return next((match[1] for match in found if match), None)


def read_submission(paths: Sequence[Path], exercises: Sequence[str]) -> dict[str, Answer]:
    """Return each exercise's answer from one student's notebooks; the first that has one counts."""
    found: dict[str, Answer] = {}
    problems: list[str] = []
    for path in paths:
        try:
            if path.stat().st_size > _MOST_BYTES:
                problems.append(f"{path.name} is larger than {_MOST_BYTES >> 20} MB and was not read")
                continue
            answers = read_notebook(path.read_text(encoding="utf-8"), exercises)
        except (OSError, UnicodeDecodeError, ExerciseError) as error:
            problems.append(f"{path.name} cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        for name, answer in answers.items():
            if answer.source and name not in found:
                found[name] = answer
    nothing = Answer("", tuple(problems) or ("no answer cell was found",))
    return {name: found.get(name, nothing) for name in exercises}


def _cells(text: str) -> list[_Cell]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"this is no notebook: {error}"
        raise ExerciseError(message) from error
    found = raw.get("cells") if isinstance(raw, dict) else None
    if not isinstance(found, list):
        message = "this is no notebook: it has no list of cells"
        raise ExerciseError(message)
    return [_cell(one) for one in cast("list[Any]", found) if isinstance(one, dict)]


def _cell(raw: dict[str, Any]) -> _Cell:
    source: Any = raw.get("source", "")
    text = "".join(map(str, cast("list[Any]", source))) if isinstance(source, list) else str(source)
    metadata: Any = raw.get("metadata")
    marks: Any = cast("dict[str, Any]", metadata).get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = str(cast("dict[str, Any]", marks).get("grade_id", "")) if isinstance(marks, dict) else ""
    return _Cell(str(raw.get("cell_type", "")), grade_id, _without_magics(text))


def _without_magics(text: str) -> str:
    return "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in text.splitlines())


def _defines(cell: _Cell, name: str) -> bool:
    """Whether a cell gives the name a function: by def, or by assigning (a lambda, another function)."""
    for node in _statements(cell.text):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return True
        if isinstance(node, ast.Assign) and name in [t.id for t in node.targets if isinstance(t, ast.Name)]:
            return True
    return False


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError):
        return []


def _answer(cells: list[_Cell], exercise: str) -> Answer:
    entry = load(exercise).meta.entry
    named = [cell for cell in cells if cell.grade_id == exercise + ANSWER]
    own = [cell for cell in named if _defines(cell, entry)]
    free = [cell for cell in cells if not cell.grade_id and cell.kind == "code"]
    notes: list[str] = []
    if len(own) > 1:
        notes.append(f"there are {len(own)} answer cells; the last one counts")
    chosen = own[-1] if own else None
    if chosen is None:
        elsewhere = [cell for cell in free if _defines(cell, entry)]
        broken = [cell for cell in named if cell.text.strip() and not _statements(cell.text)]
        if elsewhere:
            chosen = elsewhere[-1]
            where = "the answer cell does not define it" if named else "the answer cell is missing"
            notes.append(f"{entry} was found in another cell ({where})")
        elif broken:
            return Answer(broken[-1].text, ("the answer cell is no Python",))
        elif named:
            return Answer(named[-1].text, (f"the answer cell does not define {entry}",))
        else:
            return Answer("", (f"there is no answer cell, and {entry} is defined nowhere",))
    if chosen.kind != "code":
        notes.append(f"the answer cell was turned into a {chosen.kind} cell; its text was taken as code")
    parts = [chosen, *(cell for cell in named if cell is not chosen and cell not in own)]
    source = "\n\n".join(cell.text for cell in parts[1:] + parts[:1] if cell.text.strip())
    lent = _lent(source, [cell for cell in free if cell is not chosen])
    if lent:
        notes.append(f"taken from other cells: {', '.join(lent)}")
    return Answer("\n\n".join([*lent.values(), source]), tuple(notes))


def _lent(source: str, cells: list[_Cell]) -> dict[str, str]:
    """Return definitions of other cells that the source needs, by name, in the order of the notebook."""
    offered: dict[str, str] = {}
    for cell in cells:
        for node in _statements(cell.text):
            for name in _bound(node):
                offered[name] = _segment(cell.text, node)
    wanted: set[str] = set()
    missing = _used(source) - _all_bound(source)
    while missing:
        new = {name for name in missing if name in offered} - wanted
        wanted |= new
        missing = {found for name in new for found in _used(offered[name])} - wanted - _all_bound(source)
        if not new:
            break
    taken = {name: text for name, text in offered.items() if name in wanted}
    unique = dict.fromkeys(taken.values())
    return {next(name for name in taken if taken[name] == text): text for text in unique}


def _segment(text: str, node: ast.stmt) -> str:
    """Return a statement's lines, its decorators too."""
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
    first = min([node.lineno, *(one.lineno for one in decorators)])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
    if isinstance(node, ast.Assign) and _is_constant(node.value):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def _is_constant(node: ast.expr) -> bool:
    return not any(isinstance(part, ast.Call | ast.Await | ast.Yield) for part in ast.walk(node))


def _used(source: str) -> set[str]:
    return {
        node.id
        for statement in _statements(source)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _all_bound(source: str) -> set[str]:
    return {name for statement in _statements(source) for name in _bound(statement)}
