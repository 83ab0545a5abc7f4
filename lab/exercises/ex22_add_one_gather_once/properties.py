"""What must hold for ``advance``. Does not: bring anything forward."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial

_ONE = {
    "tokens": [5, 6, 0],
    "positions": [3, 8, 0],
    "slots": [1, 0, 2],
    "samples": [20, 30, 40],
    "count": 2,
    "steps": 1,
}

checks = Checks(
    returns={"steps": [[[int]]], "operations": [str]},
    examples=(
        Example(
            _ONE, {"steps": [[[30, 20, 0], [4, 9, 0], [5, 10, 1]]], "operations": ["add", "add", "gather"]}, rule="a"
        ),
        Example(_ONE, {"steps": [[[30, 20, 0], [4, 9, 0], [4, 9, 1]]], "operations": ["add", "gather"]}, rule="b"),
    ),
)


@st.composite
def _runs(draw: st.DrawFn, *, steps: tuple[int, int] = (1, 3), shuffled: bool = False) -> Case:
    capacity = draw(st.integers(2 if shuffled else 1, 6))
    numbers = st.lists(st.integers(1, 99), min_size=capacity, max_size=capacity)
    slots = draw(st.permutations(range(capacity))) if shuffled else list(range(capacity))
    return {
        "tokens": draw(numbers),
        "positions": draw(numbers),
        "slots": list(slots),
        "samples": draw(numbers),
        "count": draw(st.integers(1, capacity)),
        "steps": draw(st.integers(*steps)),
    }


def _wanted(t: Trial) -> str | None:
    """Compare every step with the rows that the full path would lay out."""
    count, samples = t.case["count"], list(t.case["samples"])
    for number, (tokens, positions, lengths) in enumerate(t.got["steps"], 1):
        fresh = [samples[slot] for slot in t.case["slots"][:count]]
        at = [position + number for position in t.case["positions"][:count]]
        if tokens[:count] != fresh:
            return f"step {number} holds the tokens {tokens[:count]}, the samples of its rows are {fresh}"
        if positions[:count] != at:
            return f"step {number} holds the positions {positions[:count]}, they are {at}"
        grown = [position + 1 if t.rule == "a" else position + 1 - number for position in at]
        if lengths[:count] != grown:
            return f"step {number} holds the lengths {lengths[:count]}, they are {grown}"
        samples = [(value * 7 + 3) % 101 for value in samples]
    return None


def _beyond(t: Trial) -> str | None:
    count = t.case["count"]
    for tokens, positions, lengths in t.got["steps"]:
        rest = [at + 1 for at in t.case["positions"]][count:]
        if (tokens[count:], positions[count:], lengths[count:]) != (
            t.case["tokens"][count:],
            t.case["positions"][count:],
            rest,
        ):
            return f"rows from {count} on belong to nobody and were changed"
    return None


@checks.visible("the rows are those of the full path", _runs())
def equals_full_path(t: Trial) -> str | None:
    """Require the inputs that packing would give."""
    return _wanted(t)


@checks.visible("few operations, and none from the host", _runs())
def is_cheap(t: Trial) -> str | None:
    """Require the number of operations that the rule allows."""
    most = 3 if t.rule == "a" else 2
    if "send" in t.got["operations"]:
        return "a steady step sends nothing from the host"
    found = len(t.got["operations"])
    return _wanted(t) or (None if found <= most else f"{found} device operations, at most {most}")


@checks.visible("rows of nobody are left alone", _runs())
def spares_the_rest(t: Trial) -> str | None:
    """Require that only the live rows change."""
    return _beyond(t) or _wanted(t)


@checks.hidden("fifty steps", _runs(steps=(50, 50)))
def lasts(t: Trial) -> str | None:
    """Require the same after many steps."""
    return _wanted(t) or _beyond(t)


@checks.hidden("slots in any order", _runs(shuffled=True))
def follows_slots(t: Trial) -> str | None:
    """Require the sample of each row's own slot."""
    return _wanted(t)
