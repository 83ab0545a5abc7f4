"""What must hold for ``choose_sizes``. Does not: choose sizes, where learners see it."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial

_FIVE_PER_CENT = 1.05

checks = Checks(
    returns=[int],
    examples=(
        Example({"histogram": [[3, 100], [8, 1]], "limit": 8, "most": 2, "graph_cost": 5, "align": 1}, [3, 8]),
        Example({"histogram": [[3, 100]], "limit": 8, "most": 1, "graph_cost": 5, "align": 1}, [8]),
        Example({"histogram": [[3, 100]], "limit": 9, "most": 3, "graph_cost": 5, "align": 4}, [3, 9], rule="a"),
        Example({"histogram": [[3, 100]], "limit": 9, "most": 3, "graph_cost": 5, "align": 4}, [4, 9], rule="b"),
    ),
)


@st.composite
def _traffic(draw: st.DrawFn, *, most: int = 5, most_limit: int = 24) -> Case:
    limit = draw(st.integers(2, most_limit))
    batches = draw(st.lists(st.integers(1, limit), min_size=1, max_size=8, unique=True))
    histogram = [[batch, draw(st.integers(1, 60))] for batch in sorted(batches)]
    return {
        "histogram": histogram,
        "limit": limit,
        "most": draw(st.integers(1, most)),
        "graph_cost": draw(st.integers(0, 30)),
        "align": draw(st.integers(1, 5)),
    }


def _cost(case: Case, sizes: list[int]) -> int:
    waste = sum(steps * (min(size for size in sizes if size >= batch) - batch) for batch, steps in case["histogram"])
    return waste + case["graph_cost"] * len(sizes)


def _is_legal(t: Trial) -> str | None:
    sizes, limit = t.got, t.case["limit"]
    if sizes != sorted(set(sizes)):
        return "the sizes stand in ascending order, each once"
    if not sizes or sizes[-1] != limit:
        return f"the largest size must be the largest batch, {limit}"
    if sizes[0] < 1 or len(sizes) > t.case["most"]:
        return f"between 1 and {t.case['most']} sizes of at least 1, got {sizes}"
    odd = [size for size in sizes[:-1] if t.rule == "b" and size % t.case["align"]]
    return f"{odd[0]} is no multiple of {t.case['align']}" if odd else None


@checks.visible("a legal list that ends at the limit", _traffic())
def is_legal(t: Trial) -> str | None:
    """Require form, limit and rule."""
    return _is_legal(t)


@checks.visible("not worse than powers of two, or than the limit alone", _traffic())
def beats_habits(t: Trial) -> str | None:
    """Require at most the cost of two lists that need no thought."""
    wrong = _is_legal(t)
    if wrong:
        return wrong
    unit = t.case["align"] if t.rule == "b" else 1
    powers = [unit << n for n in range(8) if unit << n < t.case["limit"]]
    others = [[*powers[: t.case["most"] - 1], t.case["limit"]], [t.case["limit"]]]
    mine = _cost(t.case, t.got)
    better = next((other for other in others if _cost(t.case, other) * _FIVE_PER_CENT < mine), None)
    return None if better is None else f"{t.got} costs {mine}, {better} costs {_cost(t.case, better)}"


@checks.visible("no single change makes it much better", _traffic())
def is_locally_best(t: Trial) -> str | None:
    """Require that leaving one size out, or putting one in or elsewhere, gains at most five per cent."""
    wrong = _is_legal(t)
    if wrong:
        return wrong
    mine, limit = _cost(t.case, t.got), t.case["limit"]
    unit = t.case["align"] if t.rule == "b" else 1
    for kept in [t.got, *([s for s in t.got if s != gone] for gone in t.got[:-1])]:
        for more in [[], *([size] for size in range(unit, limit, unit) if size not in kept)]:
            other = sorted([*kept, *more])
            if len(other) <= t.case["most"] and _cost(t.case, other) * _FIVE_PER_CENT < mine:
                return f"{t.got} costs {mine}, {other} costs {_cost(t.case, other)}"
    return None


def _best(case: Case, rule: str) -> float:
    """Return the least cost, over the sizes from small to large."""
    unit = case["align"] if rule == "b" else 1
    sizes = [*range(unit, case["limit"], unit), case["limit"]]
    least: dict[tuple[int, int], float] = {(0, 0): 0}
    for size in sizes:
        for (used, last), cost in list(least.items()):
            if used < case["most"]:
                waste = sum(steps * (size - batch) for batch, steps in case["histogram"] if last < batch <= size)
                key = (used + 1, size)
                least[key] = min(least.get(key, float("inf")), cost + waste + case["graph_cost"])
    return min(cost for (_, last), cost in least.items() if last == case["limit"])


def _is_best(t: Trial) -> str | None:
    wrong = _is_legal(t)
    if wrong:
        return wrong
    mine, best = _cost(t.case, t.got), _best(t.case, t.rule)
    return None if mine <= best * _FIVE_PER_CENT else f"{t.got} costs {mine}, the best list costs {best:g}"


@checks.hidden("within five per cent of the best", _traffic(most=8))
def is_best(t: Trial) -> str | None:
    """Require a cost near the optimum."""
    return _is_best(t)


@checks.hidden("few sizes allowed", _traffic(most=2, most_limit=40))
def is_best_of_few(t: Trial) -> str | None:
    """Require the same where the number of sizes binds."""
    return _is_best(t)


@checks.hidden("one size only", _traffic(most=1))
def takes_the_limit(t: Trial) -> str | None:
    """Require the limit alone."""
    return None if t.got == [t.case["limit"]] else f"one size is allowed: [{t.case['limit']}]"
