"""What must hold for ``capacities``. Does not: size a buffer."""

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import counted

_LIMITS = {"requests": 4, "rows": 16, "longest": 32, "block_size": 8, "most_drafts": 0, "most_beams": 1}
_VERIFY = {"requests": 8, "rows": 16, "longest": 32, "block_size": 8, "most_drafts": 3, "most_beams": 1}

checks = Checks(
    returns={"tokens": int, "gather": int, "lengths": int, "table_width": int},
    examples=(
        Example(_LIMITS, {"tokens": 16, "gather": 4, "lengths": 4, "table_width": 4}),
        Example(_VERIFY, {"tokens": 16, "gather": 16, "lengths": 8, "table_width": 4}),
        Example({**_LIMITS, "longest": 33}, {"tokens": 16, "gather": 4, "lengths": 4, "table_width": 5}, rule="a"),
        Example({**_LIMITS, "longest": 33}, {"tokens": 16, "gather": 4, "lengths": 4, "table_width": 4}, rule="b"),
    ),
)


@st.composite
def _limits(draw: st.DrawFn, *, drafts: int = 4, beams: int = 4, tight: bool = False) -> Case:
    requests = draw(st.integers(1, 12))
    rows = requests if tight else draw(st.integers(requests, 48))
    return {
        "requests": requests,
        "rows": rows,
        "longest": draw(st.integers(rows, 64)),
        "block_size": draw(st.integers(1, 9)),
        "most_drafts": draw(st.integers(0, drafts)),
        "most_beams": draw(st.integers(1, beams)),
    }


def _steps(case: Case) -> list[dict[str, int]]:
    """Build legal steps that strain one buffer each, request by request, and measure what they need."""
    found: list[dict[str, int]] = []
    for kinds in (("prompt",), ("verify",), ("beam",), ("beam", "verify"), ("verify", "beam")):
        step = {"tokens": 0, "gather": 0, "lengths": 0}
        for at in range(case["requests"]):
            left = case["rows"] - step["tokens"] - (case["requests"] - at - 1 if kinds[0] == "prompt" else 0)
            kind = kinds[at % len(kinds)]
            most = {"prompt": left, "verify": 1 + case["most_drafts"], "beam": case["most_beams"]}[kind]
            rows = min(most, left)
            if rows < 1:
                break
            step["tokens"] += rows
            step["gather"] += 1 if kind == "prompt" else rows
            step["lengths"] += rows if kind == "beam" else 1
        found.append(step)
    return found


def _lacks(t: Trial) -> str | None:
    for step in _steps(t.case):
        name = next((name for name, needed in step.items() if t.got[name] < needed), None)
        if name is not None:
            return f"{name}={t.got[name]}, and a legal step needs {step[name]}"
    return None


def _spares(t: Trial) -> str | None:
    for name in ("tokens", "gather", "lengths"):
        most = max(step[name] for step in _steps(t.case))
        if t.got[name] > most:
            return f"{name}={t.got[name]}, and no legal step needs more than {most}"
    return None


@checks.visible("every legal step fits", _limits(drafts=0, beams=1))
def fits(t: Trial) -> str | None:
    """Require room for steps of prompts and plain decodes."""
    return _lacks(t)


@checks.visible("block tables are wide enough, and no wider", _limits())
def has_width(t: Trial) -> str | None:
    """Require the columns that the longest sequence needs."""
    kept = t.case["longest"] - (0 if t.rule == "a" else 1)
    held = t.got["table_width"] * t.case["block_size"]
    if held < kept:
        table = counted(t.got["table_width"], "block")
        return f"a table of {table} holds {counted(held, 'token')}, a sequence keeps up to {kept}"
    return None if held - t.case["block_size"] < kept else f"one column of {t.got['table_width']} is never used"


@checks.visible("nothing is larger than a plain step", _limits(drafts=0, beams=1))
def is_tight(t: Trial) -> str | None:
    """Require no spare entry where nothing has drafts or beams."""
    return _spares(t)


@checks.hidden("drafts and beams", _limits())
def fits_all(t: Trial) -> str | None:
    """Require room for drafts and beams."""
    return _lacks(t)


@checks.hidden("few rows, many requests", _limits(tight=True))
def is_tight_at_the_edge(t: Trial) -> str | None:
    """Require both directions where each request can have one row only."""
    return _lacks(t) or _spares(t)


@checks.hidden("nothing is larger than the largest step", _limits())
def is_tight_with_all(t: Trial) -> str | None:
    """Require no spare entry anywhere."""
    return _spares(t)
