"""What an exercise is: its metadata, its worked examples and its properties.

A property is a strategy that draws cases and a check that says what is wrong with an answer, or None. Cases and answers
are plain JSON, so that an answer may come from another process and a counterexample may be shown, stored and shrunk. A
check states what must hold and never computes the answer: whoever reads it has not read a solution.

Does not: call a learner's function (``callers.py``), search for counterexamples (``judge.py``) or load
(``catalogue.py``).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Case = dict[str, Any]
ANY_RULE: Final = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One version of the one rule that differs from course to course; ``text`` stands in the learner's spec."""

    id: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A worked example. rule: the version that it belongs to, when the versions differ on it."""

    case: Case
    answer: Any
    rule: str = ANY_RULE


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """A question to be answered before any code is written: the answer to one case."""

    question: str
    case: Case


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One answer under examination. call: asks the same function about another case, and returns its plain answer."""

    case: Case
    got: Any
    rule: str
    call: Callable[[Case], Any]


CheckFunction = Callable[[Trial], str | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """What must hold for every case that the strategy draws. name: a few words that a learner reads."""

    name: str
    cases: Any  # a hypothesis strategy; this module stays free of hypothesis
    check: CheckFunction
    is_hidden: bool = False


class Checks:
    """The examples and properties of one exercise, filled by the decorators in its ``properties.py``."""

    def __init__(
        self,
        *,
        returns: object,
        examples: Sequence[Example],
        prediction: Prediction | None = None,
    ) -> None:
        """Begin without properties. returns: the shape of an answer, as ``shape.mismatch`` reads it."""
        self.returns = returns
        self.examples = tuple(examples)
        self.prediction = prediction
        self._properties: list[Property] = []

    @property
    def properties(self) -> tuple[Property, ...]:
        """Every property, in the order of the file."""
        return tuple(self._properties)

    def examples_for(self, rule: str) -> tuple[Example, ...]:
        """Return the worked examples that hold under this version of the rule."""
        return tuple(example for example in self.examples if example.rule in (ANY_RULE, rule))

    def visible(self, name: str, cases: object) -> Callable[[CheckFunction], CheckFunction]:
        """Add the decorated check as a property that learners may run."""
        return self._adder(name, cases, is_hidden=False)

    def hidden(self, name: str, cases: object) -> Callable[[CheckFunction], CheckFunction]:
        """Add the decorated check as a property that only grading runs; a release leaves it out, but for its name."""
        return self._adder(name, cases, is_hidden=True)

    def _adder(self, name: str, cases: object, *, is_hidden: bool) -> Callable[[CheckFunction], CheckFunction]:
        def add(check: CheckFunction) -> CheckFunction:
            self._properties.append(Property(name, cases, check, is_hidden))
            return check

        return add


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where an exercise belongs. walkthrough: its number. modelled_on: the public bug behind it, if one is."""

    article: str
    walkthrough: str
    modelled_on: str


@dataclasses.dataclass(frozen=True, slots=True)
class Meta:
    """What ``meta.toml`` says. entry: the function to write. points: one for each check. seconds: CPU time of one case.

    modules: what an answer may import. hidden: names of the hidden properties.
    """

    title: str
    title_zh: str
    entry: str
    points: int
    minutes: int
    seconds: float
    hidden: tuple[str, ...]
    hints: tuple[str, str, str]
    rules: tuple[Rule, ...]
    modules: tuple[str, ...]
    places: Places


@dataclasses.dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise, loaded. folder: ``exNN_name``. visible: stored cases and the marks of misconceptions."""

    id: str
    folder: Path
    meta: Meta
    checks: Checks
    visible: Mapping[str, Any]

    def rule(self, rule_id: str) -> Rule:
        """Return one version of the rule; the id must exist (``catalogue.rule_of`` checks what users write)."""
        return next(rule for rule in self.meta.rules if rule.id == rule_id)

    @property
    def starter(self) -> str:
        """The source that a learner begins with."""
        return (self.folder / "starter.py").read_text(encoding="utf-8")

    @property
    def world(self) -> str | None:
        """The source of the small world around the function, run beside it; None when it takes the case itself."""
        path = self.folder / "world.py"
        return path.read_text(encoding="utf-8") if path.is_file() else None

    @property
    def has_adapter(self) -> bool:
        """Whether an answer can be plugged into the engine."""
        return (self.folder / "adapter.py").is_file()

    @property
    def has_scene(self) -> bool:
        """Whether the engine's own steps on a case can be shown, where an answer has no place in it."""
        return (self.folder / "scene.py").is_file()

    def spec(self, rule_id: str) -> str:
        """Return the task in Markdown, with the version of the rule written out and where to read about it."""
        text = (self.folder / "spec.md").read_text(encoding="utf-8")
        return f"{text.replace('{rule}', self.rule(rule_id).text).rstrip()}\n\n{self._where()}\n"

    def _where(self) -> str:
        """Say where the subject is treated, and which public bug it is modelled on."""
        places = self.meta.places
        bug = f" Modelled on a public bug: {places.modelled_on}." if places.modelled_on else ""
        return f"*{self.meta.title_zh}. Walkthrough {places.walkthrough}; in the article: {places.article}.{bug}*"
