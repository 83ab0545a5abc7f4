"""What must hold for ``fill``. Does not: fill anything."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Prediction, Trial


def _row(sampled_at: int | None, host: int = 0, drafts: tuple[int, ...] = (), *, dummy: bool = False) -> dict[str, Any]:
    return {"sampled_at": sampled_at, "host": host, "drafts": list(drafts), "dummy": dummy}


_LEFT = {"rows": [_row(0), _row(3), _row(None, 9)], "samples": [50, 51, 52, 53], "pad": 2}
_PADDED = {"rows": [_row(1), _row(None, 8, dummy=True)], "samples": [50, 51], "pad": 2}

checks = Checks(
    returns={"tokens": [int], "gathered": [int]},
    examples=(
        Example(
            {"rows": [_row(2, 0, (7,)), _row(0)], "samples": [5, 6, 8], "pad": 2},
            {"tokens": [8, 7, 5], "gathered": [2, 0]},
        ),
        Example(_PADDED, {"tokens": [51, 0], "gathered": [1]}, rule="a"),
        Example(_PADDED, {"tokens": [51, 2], "gathered": [1]}, rule="b"),
    ),
    prediction=Prediction("Which tokens does the step hold, and which slots are read?", _LEFT),
)


@st.composite
def _steps(draw: st.DrawFn, *, new: bool = True, drafts: int = 0, dummies: bool = False, least: int = 1) -> Case:
    num_slots = draw(st.integers(3, 6))
    samples = draw(st.lists(st.integers(100, 199), min_size=num_slots, max_size=num_slots, unique=True))
    slots = draw(st.lists(st.integers(0, num_slots - 1), min_size=least, max_size=num_slots, unique=True))
    rows: list[dict[str, Any]] = []
    for slot in slots:
        is_new = new and draw(st.booleans())
        guesses = draw(st.lists(st.integers(1, 99), max_size=drafts))
        rows.append(_row(None if is_new else slot, draw(st.integers(1, 99)), tuple(guesses)))
    if dummies:
        rows += [_row(draw(st.sampled_from([None, 0])), 7, (), dummy=True)] * draw(st.integers(1, 2))
    return {"rows": rows, "samples": samples, "pad": draw(st.integers(2, 9))}


def _walk(t: Trial) -> str | None:
    """Go through the rows with the answer beside them."""
    tokens, gathered = iter(t.got["tokens"]), iter(t.got["gathered"])
    for at, row in enumerate(t.case["rows"]):
        found = next(tokens, None)
        if row["dummy"]:
            wanted = 0 if t.rule == "a" else t.case["pad"]
            if found != wanted:
                return f"row {at} is a dummy's and holds {wanted}, not {found}"
            continue
        slot = row["sampled_at"]
        if slot is None and found != row["host"]:
            return f"request {at} has no sample yet: its token {row['host']} is the host's, not {found}"
        if slot is not None and found != t.case["samples"][slot]:
            return f"the last sample of request {at} lies in slot {slot}: {t.case['samples'][slot]}, not {found}"
        if slot is not None and next(gathered, None) != slot:
            return f"request {at} reads slot {slot}, gathered is {t.got['gathered']}"
        for draft in row["drafts"]:
            if next(tokens, None) != draft:
                return f"the drafts {row['drafts']} of request {at} follow its token"
    if next(tokens, None) is not None or next(gathered, None) is not None:
        return "there are more entries than rows need"
    return None


@checks.visible("each request gets its own sample", _steps(new=False))
def follows_slots(t: Trial) -> str | None:
    """Require the sample of the request's slot, in whatever order the rows are."""
    return _walk(t)


@checks.visible("who has no sample brings its own token", _steps())
def takes_host(t: Trial) -> str | None:
    """Require host tokens for newcomers."""
    return _walk(t)


@checks.visible("dummies read nothing", _steps(dummies=True))
def skips_dummies(t: Trial) -> str | None:
    """Require the rule's token for dummies, and no gather."""
    return _walk(t)


@st.composite
def _after_leaving(draw: st.DrawFn, *, hole: bool) -> Case:
    case: Case = draw(_steps(new=False, least=3))
    gone = draw(st.integers(0, len(case["rows"]) - 2))
    host = draw(st.integers(1, 99))
    case["rows"][gone : gone + 1] = [_row(None, host)] if hole else []
    return case


@checks.hidden("somebody left in the middle", _after_leaving(hole=False))
def survives_leaving(t: Trial) -> str | None:
    """Require the right samples when rows have moved up."""
    return _walk(t)


@checks.hidden("a newcomer in the hole", _after_leaving(hole=True))
def survives_joining(t: Trial) -> str | None:
    """Require that a newcomer does not get its predecessor's sample."""
    return _walk(t)


@checks.hidden("drafts and samples together", _steps(drafts=3, dummies=True))
def takes_drafts(t: Trial) -> str | None:
    """Require everything at once."""
    return _walk(t)
