"""What must hold for ``put``. Does not: write anything."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import counted


def _case(held: list[int], values: list[int], dtype: str = "int32", shape: list[int] | None = None) -> Case:
    return {"held": held, "values": values, "dtype": dtype, "shape": [len(values)] if shape is None else shape}


def _written(held: list[int], length: int) -> dict[str, Any]:
    return {"refused": False, "shares": True, "length": length, "same_type": True, "held": held}


def _refused(held: list[int]) -> dict[str, Any]:
    return {"refused": True, "shares": False, "length": -1, "same_type": False, "held": held}


checks = Checks(
    returns={"refused": bool, "shares": bool, "length": int, "same_type": bool, "held": [int]},
    examples=(
        Example(_case([9, 9, 9, 9], [1, 2]), _written([1, 2, 9, 9], 2)),
        Example(_case([9, 9], [1, 2, 3]), _refused([9, 9])),
        Example(_case([9, 9], [1], "int64"), _refused([9, 9]), rule="a"),
        Example(_case([9, 9], [1], "int64"), _written([1, 9], 1), rule="b"),
    ),
)

_numbers = st.integers(-99, 99)


@st.composite
def _steps(draw: st.DrawFn, *, least: int = 1, dtypes: tuple[str, ...] = ("int32",)) -> Case:
    held = draw(st.lists(_numbers, min_size=least, max_size=8))
    values = draw(st.lists(_numbers, min_size=least, max_size=len(held)))
    return _case(held, values, draw(st.sampled_from(dtypes)))


@st.composite
def _too_long(draw: st.DrawFn) -> Case:
    held = draw(st.lists(_numbers, min_size=1, max_size=5))
    return _case(held, draw(st.lists(_numbers, min_size=len(held) + 1, max_size=9)))


@st.composite
def _other_shapes(draw: st.DrawFn) -> Case:
    held = draw(st.lists(_numbers, min_size=2, max_size=6))
    length = draw(st.sampled_from([1, len(held)]))
    values = draw(st.lists(_numbers, min_size=length, max_size=length))
    return _case(held, values, shape=draw(st.sampled_from([[1, length], [length, 1], [1, 1, length]])))


def _is_written(t: Trial) -> str | None:
    values, held = t.case["values"], t.case["held"]
    if t.got["refused"]:
        return f"{len(values)} values fit a buffer of {len(held)}, and were refused"
    if t.got["held"][: len(values)] != values:
        return f"the buffer's memory begins with {t.got['held'][: len(values)]}, a graph would read that"
    if t.got["held"][len(values) :] != held[len(values) :]:
        return "what lies behind the values was changed"
    return None


def _is_refused(t: Trial) -> str | None:
    if not t.got["refused"]:
        return f"values of shape {t.case['shape']} and type {t.case['dtype']} must be refused with ValueError"
    return None if t.got["held"] == t.case["held"] else "they were refused after something had been written"


@checks.visible("the memory holds the values, and the rest as before", _steps())
def writes(t: Trial) -> str | None:
    """Require the values in the buffer's own memory."""
    return _is_written(t)


@checks.visible("what comes back is a view of that memory", _steps())
def returns_view(t: Trial) -> str | None:
    """Require a view of the written part, of the buffer's type."""
    if t.got["refused"]:
        return "the values fit and were refused"
    if t.got["length"] != len(t.case["values"]):
        return f"the view has {counted(t.got['length'], 'entry')}, to be written: {len(t.case['values'])}"
    return None if t.got["shares"] and t.got["same_type"] else "what was returned is another memory than the buffer"


@checks.visible("types, as the rule says", _steps(dtypes=("int64", "int16", "float64")))
def keeps_type(t: Trial) -> str | None:
    """Require what the rule says of other types."""
    converts = t.rule == "b" and t.case["dtype"] != "float64"
    return _is_written(t) if converts else _is_refused(t)


@checks.hidden("a single value is not spread out", _other_shapes())
def refuses_shapes(t: Trial) -> str | None:
    """Require a refusal of whatever is not one-dimensional, and a single value in a single place."""
    return _is_refused(t)


@checks.hidden("a refusal changes nothing", _too_long())
def refuses_whole(t: Trial) -> str | None:
    """Require a refusal before the first write."""
    return _is_refused(t)


@st.composite
def _empty(draw: st.DrawFn) -> Case:
    return _case(draw(st.lists(_numbers, min_size=1, max_size=4)), [])


@checks.hidden("an empty list", _empty())
def takes_nothing(t: Trial) -> str | None:
    """Require that nothing is written and an empty part comes back."""
    wrong = _is_written(t)
    return wrong or (None if t.got["length"] == 0 else "an empty part comes back")
