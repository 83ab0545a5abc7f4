"""What must hold for ``tally``. Does not: count a batch."""

import itertools

from hypothesis import strategies as st

from lab.exercises.exercise import Checks, Example, Prediction, Trial
from lab.exercises.shape import counted

checks = Checks(
    returns={"tokens": int, "sequences": int, "lengths": [int]},
    examples=(
        Example(
            {"chunks": [3], "drafts": [2], "beams": [1]},
            {"tokens": 7, "sequences": 3, "lengths": [3, 3, 1]},
            rule="a",
        ),
        Example(
            {"chunks": [3], "drafts": [2], "beams": [1]},
            {"tokens": 7, "sequences": 3, "lengths": [0, 3, 6, 7]},
            rule="b",
        ),
        Example(
            {"chunks": [4, 2], "drafts": [], "beams": []}, {"tokens": 6, "sequences": 2, "lengths": [4, 2]}, rule="a"
        ),
        Example(
            {"chunks": [4, 2], "drafts": [], "beams": []}, {"tokens": 6, "sequences": 2, "lengths": [0, 4, 6]}, rule="b"
        ),
    ),
    prediction=Prediction(
        "Chunks of 5 and 1, one request with 3 drafts, two decodes of one beam: tokens, sequences, lengths?",
        {"chunks": [5, 1], "drafts": [3], "beams": [1, 1]},
    ),
)


def _batches(*, beams: int = 1) -> st.SearchStrategy[dict[str, list[int]]]:
    return st.fixed_dictionaries(
        {
            "chunks": st.lists(st.integers(1, 40), max_size=4),
            "drafts": st.lists(st.integers(0, 4), max_size=4),
            "beams": st.lists(st.integers(1, beams), max_size=4),
        }
    )


def _rows(t: Trial) -> list[int]:
    """Read the rows of each sequence from the answer, whatever the version of the rule."""
    found: list[int] = t.got["lengths"]
    return found if t.rule == "a" else [end - start for start, end in itertools.pairwise(found)]


@checks.visible("lengths and totals agree", _batches(beams=4))
def agrees(t: Trial) -> str | None:
    """Require that the lengths add up to the tokens and that there is one for each sequence."""
    if t.rule == "b" and t.got["lengths"][:1] != [0]:
        return "the first sequence begins at 0"
    rows = _rows(t)
    if len(rows) != t.got["sequences"]:
        return f"lengths speaks of {counted(len(rows), 'sequence')}, sequences says {t.got['sequences']}"
    return (
        None
        if sum(rows) == t.got["tokens"]
        else f"the sequences have {counted(sum(rows), 'row')}, tokens says {t.got['tokens']}"
    )


@checks.visible("drafts are computed beside the token before them", _batches())
def counts_drafts(t: Trial) -> str | None:
    """Require the rows of the verified drafts, where every decode has one beam."""
    first = len(t.case["chunks"])
    rows = _rows(t)[first : first + len(t.case["drafts"])]
    for found, drafts in zip(rows, t.case["drafts"], strict=False):
        if found != drafts + 1:
            return f"a request with {counted(drafts, 'draft')} brings {counted(drafts + 1, 'row')}, not {found}"
    return None if len(rows) == len(t.case["drafts"]) else "a request whose drafts are verified has no sequence"


@checks.visible("prompts are chunks of many tokens, decodes one", _batches())
def counts_chunks(t: Trial) -> str | None:
    """Require the rows of contexts and of decodes of one beam."""
    rows, contexts = _rows(t), t.case["chunks"]
    if rows[: len(contexts)] != contexts:
        return f"the contexts bring {counted(contexts, 'row')} and come first"
    tail = rows[len(contexts) + len(t.case["drafts"]) :]
    return None if tail == [1] * len(t.case["beams"]) else "each decode of one beam brings one row, at the end"


@checks.hidden("beams are sequences too", _batches(beams=4).filter(lambda case: max(case["beams"], default=0) > 1))
def counts_beams(t: Trial) -> str | None:
    """Require one sequence for each beam."""
    wanted = len(t.case["chunks"]) + len(t.case["drafts"]) + sum(t.case["beams"])
    return (
        None
        if t.got["sequences"] == wanted
        else f"the step has {counted(wanted, 'sequence')}, sequences says {t.got['sequences']}"
    )


@checks.hidden("totals do not depend on the order", _batches(beams=3))
def ignores_order(t: Trial) -> str | None:
    """Require the same totals for the reversed lists."""
    other = t.call({name: values[::-1] for name, values in t.case.items()})
    changed = [name for name in ("tokens", "sequences") if other[name] != t.got[name]]
    return f"{changed[0]} changes when the lists are reversed" if changed else None
