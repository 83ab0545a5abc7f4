"""A walkthrough on the learner's own code: engines and sessions that decide as the learner's function does.

    own = on_own_code("ex16", bucket_for)
    LLM, Session = own.LLM, own.Session

under a walkthrough's imports, and every engine that its cells make from there on asks the function.
``walkthrough_with`` writes these lines, and the answer, into a copy of the walkthrough that belongs to the exercise.

Does not: replace anything in the engine or the lab: the two names are the notebook's own. An engine that a cell gives
other decisions (to break something on purpose) keeps those.
"""

import ast
import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import nbformat

from engine.decisions import Decisions
from engine.errors import ExerciseError
from engine.fields import shown
from lab.exercises.catalogue import ROOT, load, rule_of
from lab.exercises.exercise import Exercise
from lab.exercises.plugging import engine_module, plug

_SESSION: Final = "lab.session"
_PLACES: Final = (ROOT.parents[1] / "walkthroughs", Path("walkthroughs"), Path("stepscope/walkthroughs"))
_PACKAGES: Final = ("engine", "lab")


class OwnCode:
    """The engine's ``LLM`` and the lab's ``Session`` with a learner's function in place, and how often it was asked."""

    def __init__(self, name: str, function: Callable[..., Any], *, rule: str | None = None) -> None:
        """Plug the function in. Raises: ExerciseError when the exercise has no adapter, or PyTorch is missing."""
        self._entry = load(name).meta.entry
        self.num_calls = 0
        if not callable(function):
            message = (
                f"{name} runs on your {self._entry}, a function, got {shown(function)}; run the cell that defines it"
            )
            raise ExerciseError(message)

        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.num_calls += 1
            return function(*args, **kwargs)

        decisions = plug(name, counted, rule=rule)
        self.LLM: Any = functools.partial(engine_module().LLM, decisions=decisions)
        self.Session: Any = _session_class(decisions)

    def __str__(self) -> str:
        """Say how often the function was asked."""
        times = "once" if self.num_calls == 1 else f"{self.num_calls} times"
        return f"your {self._entry} was asked {times}"


def on_own_code(name: str, function: Callable[..., Any], *, rule: str | None = None) -> OwnCode:
    """Return ``LLM`` and ``Session`` that decide as the function does. Raises: ExerciseError."""
    return OwnCode(name, function, rule=rule)


def _session_class(decisions: Decisions) -> Any:
    llm_class: Any = engine_module().LLM
    session_class: Any = importlib.import_module(_SESSION).Session

    class OwnSession(session_class):
        """A session whose engine, where it makes one by name, decides as the learner's function does."""

        def __init__(self, model: Any, *, config: Any = None, **options: Any) -> None:
            if not isinstance(model, str):
                super().__init__(model, config=config, **options)
                return
            super().__init__(llm_class(model, config, decisions=decisions), **options)
            self._owns_llm = True  # closed with the session, as one that a session makes by itself

    return OwnSession


def walkthrough_path(exercise: Exercise) -> Path:
    """Return the notebook of the walkthrough that an exercise belongs to. Raises: ExerciseError."""
    number = exercise.meta.places.walkthrough
    for place in _PLACES:
        found = [path for path in sorted(place.glob(f"{number}_*.ipynb")) if not path.stem.endswith("_zh")]
        if found:
            return found[0]
    message = (
        f"walkthrough {number} is in none of {', '.join(map(str, _PLACES))}; call this in the folder of the "
        "checkout or of the released problem set"
    )
    raise ExerciseError(message)


def walkthrough_with(exercise: Exercise, source: str, *, rule: str | None = None) -> Any:
    """Return the exercise's walkthrough as a notebook whose engines run on an answer. Raises: ExerciseError."""
    if not exercise.has_adapter:
        plug(exercise.id, print)  # says why not
    notebook: Any = nbformat.read(walkthrough_path(exercise), as_version=4)
    chosen, entry = rule_of(exercise, rule), exercise.meta.entry
    title = (
        f"**This copy runs on your own code.** Every engine that the cells below make asks your `{entry}`, but for "
        "those which a cell gives other decisions on purpose. The last line says how often it was asked."
    )
    lines = (
        "from lab.exercises import on_own_code\n\n"
        f'own = on_own_code("{exercise.id}", {entry}, rule="{chosen}")\n'
        "LLM, Session = own.LLM, own.Session"
    )
    cells: list[Any] = []
    rest = list(notebook.cells)
    at = next(number for number, cell in enumerate(rest) if cell.cell_type == "code" and _imports_engine(cell.source))
    imports, others = _split(rest[at].source)
    cells += [*rest[:at], nbformat.v4.new_code_cell(imports), nbformat.v4.new_markdown_cell(title)]
    cells += [nbformat.v4.new_code_cell(source.strip()), nbformat.v4.new_code_cell(lines)]
    cells += [nbformat.v4.new_code_cell(others)] if others else []
    notebook.cells = [*cells, *rest[at + 1 :], nbformat.v4.new_code_cell("print(own)")]
    for number, cell in enumerate(notebook.cells):
        cell.id = f"own-{number:02d}"
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata.pop("stepscope", None)
    return notebook


def _imports_engine(source: str) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in _PACKAGES
        for node in ast.parse(source).body
    )


def _split(source: str) -> tuple[str, str]:
    """Return a cell's lines up to its last import, and those after it."""
    last = max(node.end_lineno or 0 for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom))
    lines = source.splitlines()
    return "\n".join(lines[:last]), "\n".join(lines[last:]).strip()
