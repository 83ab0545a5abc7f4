"""What must hold for ``slots``. Does not: map a position."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial

_BASE = {"row": [7, 2, 9, 4], "valid": 3, "shared": 0, "block_size": 4}

checks = Checks(
    returns=([int], None),
    examples=(
        Example({"positions": [3, 4, 5], **_BASE}, [31, 8, 9]),
        Example({"positions": [12], **_BASE}, None),
        Example({"positions": [3, 4], **_BASE, "shared": 1}, None, rule="a"),
        Example({"positions": [3, 4], **_BASE, "shared": 1}, [-1, 8], rule="b"),
    ),
)


@st.composite
def _writes(
    draw: st.DrawFn, *, shared: bool = False, stale: bool = False, beyond: bool = False, size: int | None = None
) -> Case:
    block_size = draw(st.integers(1, 5)) if size is None else size
    valid = draw(st.integers(1, 4))
    blocks = draw(st.lists(st.integers(0, 30), min_size=valid, max_size=valid, unique=True))
    tail = draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=3)) if stale else []
    num_shared = draw(st.integers(0, valid)) if shared else 0
    last = valid * block_size - 1
    first = draw(st.integers(0, last))
    positions = list(range(first, draw(st.integers(first, last)) + 1))
    if beyond:
        positions = [*positions, *range(positions[-1] + 1, last + 1 + draw(st.integers(1, 2)))]
    case = {"positions": positions, "row": [*blocks, *tail], "valid": valid, "shared": num_shared}
    return {**case, "block_size": block_size}


def _model(t: Trial) -> dict[int, tuple[int, int]]:
    """Lay the sequence out token by token: position -> (slot, column), as a cache that is filled in order."""
    size = t.case["block_size"]
    places = [
        (block * size + offset, column)
        for column, block in enumerate(t.case["row"][: t.case["valid"]])
        for offset in range(size)
    ]
    return dict(enumerate(places))


def _problem(t: Trial) -> str | None:
    places = _model(t)
    beyond = [at for at in t.case["positions"] if at not in places]
    shared = [at for at in t.case["positions"] if at in places and places[at][1] < t.case["shared"]]
    if beyond or (shared and t.rule == "a"):
        why = f"position {beyond[0]} has no block" if beyond else f"position {shared[0]} lies in a shared block"
        return None if t.got is None else f"{why}: the step is refused"
    if t.got is None:
        return f"the positions {t.case['positions']} all have a place"
    if len(t.got) != len(t.case["positions"]):
        return "every position has one entry"
    for at, slot in zip(t.case["positions"], t.got, strict=True):
        wanted, column = places[at]
        if column < t.case["shared"]:
            if slot != -1:
                return f"position {at} lies in a shared block and must not be written"
        elif slot != wanted:
            return (
                f"position {at} is in column {column}, place {at - column * t.case['block_size']}; {slot} is not there"
            )
    return None


@checks.visible("each position lies in its own block", _writes())
def maps(t: Trial) -> str | None:
    """Require the places of a cache that is filled in order."""
    return _problem(t)


@checks.visible("no two positions share a slot", _writes())
def is_injective(t: Trial) -> str | None:
    """Require different slots."""
    if t.got is None:
        return "the positions all have a place"
    return None if len(set(t.got)) == len(t.case["positions"]) else "two positions would overwrite each other"


@checks.visible("shared blocks are not written", _writes(shared=True))
def spares_shared(t: Trial) -> str | None:
    """Require what the rule says of shared blocks."""
    return _problem(t)


@checks.hidden("stale columns", _writes(stale=True, beyond=True))
def ignores_stale(t: Trial) -> str | None:
    """Require a refusal where only a stale column would give an answer."""
    return _problem(t)


@checks.hidden("one block over", _writes(beyond=True))
def refuses_beyond(t: Trial) -> str | None:
    """Require a refusal of the whole step."""
    return _problem(t)


@checks.hidden("blocks of one token", _writes(size=1, shared=True))
def takes_single(t: Trial) -> str | None:
    """Require the same of the smallest blocks."""
    return _problem(t)
