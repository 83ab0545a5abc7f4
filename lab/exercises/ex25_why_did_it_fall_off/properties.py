"""What must hold for ``diagnose``: the engine's own choice, asked before and after the change. Does not: diagnose."""

import itertools
from typing import Any

from hypothesis import strategies as st

from engine.cuda_graphs.key import KeyType, SampleMode
from engine.cuda_graphs.select import GraphFacts, Selection, select_graph
from engine.reasons import FallOff
from lab.exercises.exercise import Case, Checks, Example, Prediction, Trial
from lab.exercises.shape import counted

_WORDS = {
    FallOff.GRAPHS_DISABLED: "graphs off",
    FallOff.HAS_CONTEXT_UNPROMOTED: "prompt",
    FallOff.ABOVE_LARGEST_BUCKET: "above the largest size",
    FallOff.NO_EXACT_BUCKET_PADDING_OFF: "between sizes",
    FallOff.NO_DUMMY_SLOT: "no dummy",
    FallOff.SAMPLER_MODE_NOT_CAPTURED: "sampler",
}


def _case(requests: int, *, contexts: int = 0, samples: bool = False, **config: Any) -> Case:
    whole = {"graphs": True, "sizes": [1, 2, 4, 8], "padding": True, "dummy": True, "samplers": ["greedy"], **config}
    return {"step": {"contexts": contexts, "requests": requests, "samples": samples}, "config": whole}


_GREW = [1, 2, 4, 5, 8]

checks = Checks(
    returns={"reason": (str, None), "change": object},
    examples=(
        Example(_case(3), {"reason": None, "change": {}}),
        Example(_case(9), {"reason": "above the largest size", "change": {"sizes": [1, 2, 4, 8, 9]}}),
        Example(_case(3, contexts=1), {"reason": "prompt", "change": {}}),
        Example(_case(5, dummy=False), {"reason": "no dummy", "change": {"dummy": True}}, rule="a"),
        Example(_case(5, dummy=False), {"reason": "no dummy", "change": {"sizes": _GREW}}, rule="b"),
    ),
    prediction=Prediction("The reason and the change?", _case(5, padding=False)),
)


@st.composite
def _steps(draw: st.DrawFn, *, faults: int = 1, contexts: int = 0) -> Case:
    sizes = sorted(draw(st.lists(st.integers(1, 12), min_size=1, max_size=4, unique=True)))
    config: dict[str, Any] = {"sizes": sizes, "samplers": ["full", "greedy"]}
    samples = draw(st.booleans())
    for fault in draw(
        st.lists(st.sampled_from(["graphs", "padding", "dummy", "samplers"]), max_size=faults, unique=True)
    ):
        config[fault] = (["greedy"] if samples else ["full"]) if fault == "samplers" else False
    return _case(draw(st.integers(1, 14)), contexts=draw(st.integers(0, contexts)), samples=samples, **config)


def _chosen(step: dict[str, Any], config: dict[str, Any]) -> Selection:
    """Ask the engine which graph this step would get."""
    keys = {
        KeyType(batch_size=size, draft_len=0, sample_mode=SampleMode(mode))
        for size in config["sizes"]
        for mode in config["samplers"]
    }
    return select_graph(
        GraphFacts(
            num_requests=step["requests"],
            num_contexts=step["contexts"],
            draft_len=0,
            sample_mode=SampleMode.FULL if step["samples"] else SampleMode.GREEDY,
            graphs_enabled=config["graphs"],
            is_warmup=False,
            padding_enabled=config["padding"],
            buckets=tuple(config["sizes"]),
            max_batch_size=64,
            dummy_available=config["dummy"],
            captured=frozenset(keys),
        )
    )


def _remedies(t: Trial) -> dict[str, Any]:
    """Return the one value of each entry that may change."""
    sizes = sorted({*t.case["config"]["sizes"], t.case["step"]["requests"]})
    return {"graphs": True, "padding": True, "dummy": True, "sizes": sizes, "samplers": ["full", "greedy"]}


def _helps(t: Trial, names: tuple[str, ...]) -> bool:
    remedies = _remedies(t)
    return _chosen(t.case["step"], {**t.case["config"], **{name: remedies[name] for name in names}}).key is not None


def _smallest(t: Trial) -> int | None:
    """Return how many entries must change; None when nothing helps."""
    names = list(_remedies(t))
    counts = (k for k in range(len(names) + 1) for some in itertools.combinations(names, k) if _helps(t, some))
    return next(counts, None)


def _reason(t: Trial) -> str | None:
    reason = _chosen(t.case["step"], t.case["config"]).reason
    wanted = None if reason is None else _WORDS[reason]
    return None if t.got["reason"] == wanted else f"the engine's own reason is {wanted!r}"


def _change(t: Trial) -> str | None:
    change, remedies, least = t.got["change"], _remedies(t), _smallest(t)
    if not isinstance(change, dict):
        return "the change is a dictionary"
    names: list[str] = list(change)
    if least is None:
        return None if not names else "no entry gives this step a graph, so nothing is changed"
    odd = [name for name in names if name not in remedies or change[name] != remedies[name]]
    if odd:
        return f"{odd[0]!r} is no entry, or {change[odd[0]]!r} is none of its remedies"
    if not _helps(t, tuple(names)):
        after = _chosen(t.case["step"], {**t.case["config"], **change}).reason
        return f"after this change the step still has no graph: {_WORDS.get(after, after) if after else after}"
    return None if len(names) == least else f"changed: {counted(len(names), 'entry')}; {least} would do"


def _tie(t: Trial) -> str | None:
    least, names = _smallest(t), list(t.got["change"])
    if least is None or _change(t) is not None:
        return _change(t)
    same = [some for some in itertools.combinations(_remedies(t), least) if _helps(t, some)]
    preferred = [some for some in same if ("sizes" in some) == (t.rule == "b")]
    if preferred and ("sizes" in names) != (t.rule == "b"):
        return f"equally small, and to be preferred here: {list(preferred[0])}"
    return None


@checks.visible("the reason is the engine's own", _steps())
def gives_reason(t: Trial) -> str | None:
    """Require the first condition that fails."""
    return _reason(t)


@checks.visible("with the change the step gets a graph", _steps())
def gives_change(t: Trial) -> str | None:
    """Require a change that the engine accepts."""
    return _change(t)


@checks.visible("of equal changes the one that the rule prefers", _steps())
def breaks_ties(t: Trial) -> str | None:
    """Require the preferred change."""
    return _tie(t)


@checks.hidden("several things at once", _steps(faults=4))
def takes_several(t: Trial) -> str | None:
    """Require the first reason and a whole change."""
    return _reason(t) or _change(t)


@checks.hidden("no change larger than need be", _steps(faults=3))
def is_minimal(t: Trial) -> str | None:
    """Require the smallest change, and the preferred one of several."""
    return _tie(t)


@checks.hidden("nothing helps a prompt", _steps(faults=2, contexts=2))
def knows_prompts(t: Trial) -> str | None:
    """Require an empty change where there are contexts."""
    return _reason(t) or _change(t)
