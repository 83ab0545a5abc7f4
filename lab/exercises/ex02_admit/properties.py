"""What must hold for ``admit``. Does not: admit anybody."""

from typing import Any

from hypothesis import strategies as st

from lab.exercises.exercise import Case, Checks, Example, Trial


def _request(at: int, prompt: int, generated: int = 0, most: int = 4) -> dict[str, int]:
    return {"id": at, "prompt": prompt, "generated": generated, "most": most}


checks = Checks(
    returns=[int],
    examples=(
        Example({"queue": [_request(7, 3), _request(8, 3)], "rows": 5, "places": 9, "blocks": 9, "block_size": 4}, [7]),
        Example({"queue": [_request(7, 3), _request(8, 3)], "rows": 9, "places": 9, "blocks": 3, "block_size": 4}, [7]),
        Example(
            {"queue": [_request(1, 5), _request(2, 5)], "rows": 20, "places": 9, "blocks": 4, "block_size": 4},
            [1, 2],
            rule="a",
        ),
        Example(
            {"queue": [_request(1, 5), _request(2, 5)], "rows": 20, "places": 9, "blocks": 4, "block_size": 4},
            [1],
            rule="b",
        ),
    ),
)


@st.composite
def _queues(draw: st.DrawFn, *, paused: bool = False) -> Case:
    queue: list[dict[str, int]] = []
    for at in range(draw(st.integers(1, 5))):
        most = draw(st.integers(1, 12))
        generated = draw(st.integers(1 if paused else 0, most - 1)) if paused and most > 1 else 0
        queue.append(_request(10 + at, draw(st.integers(1, 20)), generated, most))
    budgets = {"rows": st.integers(1, 60), "places": st.integers(0, 6), "blocks": st.integers(0, 24)}
    drawn = {name: draw(values) for name, values in budgets.items()}
    return {"queue": queue, **drawn, "block_size": draw(st.integers(1, 5))}


def _spent(t: Trial, taken: list[dict[str, int]]) -> dict[str, int]:
    """Add up what these requests cost."""
    size, spare = t.case["block_size"], 1 if t.rule == "a" else 0
    kept = [one["prompt"] + one["most"] - spare for one in taken]
    known = [one["prompt"] + one["generated"] for one in taken]
    return {"rows": sum(known), "places": len(taken), "blocks": sum(-(-tokens // size) for tokens in kept)}


def _taken(t: Trial) -> list[dict[str, int]] | None:
    queue: list[dict[str, int]] = t.case["queue"]
    front = queue[: len(t.got)]
    return front if [one["id"] for one in front] == t.got else None


def _over(t: Trial, names: tuple[str, ...]) -> str | None:
    taken = _taken(t)
    if taken is None:
        return f"{t.got} is not the front of the queue {[one['id'] for one in t.case['queue']]}"
    spent = _spent(t, taken)
    over = next((name for name in names if spent[name] > t.case[name]), None)
    return None if over is None else f"{t.got} need {spent[over]} {over}, there are {t.case[over]}"


@checks.visible("rows and places suffice", _queues())
def keeps_rows(t: Trial) -> str | None:
    """Require that what is admitted fits the step."""
    return _over(t, ("rows", "places"))


@checks.visible("blocks suffice to the end", _queues())
def keeps_blocks(t: Trial) -> str | None:
    """Require blocks for the whole life of each."""
    return _over(t, ("blocks",))


@checks.visible("nobody waits without need", _queues())
def admits_all_it_can(t: Trial) -> str | None:
    """Require that the first who waits would exceed a budget."""
    taken, queue = _taken(t), t.case["queue"]
    if taken is None or len(taken) == len(queue):
        return None
    spent = _spent(t, queue[: len(taken) + 1])
    fits = all(spent[name] <= t.case[name] for name in spent)
    return f"{queue[len(taken)]['id']} would fit as well" if fits else None


@checks.hidden("a paused request is charged its recompute", _queues(paused=True))
def charges_recompute(t: Trial) -> str | None:
    """Require both directions for requests that computed before."""
    return _over(t, ("rows", "blocks")) or admits_all_it_can(t)


@checks.hidden("more budget never admits less", _queues())
def is_monotone(t: Trial) -> str | None:
    """Require at least as many with one more of everything."""
    more: dict[str, Any] = {name: t.case[name] + 1 for name in ("rows", "places", "blocks")}
    other = t.call({**t.case, **more})
    return None if len(other) >= len(t.got) else f"with one more of everything only {other} are admitted"


@st.composite
def _exact(draw: st.DrawFn) -> Case:
    prompt, most = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    size = draw(st.integers(1, 4))
    kept = prompt + most - draw(st.integers(0, 1))
    rows = prompt - draw(st.integers(0, 1))
    return {
        "queue": [_request(3, prompt, 0, most)],
        "rows": rows,
        "places": 1,
        "blocks": -(-kept // size),
        "block_size": size,
    }


@checks.hidden("exact fits", _exact())
def fits_exactly(t: Trial) -> str | None:
    """Require the right verdict at the edge of a budget."""
    return _over(t, ("rows", "places", "blocks")) or admits_all_it_can(t)
