"""What must hold for ``upload``. Does not: copy anything."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import Pair, counted

_TWO = [{"tokens": [5, 6], "positions": [0, 1]}, {"tokens": [7], "positions": [9]}]

checks = Checks(
    returns={"buffers": [Pair((str, [int]))], "copies": [str]},
    examples=(
        Example(
            {"requests": _TWO},
            {"buffers": [["positions", [0, 1, 9]], ["tokens", [5, 6, 7]]], "copies": ["positions", "tokens"]},
            rule="a",
        ),
        Example({"requests": _TWO}, {"buffers": [["packed", [5, 6, 7, 0, 1, 9]]], "copies": ["packed"]}, rule="b"),
        Example({"requests": []}, {"buffers": [], "copies": []}),
    ),
)


def _requests(*, least: int = 1, most: int = 6, rows: int = 1) -> st.SearchStrategy[Case]:
    one = st.lists(st.tuples(st.integers(1, 99), st.integers(0, 50)), min_size=rows, max_size=4).map(
        lambda pairs: {"tokens": [token for token, _ in pairs], "positions": [at for _, at in pairs]}
    )
    return st.fixed_dictionaries({"requests": st.lists(one, min_size=least, max_size=most)})


def _held(t: Trial, name: str) -> list[int]:
    return next((values for found, values in t.got["buffers"] if found == name), [])


def _all(case: Case, name: str) -> list[int]:
    return [value for one in case["requests"] for value in one[name]]


def _contents(t: Trial) -> str | None:
    tokens, positions = _all(t.case, "tokens"), _all(t.case, "positions")
    wanted: dict[str, list[int]] = {"tokens": tokens, "positions": positions}
    if t.rule == "b":
        wanted = {"packed": tokens + positions}
    for name, values in wanted.items():
        if _held(t, name) != values:
            return f"the buffer {name!r} holds {_held(t, name)}, wanted are {values}"
    others: list[Any] = [name for name, _ in t.got["buffers"] if name not in wanted]
    return f"there is no buffer {others[0]!r}" if others else None


def _count(t: Trial) -> str | None:
    most = 2 if t.rule == "a" else 1
    if len(t.got["copies"]) <= most:
        return None
    return f"{counted(len(t.got['copies']), 'copy')} for {counted(len(t.case['requests']), 'request')}, at most {most}"


@checks.visible("the device holds every request's rows", _requests())
def arrives(t: Trial) -> str | None:
    """Require the contents."""
    return _contents(t)


@checks.visible("one copy a buffer", _requests(least=2))
def is_one_trip(t: Trial) -> str | None:
    """Require the number of copies that the rule allows."""
    return _count(t)


@checks.visible("requests without rows", _requests(rows=0))
def takes_empty(t: Trial) -> str | None:
    """Require contents and count where some requests bring nothing."""
    return _contents(t) or _count(t)


@st.composite
def _many(draw: st.DrawFn) -> Case:
    """Draw three numbers and build many requests of them: drawing each token would take longer than checking them."""
    count, first, rows = draw(st.integers(40, 64)), draw(st.integers(1, 50)), draw(st.integers(1, 4))
    lengths = [1 + (at + first) % rows for at in range(count)]
    return {
        "requests": [
            {
                "tokens": [(first + 7 * at + k) % 99 + 1 for k in range(n)],
                "positions": [(at + k) % 51 for k in range(n)],
            }
            for at, n in enumerate(lengths)
        ]
    }


@checks.hidden("sixty requests", _many())
def scales(t: Trial) -> str | None:
    """Require the same of many requests."""
    return _count(t) or _contents(t)


@st.composite
def _without_rows(draw: st.DrawFn) -> Case:
    empty: dict[str, list[int]] = {"tokens": [], "positions": []}
    return {"requests": [empty] * draw(st.integers(0, 3))}


@checks.hidden("nothing to copy", _without_rows())
def copies_nothing(t: Trial) -> str | None:
    """Require no copy at all."""
    return "there is nothing to copy, and a copy was made" if t.got["copies"] else None
