"""What must hold for ``logit_rows``. Does not: gather."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Checks, Example, Prediction, Trial


def _chunk(rows: int, *, last: bool, scores: bool = False) -> dict[str, Any]:
    return {"kind": "chunk", "rows": rows, "last": last, "scores": scores}


def _verify(drafts: int) -> dict[str, Any]:
    return {"kind": "verify", "drafts": drafts}


_DECODE = {"kind": "decode"}

checks = Checks(
    returns=[int],
    examples=(
        Example({"batch": [_chunk(3, last=True), _DECODE]}, [2, 3]),
        Example({"batch": [_chunk(2, last=False), _verify(1)]}, [2, 3]),
        Example({"batch": [_chunk(2, last=False, scores=True), _DECODE]}, [2], rule="a"),
        Example({"batch": [_chunk(2, last=False, scores=True), _DECODE]}, [0, 1, 2], rule="b"),
    ),
    prediction=Prediction(
        "Which rows reach the output layer?",
        {"batch": [_chunk(4, last=False), _chunk(3, last=True), _verify(2), _DECODE]},
    ),
)

_chunks = st.builds(_chunk, st.integers(1, 4), last=st.booleans())
_scored = st.builds(_chunk, st.integers(1, 4), last=st.booleans(), scores=st.booleans())
_others = st.one_of(st.builds(_verify, st.integers(0, 3)), st.just(_DECODE))


def _batches(one: Any, *, least: int = 0) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"batch": st.lists(one, min_size=least, max_size=5)})


def _spans(t: Trial) -> list[tuple[dict[str, Any], int, int]]:
    """Return each request with its first row and the row after its last."""
    found: list[tuple[dict[str, Any], int, int]] = []
    at = 0
    for one in t.case["batch"]:
        rows = one["rows"] if one["kind"] == "chunk" else 1 + one.get("drafts", 0)
        found.append((one, at, at + rows))
        at += rows
    return found


def _problem(t: Trial) -> str | None:
    if t.got != sorted(set(t.got)):
        return "the rows stand in order, each once"
    for one, first, end in _spans(t):
        mine = [row for row in t.got if first <= row < end]
        if one["kind"] != "chunk" or (t.rule == "b" and one["scores"]):
            if len(mine) < end - first:
                return f"rows {first} to {end - 1} ({one['kind']}) are all wanted, found are {mine}"
        elif one["last"] and mine != [end - 1]:
            return f"a finished prompt wants its last row {end - 1} alone, found are {mine}"
        elif not one["last"] and mine:
            return f"an unfinished chunk (rows {first} to {end - 1}) chooses nothing, found are {mine}"
    total = _spans(t)[-1][2] if t.case["batch"] else 0
    beyond = [row for row in t.got if not 0 <= row < total]
    return f"row {beyond[0]} does not exist, the step has {total}" if beyond else None


@checks.visible("chunks want their end, or nothing", _batches(st.one_of(_chunks, st.just(_DECODE))))
def wants_ends(t: Trial) -> str | None:
    """Require one row of a finished prompt and of a decode, none of an unfinished chunk."""
    return _problem(t)


@checks.visible("every verified row is wanted", _batches(_others))
def wants_drafts(t: Trial) -> str | None:
    """Require 1 + K rows of a verified request."""
    return _problem(t)


@checks.visible("scores, as the rule says", _batches(_scored))
def wants_scores(t: Trial) -> str | None:
    """Require what the rule says of prompts with scores."""
    return _problem(t)


@checks.hidden("unfinished chunks alone", _batches(st.builds(_chunk, st.integers(1, 4), last=st.just(value=False))))
def wants_nothing(t: Trial) -> str | None:
    """Require an empty list when nothing is chosen."""
    return "no prompt ends in this step and nobody decodes: no row is wanted" if t.got else None


@checks.hidden("a batch after an unfinished chunk", _batches(st.one_of(_scored, _others), least=2))
def counts_on(t: Trial) -> str | None:
    """Require everything at once."""
    return _problem(t)
