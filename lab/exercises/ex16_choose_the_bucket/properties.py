"""What must hold for ``bucket_for``. Does not: compute a bucket."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Prediction, Trial
from lab.exercises.shape import counted

_sizes = st.lists(st.integers(1, 64), min_size=1, max_size=8)


@st.composite
def _fitting(draw: st.DrawFn) -> Case:
    sizes = draw(_sizes)
    return {"sizes": sizes, "batch": draw(st.integers(1, max(sizes)))}


checks = Checks(
    returns=(int, None),
    examples=(
        Example({"sizes": [1, 2, 4, 8], "batch": 3}, 4),
        Example({"sizes": [8, 1, 4], "batch": 4}, 4),
        Example({"sizes": [1, 2], "batch": 3}, None),
        Example({"sizes": [4, 2], "batch": 0}, None, rule="a"),
        Example({"sizes": [4, 2], "batch": 0}, 2, rule="b"),
    ),
    prediction=Prediction("Sizes 1, 2, 4, 8 and 5 requests: which size runs?", {"sizes": [1, 2, 4, 8], "batch": 5}),
)


@checks.visible("every request has a place", _fitting())
def has_room(t: Trial) -> str | None:
    """Require a captured size that holds the batch; None only when all are too small."""
    if t.got is None:
        fits = [size for size in t.case["sizes"] if size >= t.case["batch"]]
        return f"None sends the batch to the slow path, though {fits[0]} would hold it" if fits else None
    if t.got not in t.case["sizes"]:
        return f"no graph was captured for {counted(t.got, 'request')}"
    return (
        None
        if t.got >= t.case["batch"]
        else f"a graph for {counted(t.got, 'request')} leaves {t.case['batch'] - t.got} out"
    )


@checks.visible("no dummy too many", _fitting())
def is_tight(t: Trial) -> str | None:
    """Require a size, and that no captured one lies between the batch and it."""
    if t.got is None or t.got not in t.case["sizes"]:
        return has_room(t)
    between = [size for size in t.case["sizes"] if t.case["batch"] <= size < t.got]
    return f"{between[0]} holds the batch with {counted(t.got - between[0], 'dummy')} less" if between else None


@checks.visible("an empty batch", st.fixed_dictionaries({"sizes": _sizes, "batch": st.just(0)}))
def is_empty(t: Trial) -> str | None:
    """Require what the rule says."""
    if t.rule == "a":
        return None if t.got is None else "an empty batch takes no size here"
    above = [size for size in t.case["sizes"] if t.got is None or size < t.got]
    return "an empty batch takes the smallest size here" if above else None


@checks.hidden(
    "above the largest size",
    st.fixed_dictionaries(
        {"sizes": st.lists(st.integers(1, 16), min_size=1, max_size=6), "batch": st.integers(17, 99)}
    ),
)
def is_above(t: Trial) -> str | None:
    """Require None above the largest size."""
    return None if t.got is None else f"a batch of {t.case['batch']} does not fit a graph for {t.got}"


@checks.hidden(
    "one more request never takes a smaller size",
    st.fixed_dictionaries({"sizes": _sizes, "batch": st.integers(1, 64)}),
)
def is_monotone(t: Trial) -> str | None:
    """Require that a larger batch takes the same size, a larger one, or none."""
    more = t.call({**t.case, "batch": t.case["batch"] + 1})
    if t.got is None:
        return None if more is None else f"a batch of {t.case['batch']} has no size and one more has {more}"
    return None if more is None or more >= t.got else f"one request more takes {more}, which is smaller"
