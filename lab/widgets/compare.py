"""compare: two recorded runs as one value: whether they are the same, where they part, and the rows that differ.

``compare(a, b)`` finds, ``show_both`` puts the two steppers under each other: a step in one is the same step in the
other, differing rows are marked (✗), and above them stands the first difference and a list of all.

Does not: run anything, decide what counts as a difference (``lab/diff.py`` does), or import torch.
Source: two runs that part are found by their first difference; what comes after follows from it.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any, Final, cast

from engine.errors import ConfigError
from engine.fields import shown
from lab.diff import Difference, Side, aligned, differences, differing_rows
from lab.trace import RowMark, Trace
from lab.widgets.compare_words import MISSING_TEXT, OTHER_TEXT
from lab.widgets.strings import told

Said = tuple[str, dict[str, Any]]
MAX_MARKED_STEPS: Final = 1000  # of a run: where everything differs, marks say nothing more
MAX_CHANGED: Final = 6


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """What two runs have in common and where they part. ``first`` is None when they are the same.

    differences: every step that differs. changed: (field, left, right) of the configurations. left, right: the two
    traces with their differing rows marked, in the first MAX_MARKED_STEPS steps that differ.
    """

    left: Trace
    right: Trace
    differences: tuple[Difference, ...]
    changed: tuple[tuple[str, str, str], ...]
    sides: tuple[Side, Side]

    @property
    def first(self) -> Difference | None:
        """The first step that differs."""
        return self.differences[0] if self.differences else None

    @property
    def is_same(self) -> bool:
        """Whether no step differs."""
        return not self.differences

    @property
    def say(self) -> list[Said]:
        """What is said of the two, as (id, arguments)."""
        said: list[Said] = []
        names = (self.left.header.model.name, self.right.header.model.name)
        if names[0] != names[1]:  # before anything else, since everything else may follow from it
            said.append(("diff.model", {"left": names[0], "right": names[1]}))
        first = self.first
        if first is None:
            said.append(("diff.same", {"n": len(self.left)}))
        else:
            what = (f"diff.{first.aspect}", {})
            arguments = {"step": first.at, "what": what, "left": first.left, "right": first.right}
            said.append(("diff.first", arguments))
            said.append(("diff.count", {"n": len(self.differences)}))
        if self.changed:
            fields = ", ".join(f"{name} {a} → {b}" for name, a, b in self.changed[:MAX_CHANGED])
            more = len(self.changed) - MAX_CHANGED
            said.append(("diff.config", {"fields": fields + (f", + {more}" if more > 0 else "")}))
        return said

    def sentence(self, lang: str = "en") -> str:
        """Return it in words."""
        return told(self.say, lang)

    def __repr__(self) -> str:
        """Return the sentence, so that a cell that ends in ``compare(a, b)`` prints it."""
        return self.sentence()

    def beside(self, index: int, *, of_right: bool = False) -> int | None:
        """Return the index of the other run's step beside this one."""
        mine, other = self.sides[::-1] if of_right else self.sides
        return aligned(mine, other, index)


def compare(a: Trace, b: Trace) -> Comparison:
    """Compare two runs step by step, from their first arrivals on. Raises: ConfigError for what is no trace."""
    for one in (a, b):
        if not isinstance(cast("Any", one), Trace):
            message = f"compare takes two Traces, got {shown(type(one).__name__)}; a session has one as .trace"
            raise ConfigError(message)
    left, right = _side(a), _side(b)
    found = tuple(differences(left, right))
    marked = [one.indices for one in itertools.islice(found, MAX_MARKED_STEPS)]
    return Comparison(
        left=_marked(a, b, (left, right), marked),
        right=_marked(b, a, (right, left), [(there, here) for here, there in marked]),
        differences=found,
        changed=_changed(a.header.config, b.header.config),
        sides=(left, right),
    )


def pair(value: object) -> tuple[Trace, Trace]:
    """Return two traces out of what was passed as a pair of them. Raises: ConfigError."""
    if not isinstance(value, tuple | list) or len(cast("Any", value)) != 2:
        message = f"compare must be two traces, as in show(compare=(before, after)), got {shown(value)}"
        raise ConfigError(message)
    a, b = cast("tuple[Any, Any]", value)
    return (getattr(a, "trace", a), getattr(b, "trace", b))


def _side(trace: Trace) -> Side:
    requests = sorted(trace.header.requests, key=lambda request: (request.arrival_step, request.request_id))
    first = trace.steps[0].step if len(trace.steps) else 0
    start = min([request.arrival_step for request in requests], default=first)
    return Side(trace.steps, start, {request.request_id: f"r{at}" for at, request in enumerate(requests)})


def _marked(trace: Trace, other: Trace, sides: tuple[Side, Side], places: list[tuple[int | None, int | None]]) -> Trace:
    """Return the trace with a mark on each row that the other run does not have, or has with another token."""
    marks: list[RowMark] = []
    for here, there in places:
        if here is None or there is None:
            continue
        for row, token in differing_rows(sides[0], here, sides[1], there):
            text = MISSING_TEXT if token is None else OTHER_TEXT.format(token=_token(other, token))
            marks.append(RowMark(trace.steps[here].step, row, text))
    return Trace(trace.header, trace.steps, tuple(marks))


def _token(trace: Trace, token: int) -> str:
    piece = trace.header.pieces.get(token)
    return str(token) if piece is None else f"{token} “{piece}”"


def _changed(a: Mapping[str, Any], b: Mapping[str, Any], prefix: str = "") -> tuple[tuple[str, str, str], ...]:
    """List the fields of two configurations that differ, in the first one's order."""
    found: list[tuple[str, str, str]] = []
    for name in [*a, *(name for name in b if name not in a)]:
        left, right = a.get(name), b.get(name)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += _changed(cast("Any", left), cast("Any", right), f"{prefix}{name}.")
        elif _plain(left) != _plain(right):
            found.append((prefix + name, str(_plain(left)), str(_plain(right))))
    return tuple(found)


def _plain(value: Any) -> Any:
    """Return a list of a file as the tuple that it was in the process that recorded it."""
    return tuple(value) if isinstance(value, list) else value
