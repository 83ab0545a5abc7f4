"""The leak gate: looks through a bundle for what students must not get, and names each find.

A file of answers; a function, anywhere in the bundle (a notebook's cell, the engine itself), that does what a solution
does; a hidden check; a seed; an output left in a notebook (but a walkthrough's, which is published with its outputs).

Does not: repair anything. A bundle with a find is not released.
"""

import ast
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from engine.errors import ExerciseError
from lab.classroom.syntax import TRIVIAL, fingerprint, for_rule, functions, hidden_functions, num_nodes, without_hidden
from lab.exercises.catalogue import ROOT, exercise_names, load

KINDS: Final = ("solution", "right", "wrong")
_WALKTHROUGHS: Final = "walkthroughs"
_ANSWER_FILES: Final = frozenset(f"{kind}.py" for kind in KINDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Leak:
    """One find. where: path inside the bundle and, for a function, its line."""

    where: str
    what: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.where}: {self.what}"


def answers_folder(given: str | Path | None = None) -> Path:
    """Return where the answers lie: as given, or in the checkout. Raises: ExerciseError when they are not there."""
    folder = Path(given) if given else ROOT.parents[1] / "tests" / "exercises"
    if not (folder / next(iter(exercise_names().values())) / "solution.py").is_file():
        message = f"the solutions are not in {folder}; release from a checkout, or name their folder with --answers"
        raise ExerciseError(message)
    return folder


def solution_for(folder: Path, exercise: str, rule: str) -> str:
    """Return an exercise's solution for one version of the rule."""
    source = (folder / load(exercise).folder.name / "solution.py").read_text(encoding="utf-8")
    tree = ast.parse(for_rule(source, rule))
    if ast.get_docstring(tree) is not None:
        del tree.body[0]
    return ast.unparse(tree)


def forbidden(folder: Path) -> dict[str, str]:
    """Return fingerprint -> what it is, of every answer under every rule and of every hidden check."""
    found: dict[str, str] = {}
    for name, place in exercise_names().items():
        exercise = load(name)
        for kind in KINDS:
            source = (folder / place / f"{kind}.py").read_text(encoding="utf-8")
            for text in (source, *(for_rule(source, rule.id) for rule in exercise.meta.rules)):
                for node in functions(text):
                    is_answer = kind == "solution" and node.name == exercise.meta.entry
                    if is_answer or num_nodes(node) >= TRIVIAL:
                        what = {"solution": "the solution", "right": "a right answer", "wrong": "a wrong answer"}[kind]
                        found.setdefault(fingerprint(node), f"{what} of {name} ({node.name})")
        properties = (ROOT / place / "properties.py").read_text(encoding="utf-8")
        shown = {fingerprint(node) for node in functions(without_hidden(properties))}
        for node in hidden_functions(properties):
            if num_nodes(node) >= TRIVIAL and fingerprint(node) not in shown:
                found.setdefault(fingerprint(node), f"a hidden check of {name} ({node.name})")
    return found


def leaks(bundle: Path, folder: Path, secrets: Mapping[str, str] | None = None) -> list[Leak]:
    """Look through a bundle. secrets: texts that may stand nowhere, by what they are."""
    marks = forbidden(folder)
    found: list[Leak] = []
    for path in sorted(one for one in bundle.rglob("*") if one.is_file()):
        where = path.relative_to(bundle).as_posix()
        if path.name in _ANSWER_FILES and path.parent.name.startswith("ex"):
            found.append(Leak(where, "a file of answers"))
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [Leak(where, what) for what, secret in (secrets or {}).items() if secret in text]
        for part, source in _sources(path, text):
            if part and source is None:
                if path.parent.name == _WALKTHROUGHS:
                    continue
                found.append(Leak(f"{where}, {part}", "an output"))
            else:
                found += _in_source(f"{where}, {part}" if part else where, source or "", marks)
    return found


def _in_source(where: str, source: str, marks: dict[str, str]) -> Iterator[Leak]:
    for node in functions(source):
        what = marks.get(fingerprint(node))
        if what is not None:
            yield Leak(f"{where}:{node.lineno}", f"{node.name} does what {what} does")


def _sources(path: Path, text: str) -> Iterator[tuple[str, str | None]]:
    """Yield (part, source) of a file; a notebook's outputs have no source."""
    if path.suffix == ".py":
        yield "", text
    elif path.suffix == ".ipynb":
        cells: list[Any] = json.loads(text)["cells"]
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                yield f"cell {number}", "".join(cell["source"])
                if cell["outputs"]:
                    yield f"cell {number}", None
