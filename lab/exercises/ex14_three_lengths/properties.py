"""What must hold for ``three_lengths``. Does not: measure a batch."""

import itertools
from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Checks, Example, Prediction, Trial
from lab.exercises.shape import counted


def _context(done: int, take: int) -> dict[str, Any]:
    return {"kind": "context", "done": done, "take": take}


def _decode(known: int, drafts: int = 0) -> dict[str, Any]:
    return {"kind": "decode", "known": known, "drafts": drafts}


_TWO = [_context(4, 3), _decode(6, 2)]

checks = Checks(
    returns={"query": [int], "cached": [int], "kv": [int], "offsets": [int]},
    examples=(
        Example(
            {"batch": [_context(0, 3), _decode(5)], "extra": 0},
            {"query": [3, 1], "cached": [0, 4], "kv": [3, 5], "offsets": [0, 3, 4]},
        ),
        Example(
            {"batch": _TWO, "extra": 2},
            {"query": [3, 3], "cached": [4, 5], "kv": [7, 8], "offsets": [0, 3, 6]},
            rule="a",
        ),
        Example(
            {"batch": _TWO, "extra": 2},
            {"query": [3, 3], "cached": [4, 5], "kv": [7, 10], "offsets": [0, 3, 6]},
            rule="b",
        ),
    ),
    prediction=Prediction(
        "Query, cached, kv and offsets of the two?", {"batch": [_context(6, 2), _decode(9, 1)], "extra": 0}
    ),
)

_contexts = st.builds(_context, st.integers(0, 20), st.integers(1, 9))
_decodes = st.builds(_decode, st.integers(1, 30))
_verifies = st.builds(_decode, st.integers(1, 30), st.integers(1, 4))


def _batches(one: Any, *, least: int = 1, extra: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    batch = st.lists(one, min_size=least, max_size=5)
    return st.fixed_dictionaries({"batch": batch, "extra": st.integers(0, extra)})


def _adds_up(t: Trial) -> str | None:
    """Require lists of one length, and sums that agree."""
    count = len(t.case["batch"])
    for name in ("query", "cached", "kv"):
        if len(t.got[name]) != count:
            return f"{name} has {counted(len(t.got[name]), 'entry')} for {counted(count, 'sequence')}"
    offsets = t.got["offsets"]
    if offsets[:1] != [0] or len(offsets) != count + 1:
        return f"offsets begins with 0 and has {counted(count + 1, 'entry')}, it is {offsets}"
    steps = [after - before for before, after in itertools.pairwise(offsets)]
    return None if steps == t.got["query"] else f"the offsets leave {steps} rows, query says {t.got['query']}"


def _agrees(t: Trial) -> str | None:
    """Require each sequence's own numbers."""
    rows = zip(t.case["batch"], t.got["query"], t.got["cached"], t.got["kv"], strict=False)
    for at, (one, query, cached, kv) in enumerate(rows):
        is_context = one["kind"] == "context"
        wanted = (one["take"], one["done"]) if is_context else (1 + one["drafts"], one["known"] - 1)
        if query != wanted[0]:
            return f"sequence {at} computes {counted(wanted[0], 'row')} in this step, not {query}"
        if cached != wanted[1]:
            return f"before the step the cache holds {counted(wanted[1], 'token')} of sequence {at}, not {cached}"
        more = t.case["extra"] if t.rule == "b" and one["kind"] == "decode" else 0
        if kv != sum(wanted) + more:
            return f"sequence {at} may attend to {counted(sum(wanted) + more, 'token')}, not {kv}"
    return None


@checks.visible("rows and offsets add up", _batches(st.one_of(_contexts, _decodes, _verifies)))
def adds_up(t: Trial) -> str | None:
    """Require consistent lists."""
    return _adds_up(t)


@checks.visible("a prompt attends to what is cached and to itself", _batches(_contexts))
def measures_contexts(t: Trial) -> str | None:
    """Require the numbers of contexts."""
    return _adds_up(t) or _agrees(t)


@checks.visible("a decode computes its newest token", _batches(_decodes, extra=3))
def measures_decodes(t: Trial) -> str | None:
    """Require the numbers of decodes."""
    return _adds_up(t) or _agrees(t)


@checks.hidden(
    "all but one token was found in the cache", _batches(st.builds(_context, st.integers(1, 40), st.just(1)))
)
def measures_hits(t: Trial) -> str | None:
    """Require the numbers of a context with one token left."""
    return _adds_up(t) or _agrees(t)


@checks.hidden("drafts", _batches(st.one_of(_contexts, _verifies), extra=4))
def measures_drafts(t: Trial) -> str | None:
    """Require everything at once."""
    return _adds_up(t) or _agrees(t)


@checks.hidden("nobody", st.fixed_dictionaries({"batch": st.just([]), "extra": st.integers(0, 3)}))
def measures_nobody(t: Trial) -> str | None:
    """Require empty lists, and a single offset."""
    return _adds_up(t)
