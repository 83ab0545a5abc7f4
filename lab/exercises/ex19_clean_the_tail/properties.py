"""What must hold for ``clean``. Does not: clear anything."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial

_SMALL = {"capacity": 6, "planes": 1, "live": 2, "bucket": 4, "previous": 5}

checks = Checks(
    returns={"planes": [[int]]},
    examples=(
        Example(_SMALL, {"planes": [[1, 2, 0, 0, -7, -7]]}, rule="a"),
        Example(_SMALL, {"planes": [[1, 2, 0, 0, 0, -7]]}, rule="b"),
        Example({**_SMALL, "bucket": 2, "previous": 2}, {"planes": [[1, 2, -7, -7, -7, -7]]}),
    ),
)


@st.composite
def _steps(draw: st.DrawFn, *, planes: int = 1, exact: bool = False) -> Case:
    capacity = draw(st.integers(2, 10))
    bucket = draw(st.integers(1, capacity))
    live = bucket if exact else draw(st.integers(0, bucket))
    return {
        "capacity": capacity,
        "planes": planes,
        "live": live,
        "bucket": bucket,
        "previous": draw(st.integers(0, capacity)),
    }


def _end(t: Trial) -> int:
    return t.case["bucket"] if t.rule == "a" else max(t.case["bucket"], t.case["previous"])


def _live(t: Trial) -> str | None:
    wanted = list(range(1, t.case["live"] + 1))
    wrong = [plane for plane in t.got["planes"] if plane[: t.case["live"]] != wanted]
    return f"the live rows were {wanted}, now {wrong[0][: t.case['live']]}" if wrong else None


def _tail(t: Trial) -> str | None:
    for number, plane in enumerate(t.got["planes"]):
        tail = plane[t.case["live"] : _end(t)]
        if any(tail):
            at = t.case["live"] + next(at for at, value in enumerate(tail) if value)
            return f"row {at} of plane {number} holds {plane[at]}, left over from another step"
    return None


def _beyond(t: Trial) -> str | None:
    changed = [plane[_end(t) :] for plane in t.got["planes"] if any(value != -7 for value in plane[_end(t) :])]
    return f"rows beyond {_end(t)} were changed: {changed[0]}" if changed else None


@checks.visible("no stale row in the bucket", _steps())
def is_clean(t: Trial) -> str | None:
    """Require zeros behind the live rows."""
    return _tail(t)


@checks.visible("the live rows stay", _steps())
def keeps_live(t: Trial) -> str | None:
    """Require the step's own rows."""
    return _live(t) or _tail(t)


@checks.visible("what lies beyond, as the rule says", _steps())
def keeps_beyond(t: Trial) -> str | None:
    """Require that nothing more is written than the rule wants."""
    return _beyond(t) or _tail(t)


@checks.hidden("positions with three planes", _steps(planes=3))
def takes_planes(t: Trial) -> str | None:
    """Require the same of every plane."""
    return _live(t) or _tail(t) or _beyond(t)


@checks.hidden("a step that fills its bucket", _steps(exact=True))
def leaves_exact(t: Trial) -> str | None:
    """Require that nothing is lost when nothing is padded."""
    return _live(t) or _beyond(t) or _tail(t)
