"""What must hold for ``promoted``. Does not: promote anybody."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import Pair


def _context(at: int, done: int, take: int, prompt: int, slot: int | None = None) -> dict[str, Any]:
    return {"id": at, "done": done, "take": take, "prompt": prompt, "slot": slot}


_TWO = [_context(5, 7, 1, 8), _context(3, 2, 1, 3)]

checks = Checks(
    returns=[Pair((int, int))],
    examples=(
        Example({"contexts": _TWO, "graphs_on": True, "num_drafts": 0}, [[5, 7], [3, 2]], rule="a"),
        Example({"contexts": _TWO, "graphs_on": True, "num_drafts": 0}, [[3, 2], [5, 7]], rule="b"),
        Example({"contexts": [*_TWO, _context(9, 0, 4, 4)], "graphs_on": True, "num_drafts": 0}, []),
        Example({"contexts": _TWO, "graphs_on": True, "num_drafts": 2}, []),
    ),
)


@st.composite
def _contexts(
    draw: st.DrawFn, *, final: bool | None = None, slots: bool = False, least: int = 1
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for at in range(draw(st.integers(least, 4))):
        done = draw(st.integers(0, 12))
        is_final = draw(st.booleans()) if final is None else final
        take = 1 if is_final else draw(st.integers(1, 5))
        left = 0 if is_final else draw(st.integers(0 if take > 1 else 1, 4))
        slot = draw(st.integers(0, 9)) if slots else None
        found.append(_context(20 - 3 * at, done, take, done + take + left, slot))
    return found


def _steps(contexts: Any, *, graphs: Any = None, drafts: Any = None) -> st.SearchStrategy[Case]:
    flag = st.just(value=True) if graphs is None else graphs
    return st.fixed_dictionaries(
        {"contexts": contexts, "graphs_on": flag, "num_drafts": st.just(0) if drafts is None else drafts}
    )


def _is_final(one: dict[str, Any]) -> bool:
    return one["take"] == 1 and one["done"] + 1 == one["prompt"]


def _is_promoted(t: Trial) -> str | None:
    """Require a row for each context at its own cursor."""
    rows = dict(t.got)
    for one in t.case["contexts"]:
        if one["id"] not in rows:
            return f"context {one['id']} has one token left and is not promoted"
        if rows[one["id"]] != one["done"]:
            return f"the last token of context {one['id']} stands at {one['done']}, not at {rows[one['id']]}"
    if len(t.got) != len(t.case["contexts"]):
        return "each context has one row"
    order = [[one["id"], one["done"]] for one in t.case["contexts"]]
    if t.rule == "b":
        order.sort(key=lambda row: (row[1], row[0]))
    return None if t.got == order else "the rows stand in another order than the rule says"


@checks.visible("single last tokens become rows", _steps(_contexts(final=True)))
def promotes(t: Trial) -> str | None:
    """Require promotion when every context is its prompt's last token."""
    return _is_promoted(t)


@checks.visible("all or none", _steps(_contexts()))
def is_all_or_none(t: Trial) -> str | None:
    """Require no promotion beside a real prefill."""
    blocking = [one["id"] for one in t.case["contexts"] if not _is_final(one)]
    if blocking and t.got:
        return f"context {blocking[0]} keeps the step from the decode graph, so promoting {t.got} is of no use"
    return None if blocking else _is_promoted(t)


@checks.visible(
    "no graphs, or drafts in the step", _steps(_contexts(final=True), graphs=st.booleans(), drafts=st.integers(0, 2))
)
def needs_a_graph(t: Trial) -> str | None:
    """Require the gates."""
    if not t.case["graphs_on"] or t.case["num_drafts"]:
        return "there is no decode graph that these rows could join" if t.got else None
    return _is_promoted(t)


@checks.hidden("a stale slot means nothing", _steps(_contexts(final=True, slots=True)))
def ignores_slots(t: Trial) -> str | None:
    """Require the cursor's position whatever slot an earlier life has left."""
    return _is_promoted(t)


@checks.hidden("nothing to promote", _steps(st.just([])))
def takes_none(t: Trial) -> str | None:
    """Require an empty list without contexts."""
    return "there are no contexts" if t.got else None


@st.composite
def _unfinished(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = draw(_contexts(final=True))
    at = draw(st.integers(0, len(found) - 1))
    found[at] = {**found[at], "prompt": found[at]["prompt"] + draw(st.integers(1, 3))}
    return found


@checks.hidden("a chunk that is not the last", _steps(_unfinished()))
def needs_the_end(t: Trial) -> str | None:
    """Require that a chunk of one token inside a prompt is no decode."""
    return "a chunk that does not end its prompt wants no logit: it is no decode" if t.got else None
