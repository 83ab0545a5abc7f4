"""What must hold for ``send_all``. Does not: send anything."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import counted

checks = Checks(
    returns={"received": [[int]], "mirrors": int, "stalls": [int]},
    examples=(
        Example({"lists": [[1], [2]], "lag": 1}, {"received": [[1], [2]], "mirrors": 2, "stalls": []}, rule="a"),
        Example(
            {"lists": [[1], [2], [3]], "lag": 1}, {"received": [[1], [2], [3]], "mirrors": 3, "stalls": []}, rule="b"
        ),
    ),
)


def _runs(*, least: int = 1, most: int = 10, lags: tuple[int, int] = (0, 3)) -> st.SearchStrategy[Case]:
    lists = st.lists(st.lists(st.integers(0, 99), max_size=3), min_size=least, max_size=most)
    return st.fixed_dictionaries({"lists": lists, "lag": st.integers(*lags)})


def _mirrors(t: Trial) -> int:
    return 2 if t.rule == "a" else 3


def _arrival(t: Trial) -> str | None:
    wanted, found = t.case["lists"], t.got["received"]
    if len(found) != len(wanted):
        return f"of {counted(len(wanted), 'list')}, {len(found)} arrived"
    at = next((at for at, values in enumerate(wanted) if found[at] != values), None)
    return None if at is None else f"list {at} was {wanted[at]}, the device read {found[at]}"


@checks.visible("every list arrives as it was", _runs())
def arrives(t: Trial) -> str | None:
    """Require the contents, however late the device reads."""
    return _arrival(t)


@checks.visible("no more mirrors than there are", _runs(least=4))
def is_bounded(t: Trial) -> str | None:
    """Require the number of mirrors that the rule allows."""
    most = _mirrors(t)
    return None if t.got["mirrors"] <= most else f"{t.got['mirrors']} mirrors were made, there are {most}"


@checks.visible("nobody waits for the copy just started", _runs(least=2, lags=(1, 3)))
def overlaps(t: Trial) -> str | None:
    """Require that no wait is for the newest copy."""
    return "a step waits for its own copy, so nothing overlaps" if 0 in t.got["stalls"] else None


@checks.hidden("a very late device", _runs(least=3, lags=(8, 20)))
def survives_lag(t: Trial) -> str | None:
    """Require the contents when nothing is read before it is waited for."""
    return _arrival(t)


@checks.hidden("one list, or none", _runs(least=0, most=1))
def takes_little(t: Trial) -> str | None:
    """Require the contents of short runs, without a wait."""
    return _arrival(t) or ("nothing is written twice, and a wait held the host up" if t.got["stalls"] else None)


@checks.hidden("steps are not held up", _runs(least=4, lags=(8, 20)))
def waits_late(t: Trial) -> str | None:
    """Require that a wait is for a copy as many steps back as there are mirrors."""
    most = _mirrors(t)
    early = [after for after in t.got["stalls"] if after < most - 1]
    if early:
        behind = counted(early[0], "other")
        return f"a wait is for a copy behind which {behind} began; with {most} mirrors there may be {most - 1}"
    return None
