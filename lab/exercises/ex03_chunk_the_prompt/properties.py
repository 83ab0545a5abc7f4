"""What must hold for ``cut``. Does not: cut a prompt."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import Pair, counted

checks = Checks(
    returns=[Pair((int, int, bool))],
    examples=(
        Example({"prompt": 10, "cached": 0, "rows": 5, "unit": 4}, [[0, 4, False], [4, 4, False], [8, 2, True]]),
        Example({"prompt": 6, "cached": 2, "rows": 8, "unit": 4}, [[2, 4, True]]),
        Example({"prompt": 12, "cached": 3, "rows": 5, "unit": 4}, [[3, 5, False], [8, 4, True]], rule="a"),
        Example({"prompt": 12, "cached": 3, "rows": 5, "unit": 4}, [[3, 4, False], [7, 5, True]], rule="b"),
    ),
)


@st.composite
def _prompts(draw: st.DrawFn, *, hit: bool = False, nearly_all: bool = False) -> Case:
    unit = draw(st.integers(1, 6))
    prompt = draw(st.integers(2 if hit or nearly_all else 1, 40))
    cached = prompt - 1 if nearly_all else draw(st.integers(1 if hit else 0, prompt - 1))
    return {"prompt": prompt, "cached": cached, "rows": draw(st.integers(unit, unit + 12)), "unit": unit}


@checks.visible("the chunks are the uncached part, once and in order", _prompts())
def partitions(t: Trial) -> str | None:
    """Require that each chunk begins where the one before ended."""
    at = t.case["cached"]
    for start, length, _ in t.got:
        if length < 1:
            return "a chunk has at least one token"
        if start != at:
            return f"the next token to compute is at position {at}, a chunk begins at {start}"
        at += length
    return None if at == t.case["prompt"] else f"the chunks end at {at}, the prompt at {t.case['prompt']}"


@checks.visible("no chunk exceeds its step", _prompts())
def fits(t: Trial) -> str | None:
    """Require at most the rows of a step."""
    longest = max((length for _, length, _ in t.got), default=0)
    return None if longest <= t.case["rows"] else f"a chunk of {counted(longest, 'row')} in a step of {t.case['rows']}"


@checks.visible("chunks that are not the last keep to the unit, and only the last is last", _prompts())
def keeps_unit(t: Trial) -> str | None:
    """Require units as the rule says, and the flag on the last chunk alone."""
    for at, (start, length, is_last) in enumerate(t.got):
        if is_last != (at == len(t.got) - 1):
            return f"chunk {at} of {len(t.got)} says is_last={is_last}"
        edge = start + length if t.rule == "a" else length
        if not is_last and edge % t.case["unit"]:
            what = f"ends at {edge}" if t.rule == "a" else f"has {counted(edge, 'token')}"
            return f"chunk {at} {what}, no multiple of {t.case['unit']}"
    return None


def _wastes(t: Trial) -> str | None:
    """Say where a chunk could have been longer by a unit (or by the rest of the prompt)."""
    for at, (start, length, is_last) in enumerate(t.got):
        left = t.case["prompt"] - start
        could = left if left <= t.case["rows"] else length + t.case["unit"]
        if not is_last and length < could <= t.case["rows"]:
            return f"chunk {at} has {counted(length, 'token')}, {could} would fit"
    return None


@checks.hidden("a prefix hit that ends inside a unit", _prompts(hit=True))
def continues_hit(t: Trial) -> str | None:
    """Require everything at once, where something is cached."""
    return partitions(t) or fits(t) or keeps_unit(t)


@checks.hidden("all but one token cached", _prompts(nearly_all=True))
def computes_one(t: Trial) -> str | None:
    """Require one chunk of one token."""
    wanted = [[t.case["prompt"] - 1, 1, True]]
    return None if t.got == wanted else f"one token is left to compute: {wanted}"


@checks.hidden("no step is wasted", _prompts())
def is_greedy(t: Trial) -> str | None:
    """Require chunks as long as they may be."""
    return _wastes(t)
