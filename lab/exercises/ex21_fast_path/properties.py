"""What must hold for ``may_advance``: it says yes where deriving gives the full path's inputs, and nowhere else.

Does not: decide about a step.
"""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial


def _last(ids: list[int], **changed: Any) -> dict[str, Any]:
    return {"ids": ids, "contexts": 0, "drafts": 0, "padding": 0, "warmup": False, **changed}


def _now(ids: list[int], **changed: Any) -> dict[str, Any]:
    return {"ids": ids, "contexts": 0, "drafts": 0, "warmup": False, "samples": True, "grown": [], **changed}


checks = Checks(
    returns=bool,
    examples=(
        Example({"last": _last([4, 7]), "now": _now([4, 7])}, answer=True),
        Example({"last": _last([4, 7]), "now": _now([4, 9])}, answer=False),
        Example({"last": None, "now": _now([4])}, answer=False),
        Example({"last": _last([4, 7]), "now": _now([4, 7], grown=[7])}, answer=True, rule="a"),
        Example({"last": _last([4, 7]), "now": _now([4, 7], grown=[7])}, answer=False, rule="b"),
    ),
)

_ids = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)
_rare = st.sampled_from([False, False, False, True])
_DISTURBED = {
    "last": {"contexts": 1, "drafts": 2, "warmup": True},
    "now": {"contexts": 2, "drafts": 1, "warmup": True, "samples": False},
}


@st.composite
def _pairs(draw: st.DrawFn, *, quiet: bool = False, change: str = "") -> Case:
    ids = draw(_ids)
    last, now = _last(ids), _now(list(ids))
    if not quiet:
        fields = [(which, name) for which, names in _DISTURBED.items() for name in names]
        for which, name in draw(st.lists(st.sampled_from(fields), max_size=2)):
            (last if which == "last" else now)[name] = _DISTURBED[which][name]
    if change == "swap":
        now["ids"] = [*ids[1:], 20 + ids[0]] if draw(st.booleans()) else [20 + ids[0], *ids[1:]]
    if change == "order":
        ids = draw(st.lists(st.integers(1, 9), min_size=2, max_size=4, unique=True))
        last["ids"], now["ids"] = ids, draw(st.permutations(ids).map(list))
    if change == "padding":
        last["padding"] = draw(st.integers(0, 3))
    if change == "grown":
        now["grown"] = draw(st.lists(st.sampled_from(ids), max_size=2, unique=True))
    if change == "any":
        other = draw(st.one_of(st.just(ids), st.just(ids[::-1]), _ids))
        now["ids"] = list(other)
        return {"last": None if draw(_rare) else last, "now": now}
    return {"last": last, "now": now}


def _row_facts(step: dict[str, Any], *, advanced: bool) -> list[tuple[str, int]]:
    """Write a step's rows as the full path lays them out: kind and owner, in order."""
    rows = [("context", -at) for at in range(step["contexts"])] if not advanced else []
    rows += [("decode", owner) for owner in step["ids"]]
    return rows + ([("draft", 0)] * step["drafts"] if not advanced else [])


def _is_safe(t: Trial) -> bool:
    """Whether adding one and gathering by the last step's slots gives the rows of the full path."""
    last, now = t.case["last"], t.case["now"]
    if last is None or not now["samples"] or last["warmup"] or now["warmup"]:
        return False
    if _row_facts(last, advanced=False) != _row_facts(last, advanced=True) or last["padding"]:
        return False
    if t.rule == "b" and now["grown"]:
        return False
    return _row_facts(now, advanced=False) == _row_facts(last, advanced=True)


def _verdict(t: Trial) -> str | None:
    safe = _is_safe(t)
    if t.got and not safe:
        return "deriving this step gives other inputs than the full path"
    return "deriving this step is safe, and it takes the full path" if safe and not t.got else None


@checks.visible("whenever it says yes, the derived step is right", _pairs(change="any"))
def is_sound(t: Trial) -> str | None:
    """Require no yes to a step that differs."""
    return _verdict(t) if t.got else None if not _is_safe(t) else _verdict(t)


@checks.visible("a quiet step takes the path", _pairs(quiet=True))
def is_useful(t: Trial) -> str | None:
    """Require a yes to the plain case."""
    return _verdict(t)


@checks.visible("contexts, drafts, warm-up and missing samples", _pairs())
def looks_at_all(t: Trial) -> str | None:
    """Require a look at every field."""
    return _verdict(t)


@checks.hidden("one left and one joined", _pairs(quiet=True, change="swap"))
def sees_a_swap(t: Trial) -> str | None:
    """Require a no to a batch of equal size with another request."""
    return _verdict(t)


@checks.hidden("the same requests in another order", _pairs(quiet=True, change="order"))
def sees_order(t: Trial) -> str | None:
    """Require a no to another order, and a yes to the same."""
    return _verdict(t)


@checks.hidden("a batch that was padded", _pairs(quiet=True, change="padding"))
def sees_padding(t: Trial) -> str | None:
    """Require a no after a padded step: a dummy has no sample."""
    return _verdict(t)


@checks.hidden("block tables that grew", _pairs(quiet=True, change="grown"))
def sees_growth(t: Trial) -> str | None:
    """Require what the rule says."""
    return _verdict(t)
