"""The answers that no learner gets: solutions, wrong solutions and right ones of other shapes, read from their files.

Every public function of ``wrong.py`` is one misconception: its name is the id, its docstring what such a function
does, to follow "your function". Every public function of ``right.py`` is right. All read the global RULE where the
versions of the rule differ.

Does not: judge.
"""

import ast
import dataclasses
from pathlib import Path

from lab.exercises.catalogue import exercise_names, load
from lab.exercises.exercise import Exercise

HERE = Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Answer:
    """One function of a file. source: the whole file, in which it is found by its name."""

    name: str
    text: str
    source: str

    def as_submission(self, entry: str, rule: str) -> str:
        """Return a learner's source: the function under the name that the exercise asks for."""
        return f"RULE = {rule!r}\n{self.source}\n\n{entry} = {self.name}\n"


def answers(exercise: Exercise, kind: str) -> list[Answer]:
    """Return the functions of solution.py, wrong.py or right.py, in the order of the file."""
    source = (HERE / exercise.folder.name / f"{kind}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [
        Answer(node.name, " ".join((ast.get_docstring(node) or "").split()), source)
        for node in functions
        if not node.name.startswith("_")
    ]


def all_exercises() -> list[Exercise]:
    """Return every exercise."""
    return [load(name) for name in exercise_names()]
