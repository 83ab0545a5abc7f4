"""What must hold for ``lay_out``. Does not: lay anything out."""

import itertools
from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import counted

_CASE = {
    "contexts": [{"id": 4, "chunk": [11, 12], "start": 6}],
    "verifies": [{"id": 2, "known": 5, "newest": 21, "drafts": [22, 23]}],
    "decodes": [{"id": 9, "known": 3, "newest": 31}, {"id": 7, "known": 8, "newest": 41}],
}

checks = Checks(
    returns={"tokens": [int], "positions": [int], "owners": [int], "lengths": [int]},
    examples=(
        Example(
            _CASE,
            {
                "tokens": [11, 12, 21, 22, 23, 31, 41],
                "positions": [6, 7, 4, 5, 6, 2, 7],
                "owners": [4, 4, 2, 2, 2, 9, 7],
                "lengths": [2, 3, 1, 1],
            },
            rule="a",
        ),
        Example(
            _CASE,
            {
                "tokens": [11, 12, 21, 22, 23, 41, 31],
                "positions": [6, 7, 4, 5, 6, 7, 2],
                "owners": [4, 4, 2, 2, 2, 7, 9],
                "lengths": [2, 3, 1, 1],
            },
            rule="b",
        ),
    ),
)

_tokens = st.integers(1, 99)


@st.composite
def _steps(draw: st.DrawFn, *, one_token: bool = False, least: int = 0) -> Case:
    counts = [draw(st.integers(least, 3)) for _ in range(3)]
    ids = draw(st.permutations(range(1, 1 + sum(counts))))
    numbers = iter(ids)
    chunks = st.lists(_tokens, min_size=1, max_size=1 if one_token else 4)
    known = st.integers(1, 30)
    return {
        "contexts": [
            {"id": next(numbers), "chunk": draw(chunks), "start": draw(st.integers(0, 20))} for _ in range(counts[0])
        ],
        "verifies": [
            {
                "id": next(numbers),
                "known": draw(known),
                "newest": draw(_tokens),
                "drafts": draw(st.lists(_tokens, max_size=3)),
            }
            for _ in range(counts[1])
        ],
        "decodes": [{"id": next(numbers), "known": draw(known), "newest": draw(_tokens)} for _ in range(counts[2])],
    }


def _rows_of(t: Trial, owner: int) -> list[tuple[int, int]]:
    """Read one request's (token, position) pairs back from the answer."""
    rows = zip(t.got["tokens"], t.got["positions"], t.got["owners"], strict=False)
    return [(token, at) for token, at, found in rows if found == owner]


def _is_flat(t: Trial) -> str | None:
    sizes = {name: len(t.got[name]) for name in ("tokens", "positions", "owners")}
    if len(set(sizes.values())) > 1:
        return f"every row has a token, a position and an owner, there are {sizes}"
    total = sum(t.got["lengths"])
    return (
        None
        if total == sizes["tokens"]
        else f"the lengths add up to {total}, the step has {counted(sizes['tokens'], 'row')}"
    )


def _unpacks(t: Trial, group: str) -> str | None:
    for one in t.case[group]:
        rows = _rows_of(t, one["id"])
        brought: list[int] = one["chunk"] if group == "contexts" else [one["newest"], *one.get("drafts", [])]
        if [token for token, _ in rows] != brought:
            return f"request {one['id']} brings {brought}, its rows hold {[token for token, _ in rows]}"
        first = one["start"] if group == "contexts" else one["known"] - 1
        if rows and rows[0][1] != first:
            return f"the first row of request {one['id']} stands at {first}, not at {rows[0][1]}"
        if any(after != before + 1 for (_, before), (_, after) in itertools.pairwise(rows)):
            return f"the positions of request {one['id']} are {[at for _, at in rows]}"
    return None


@checks.visible("every row has its token and its position", _steps())
def unpacks(t: Trial) -> str | None:
    """Require that each request's rows can be read back."""
    return _is_flat(t) or _unpacks(t, "contexts") or _unpacks(t, "decodes")


@checks.visible("drafts stand behind the newest token", _steps())
def unpacks_drafts(t: Trial) -> str | None:
    """Require the rows of verified drafts."""
    return _unpacks(t, "verifies")


def _order(t: Trial) -> list[int]:
    decodes = [one["id"] for one in t.case["decodes"]]
    first = [one["id"] for name in ("contexts", "verifies") for one in t.case[name]]
    return first + (decodes if t.rule == "a" else sorted(decodes))


@checks.visible("groups and requests stand in order", _steps())
def is_ordered(t: Trial) -> str | None:
    """Require contexts, verified drafts, decodes, and within them the order of the rule."""
    seen: list[int] = list(dict.fromkeys(t.got["owners"]))
    if seen != _order(t):
        return f"the requests stand in the order {seen}, wanted is {_order(t)}"
    counts = [t.got["owners"].count(owner) for owner in seen]
    return None if counts == t.got["lengths"] else f"the lengths are {t.got['lengths']}, the rows {counts}"


@checks.hidden("permuting a group permutes its rows", _steps(least=1))
def permutes(t: Trial) -> str | None:
    """Require the same rows for each request when a group is reversed."""
    other: dict[str, Any] = t.call({**t.case, "contexts": t.case["contexts"][::-1]})
    turned = Trial(t.case, other, t.rule, t.call)
    for one in t.case["contexts"]:
        if _rows_of(turned, one["id"]) != _rows_of(t, one["id"]):
            return f"reversing the contexts changes the rows of request {one['id']}"
    return is_ordered(Trial({**t.case, "contexts": t.case["contexts"][::-1]}, other, t.rule, t.call))


@checks.hidden("a last chunk of one token", _steps(one_token=True, least=1))
def stays_context(t: Trial) -> str | None:
    """Require that a chunk of one token stands with the contexts."""
    return is_ordered(t) or _unpacks(t, "contexts")


@checks.hidden("an empty step", st.just({"contexts": [], "verifies": [], "decodes": []}))
def takes_nothing(t: Trial) -> str | None:
    """Require empty lists."""
    return None if not any(t.got.values()) else "nobody runs, so every list is empty"
