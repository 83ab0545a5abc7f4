"""What must hold for ``graph_key``. Does not: make a key."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial
from lab.exercises.shape import Pair, counted


def _request(drafts: int = 0, temperature: float = 0.0, token: int = 5, position: int = 9) -> dict[str, Any]:
    return {"token": token, "position": position, "drafts": drafts, "temperature": temperature}


def _step(requests: list[dict[str, Any]], **changed: Any) -> Case:
    return {"step": {"contexts": [], "requests": requests, "beams": 1, "all_greedy": True, **changed}}


checks = Checks(
    returns=(Pair((int, int, str, int)), None),
    examples=(
        Example(_step([_request(), _request()]), [2, 0, "greedy", 1]),
        Example(_step([_request(temperature=0.7)], all_greedy=False), [1, 0, "full", 1]),
        Example(_step([_request()], contexts=[4, 7]), None),
        Example(_step([_request(2), _request(1)]), None, rule="a"),
        Example(_step([_request(2), _request(1)]), [2, 2, "greedy", 1], rule="b"),
    ),
)

_heat = st.sampled_from([0.0, 0.0, 0.7, 1.0])


@st.composite
def _steps(draw: st.DrawFn, *, mixed: bool = False, stale: bool = False, contexts: bool = False) -> Case:
    count = draw(st.integers(1, 5))
    drafts = draw(st.integers(0, 3))
    requests = [
        _request(
            draw(st.integers(0, 3)) if mixed else drafts,
            draw(_heat),
            draw(st.integers(1, 99)),
            draw(st.integers(0, 50)),
        )
        for _ in range(count)
    ]
    is_greedy = all(one["temperature"] == 0 for one in requests)
    flag = draw(st.booleans()) if stale else is_greedy
    chunks = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)) if contexts else []
    return _step(requests, beams=draw(st.integers(1, 3)), all_greedy=flag, contexts=chunks)


def _baked(t: Trial) -> list[Any] | None:
    """Return what a capture of this step would bake in: how often which launch happens; None if nothing is captured."""
    step = t.case["step"]
    drafts = {one["drafts"] for one in step["requests"]}
    if step["contexts"] or (t.rule == "a" and len(drafts) > 1):
        return None
    launches = ["row"] * (len(step["requests"]) * step["beams"] * (1 + max(drafts)))
    samples = any(one["temperature"] for one in step["requests"])
    return [launches, len(step["requests"]), step["beams"], "sort and draw" if samples else "best"]


def _describes(t: Trial) -> str | None:
    """Require that the capture can be told from the key, and is."""
    baked = _baked(t)
    if (baked is None) != (t.got is None):
        return "no decode graph can run this step" if baked is None else "a decode graph can run this step"
    if baked is None:
        return None
    requests, drafts, sampler, beams = t.got
    if requests != baked[1] or beams != baked[2] or requests * beams * (1 + drafts) != len(baked[0]):
        return f"a graph for {t.got} launches other shapes than this step has ({counted(len(baked[0]), 'row')})"
    wanted = "greedy" if baked[3] == "best" else "full"
    return None if sampler == wanted else f"the sampler that this step launches is {wanted}"


@checks.visible("equal keys replay the same launches", _steps())
def is_sound(t: Trial) -> str | None:
    """Require shapes and sampler."""
    return _describes(t)


@checks.visible("different numbers of drafts", _steps(mixed=True))
def takes_drafts(t: Trial) -> str | None:
    """Require what the rule says of mixed drafts."""
    return _describes(t)


@checks.visible("contents are not in the key", _steps())
def is_economical(t: Trial) -> str | None:
    """Require the same key for other tokens and positions."""
    step = t.case["step"]
    others = [{**one, "token": one["token"] + 1, "position": one["position"] + 1} for one in step["requests"]]
    other = t.call({"step": {**step, "requests": others[::-1]}})
    return _describes(t) or (None if other == t.got else f"other tokens and positions give another key: {other}")


@checks.hidden("a stale flag", _steps(stale=True))
def ignores_the_flag(t: Trial) -> str | None:
    """Require that the sampler follows from the requests."""
    return _describes(t)


@checks.hidden("prompts of any size", _steps(contexts=True))
def refuses_contexts(t: Trial) -> str | None:
    """Require None whatever the sizes are."""
    return _describes(t)


@checks.hidden("no key too many", _steps())
def is_coarse(t: Trial) -> str | None:
    """Require that one temperature is as good as another, as long as it is none."""
    step = t.case["step"]
    hot = [{**one, "temperature": one["temperature"] * 0.5} for one in step["requests"]]
    other = t.call({"step": {**step, "requests": hot}})
    return _describes(t) or (None if other == t.got else "another temperature gives another key")
