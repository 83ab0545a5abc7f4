"""Write each exercise's ``visible.json``: cases on which the wrong solutions differ, and hashes of what they answer.

    python -m tests.exercises.build ex16        (or several, or none for all)

A few small cases a wrong solution, and one more wherever two of them could be mistaken for each other.

Does not: store a right answer, or the hash of one.
"""

import itertools
import json
import sys

import hypothesis

from lab.exercises.callers import LocalCaller
from lab.exercises.catalogue import load
from lab.exercises.child import load_answer
from lab.exercises.exercise import Case, Exercise
from lab.exercises.naming import PREDICTED, hashed
from lab.exercises.shape import canonical
from tests.exercises.answers import Answer, all_exercises, answers

NUM_DRAWN = 60
NUM_CASES = 4  # for each wrong solution


def drawn(exercise: Exercise, *, hidden: bool) -> list[Case]:
    """Return cases that the properties draw, the smallest first."""
    found: dict[str, Case] = {}
    for one in exercise.checks.properties:
        if one.is_hidden == hidden:

            def keep(case: Case) -> None:
                found.setdefault(canonical(case), case)

            settings = hypothesis.settings(
                max_examples=NUM_DRAWN,
                database=None,
                deadline=None,
                phases=[hypothesis.Phase.generate],
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            hypothesis.seed(7)(settings(hypothesis.given(one.cases)(keep)))()
    return [found[text] for text in sorted(found, key=lambda text: (len(text), text))]


def marks(exercise: Exercise, answer: Answer, rule: str, cases: list[Case]) -> list[str]:
    """Return what an answer makes of each case."""
    caller = LocalCaller(exercise, load_answer(answer.source, answer.name, rule))
    return [caller(case).mark for case in cases]


def visible(exercise: Exercise) -> dict:
    """Return what visible.json should hold."""
    shown = drawn(exercise, hidden=False)
    cases = shown + [case for case in drawn(exercise, hidden=True) if case not in shown]
    rules = [rule.id for rule in exercise.meta.rules]
    wrong = answers(exercise, "wrong")
    [solution] = answers(exercise, "solution")
    differs: dict[tuple[str, str], dict[int, str]] = {}
    for rule in rules:
        right = marks(exercise, solution, rule, cases)
        for answer in wrong:
            got = marks(exercise, answer, rule, cases)
            differs[rule, answer.name] = {i: g for i, (r, g) in enumerate(zip(right, got, strict=True)) if r != g}
    chosen: set[int] = set()
    for (rule, name), mine in differs.items():
        assert mine, f"{exercise.id} {rule}: {name} is never wrong on {len(cases)} cases"
        chosen.update(sorted(mine)[:NUM_CASES])
    for rule in rules:
        for one, other in itertools.combinations([answer.name for answer in wrong], 2):
            mine, theirs = differs[rule, one], differs[rule, other]
            apart = [i for i in sorted(mine.keys() | theirs.keys()) if mine.get(i) != theirs.get(i)]
            assert apart, f"{exercise.id} {rule}: {one} and {other} are the same"
            if not chosen & set(apart):
                chosen.add(apart[0])
    kept = sorted(chosen)
    salt = f"stepscope-{exercise.id}"
    names = {
        rule: [
            {
                "id": answer.name,
                "text": answer.text,
                "marks": {
                    str(at): hashed(salt, at, differs[rule, answer.name][index])
                    for at, index in enumerate(kept)
                    if index in differs[rule, answer.name]
                },
            }
            for answer in wrong
        ]
        for rule in rules
    }
    return {
        "salt": salt,
        "cases": [cases[index] for index in kept],
        "prediction": {rule: predicted(exercise, rule, salt) for rule in rules},
        "misconceptions": names,
    }


def predicted(exercise: Exercise, rule: str, salt: str) -> dict:
    """Return the hashed answer to the case to be predicted, and which wrong idea leads to which hashed answer."""
    if exercise.checks.prediction is None:
        return {}
    case = [exercise.checks.prediction.case]
    [right] = [marks(exercise, answer, rule, case)[0] for answer in answers(exercise, "solution")]
    wrong = {marks(exercise, answer, rule, case)[0]: answer.text for answer in reversed(answers(exercise, "wrong"))}
    wrong.pop(right, None)
    return {
        "right": hashed(salt, PREDICTED, right),
        "wrong": {hashed(salt, PREDICTED, mark): text for mark, text in wrong.items()},
    }


def main() -> None:
    """Write the files."""
    for exercise in [load(name) for name in sys.argv[1:]] or all_exercises():
        text = json.dumps(visible(exercise), separators=(",", ":"))
        text = (
            text.replace('{"id"', '\n {"id"')
            .replace('"misconceptions"', '\n"misconceptions"')
            .replace('"prediction"', '\n"prediction"')
        )
        (exercise.folder / "visible.json").write_text(text + "\n", encoding="utf-8")
        sys.stdout.write(f"{exercise.id} {len(text)}\n")


if __name__ == "__main__":
    main()
