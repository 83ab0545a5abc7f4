"""What must hold for ``refusals``. Does not: guard a replay."""

import copy
from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial

ORDER = ("not captured", "metadata", "missing", "unknown", "address", "shape", "dtype", "stale")


def _pair(**inputs: list[int]) -> Case:
    """Return a capture and a legal step for it."""
    table = {
        name: {"address": 4096 + 64 * at, "shape": shape, "dtype": "int32"}
        for at, (name, shape) in enumerate(inputs.items())
    }
    captured: Case = {"metadata": 140, "table_width": 4, "inputs": table}
    now = copy.deepcopy(captured)
    for one in now["inputs"].values():
        one.update(contents=[1, 2], written=True)
    return {"captured": captured, "now": now}


def _changed(case: Case, *attacks: str) -> Case:
    """Return the case after attacks on the first input."""
    found = copy.deepcopy(case)
    now, captured = found["now"], found["captured"]
    name = next(iter(captured["inputs"]))
    one = now["inputs"].get(name, {})
    for attack in attacks:
        match attack:
            case "metadata":
                now["metadata"] += 8
            case "unknown":
                now["inputs"]["extra"] = {**next(iter(captured["inputs"].values())), "contents": [], "written": True}
            case "address":
                one["address"] += 32
            case "short":
                one["shape"] = [*one["shape"][:-1], one["shape"][-1] - 1]
            case "transposed":
                one["shape"] = one["shape"][::-1]
            case "dtype":
                one["dtype"] = "int64"
            case "old":
                one["written"] = False
            case "wide":
                now["table_width"] = captured["table_width"] + 1
            case "narrow":
                now["table_width"] = captured["table_width"] - 1
            case "contents":
                one["contents"] = [9, 9, 9]
            case _:
                del now["inputs"][name]
    return found


_PLAIN = _pair(ids=[8], positions=[1, 8])

checks = Checks(
    returns=[str],
    examples=(
        Example(_PLAIN, []),
        Example(_changed(_PLAIN, "contents", "narrow"), []),
        Example(_changed(_PLAIN, "address"), ["address"]),
        Example({"captured": None, "now": _PLAIN["now"]}, ["not captured"]),
        Example(_changed(_PLAIN, "dtype", "metadata"), ["metadata"], rule="a"),
        Example(_changed(_PLAIN, "dtype", "metadata"), ["metadata", "dtype"], rule="b"),
    ),
)

_NAMED = {"short": "shape", "transposed": "shape", "old": "stale", "wide": "stale"}


@st.composite
def _legal(draw: st.DrawFn, *, planes: bool = False) -> Case:
    rows = draw(st.integers(2, 9))
    names = draw(st.lists(st.sampled_from(["ids", "slots", "lengths"]), min_size=1, max_size=3, unique=True))
    shapes = {name: [rows] for name in names}
    case = _pair(**({"positions": [3, 1, rows], **shapes} if planes else shapes))
    return _changed(case, *draw(st.lists(st.sampled_from(["contents", "narrow"]), max_size=2)))


@st.composite
def _attacked(draw: st.DrawFn, *attacks: str, most: int = 1) -> Case:
    chosen = draw(st.lists(st.sampled_from(attacks), min_size=1, max_size=most, unique=True))
    case = _changed(draw(_legal(planes="transposed" in attacks)), *chosen)
    return {**case, "attacks": chosen}


def _without_names(case: Case) -> Case:
    return {"captured": case["captured"], "now": case["now"]}


def _attacks(*attacks: str, most: int = 1) -> st.SearchStrategy[Case]:
    return _attacked(*attacks, most=most).map(_without_names)


def _differences(t: Trial) -> list[str]:
    """List what differs, input by input, as the attacks made it."""
    captured, now = t.case["captured"], t.case["now"]
    found = {"metadata"} if captured["metadata"] != now["metadata"] else set[str]()
    pairs = [(captured["inputs"].get(name), now["inputs"].get(name)) for name in {*captured["inputs"], *now["inputs"]}]
    for before, after in pairs:
        if before is None or after is None:
            found.add("missing" if after is None else "unknown")
            continue
        found |= {name for name in ("address", "shape", "dtype") if before[name] != after[name]}
        found |= set() if after["written"] else {"stale"}
    found |= {"stale"} if now["table_width"] > captured["table_width"] else set()
    return [name for name in ORDER if name in found]


def _verdict(t: Trial) -> str | None:
    odd = [name for name in t.got if name not in ORDER]
    if odd:
        return f"{odd[0]!r} is none of the reasons"
    wanted: list[Any] = _differences(t)
    wanted = wanted[:1] if t.rule == "a" else wanted
    if t.got == wanted:
        return None
    lost = [name for name in wanted if name not in t.got]
    if lost:
        return f"the replay would be wrong: {lost[0]}"
    if not wanted:
        return f"nothing is wrong with this replay, and it was refused: {t.got}"
    return f"the reasons that count are {wanted}"


@checks.visible("a legal replay is let through", _legal(planes=True))
def lets_through(t: Trial) -> str | None:
    """Require no reason where only contents changed."""
    return _verdict(t)


@checks.visible("moved, resized or converted inputs", _attacks("address", "short", "dtype"))
def sees_inputs(t: Trial) -> str | None:
    """Require the reason of each attack."""
    return _verdict(t)


@checks.visible("several at once, and their order", _attacks("metadata", "unknown", "address", "short", "old", most=4))
def orders_reasons(t: Trial) -> str | None:
    """Require first or all, as the rule says."""
    return _verdict(t)


@checks.hidden("an equal record that is another object", _attacks("metadata"))
def sees_metadata(t: Trial) -> str | None:
    """Require that identity counts."""
    return _verdict(t)


@checks.hidden("transposed positions", _attacks("transposed", "gone", "unknown", most=2))
def sees_transposed(t: Trial) -> str | None:
    """Require that a shape is not its number of entries, and that both sets of names are compared."""
    return _verdict(t)


@checks.hidden("a value left from the last step", _attacks("old", "wide", "narrow", most=3))
def sees_stale(t: Trial) -> str | None:
    """Require that an input which nobody wrote is found, and a wider table."""
    return _verdict(t)


@checks.hidden("never captured", _legal().map(lambda case: {**case, "captured": None}))
def needs_a_capture(t: Trial) -> str | None:
    """Require the first reason alone."""
    return None if t.got == ["not captured"] else "there is no graph to replay"
