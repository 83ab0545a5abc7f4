"""What must hold for ``pad_batch``. Does not: pad anything."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import counted


def _row(at: int, slot: int | None, block: int, position: int, *, is_dummy: bool = False) -> dict[str, Any]:
    return {"id": at, "slot": slot, "block": block, "position": position, "is_dummy": is_dummy}


_ROW_SHAPE = {"id": int, "slot": (int, None), "block": int, "position": int, "is_dummy": bool}
_BATCH = [_row(4, 0, 7, 12), _row(6, 2, 3, 5)]
_DUMMY = _row(-1, 8, 9, 0, is_dummy=True)

checks = Checks(
    returns={"rows": ([_ROW_SHAPE], None), "free": [int]},
    examples=(
        Example(
            {"batch": _BATCH, "size": 4, "reserved": {"slot": 8, "block": 9}, "free": [1, 5]},
            {"rows": [*_BATCH, _DUMMY, _DUMMY], "free": [1, 5]},
        ),
        Example({"batch": _BATCH, "size": 4, "reserved": None, "free": [1]}, {"rows": _BATCH, "free": [1]}, rule="a"),
        Example({"batch": _BATCH, "size": 4, "reserved": None, "free": [1]}, {"rows": None, "free": [1]}, rule="b"),
    ),
)


@st.composite
def _steps(
    draw: st.DrawFn, *, full: bool = False, odd: bool = False, spare: tuple[int, int] = (1, 4), without: bool = False
) -> Case:
    blocks = draw(st.permutations(range(20)))
    count = draw(st.integers(1, 4))
    slots = draw(st.lists(st.integers(0, 9), min_size=count + 1, max_size=count + 1, unique=True))
    batch = [
        _row(
            0 if odd and at == 0 else draw(st.integers(1, 99)),
            None if odd and at == 1 else slots[at],
            blocks[at],
            0 if odd else draw(st.integers(0, 40)),
        )
        for at in range(count)
    ]
    free = [] if full else list(blocks[count + 1 : count + 1 + draw(st.integers(1, 4))])
    reserved = None if without and draw(st.booleans()) else {"slot": slots[count], "block": blocks[count]}
    return {"batch": batch, "size": count + draw(st.integers(*spare)), "reserved": reserved, "free": free}


def _is_refused(t: Trial) -> bool:
    return t.case["reserved"] is None and t.case["size"] > len(t.case["batch"])


def _problem(t: Trial) -> str | None:
    batch, rows = t.case["batch"], t.got["rows"]
    if t.got["free"] != t.case["free"]:
        return f"the free blocks are for real requests; they were {t.case['free']}, now {t.got['free']}"
    if _is_refused(t):
        wanted = batch if t.rule == "a" else None
        return None if rows == wanted else "without a reserved slot and block nothing can be padded; see the rule"
    if rows is None or rows[: len(batch)] != batch:
        return "the real rows come first, unchanged"
    if len(rows) != t.case["size"]:
        return f"the graph has {counted(t.case['size'], 'row')}, the step {len(rows)}"
    for row in rows[len(batch) :]:
        if not row["is_dummy"]:
            return "an added row does not say that it is a dummy"
        if row["block"] != t.case["reserved"]["block"]:
            return f"a dummy writes into block {row['block']}, its own is {t.case['reserved']['block']}"
        if (row["slot"], row["id"], row["position"]) != (t.case["reserved"]["slot"], -1, 0):
            return "a dummy has the reserved slot, the id -1 and the position 0"
    return None


@checks.visible("the step is as large as the graph, the real rows as before", _steps())
def pads(t: Trial) -> str | None:
    """Require the padded rows."""
    return _problem(t)


@checks.visible("no block of a real request is written", _steps())
def spares_blocks(t: Trial) -> str | None:
    """Require that dummies write into no block that a request has or may get."""
    taken = {row["block"] for row in t.case["batch"]} | set(t.case["free"])
    added = (t.got["rows"] or [])[len(t.case["batch"]) :]
    if len(added) != t.case["size"] - len(t.case["batch"]):
        return "the step is not as large as the graph"
    hit = [row["block"] for row in added if row["block"] in taken]
    return f"a dummy writes into block {hit[0]}, which real requests use" if hit else None


@checks.visible("nothing was reserved", _steps(without=True))
def needs_reserve(t: Trial) -> str | None:
    """Require what the rule says."""
    return _problem(t)


@checks.hidden("the cache is full", _steps(full=True))
def works_when_full(t: Trial) -> str | None:
    """Require dummies without a free block."""
    return _problem(t)


@checks.hidden("requests that look like dummies", _steps(odd=True))
def reads_the_flag(t: Trial) -> str | None:
    """Require that real rows with odd values stay."""
    return _problem(t)


@checks.hidden("the batch fills its size already", _steps(spare=(0, 0), without=True))
def adds_none(t: Trial) -> str | None:
    """Require the batch alone."""
    return None if t.got["rows"] == t.case["batch"] else "no dummy is needed"
