"""Grade one answer: every check of its exercise, the hidden ones too, in a child process with limits.

A graded answer is plain JSON, and a function of answer, exercise, rule and seed alone: the same four give the same
bytes.

Does not: find answers (``submissions.py``), or write a gradebook (``gradebook.py``).
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from lab.classroom.submissions import Answer
from lab.exercises.callers import ChildCaller
from lab.exercises.catalogue import load
from lab.exercises.checking import forbidden_imports, import_notes
from lab.exercises.exercise import Exercise
from lab.exercises.judge import EXAMPLES, CheckResult, Effort, judge
from lab.exercises.naming import misconception
from lab.exercises.report import wrong_lines

VERSION: Final = 1  # of a graded answer; a change of the checks' meaning raises it
_NUM_CASES: Final = 80
_NUM_SHRINKS: Final = 200
_MOST_TEXT: Final = 600


def grade_answer(exercise_id: str, answer: Answer, *, rule: str, seed: str) -> dict[str, Any]:
    """Return the graded answer: points, each check with what was wrong, misconception, notes."""
    exercise = load(exercise_id)
    graded: dict[str, Any] = {
        "exercise": exercise_id,
        "rule": rule,
        "points": 0,
        "max_points": exercise.meta.points,
        "version": VERSION,
        "answer_sha256": hashlib.sha256(answer.source.encode()).hexdigest(),
        "checks": [],
        "misconception": None,
        "notes": list(answer.notes),
    }
    if not answer.source.strip():
        return {**graded, "checks": _nothing(exercise, "no answer")}
    if forbidden_imports(answer.source):
        graded["notes"] += import_notes(answer.source)
        return {**graded, "checks": _nothing(exercise, "refused")}
    with ChildCaller(exercise, answer.source) as caller:
        effort = Effort(_NUM_CASES, _NUM_SHRINKS, seed_number(seed, exercise_id))
        results = list(judge(exercise, caller, rule=rule, effort=effort, hidden=True))
        named = None if all(one.passed for one in results) else misconception(exercise, caller, rule=rule)
        if caller.missing_limits:
            graded["notes"].append(f"not limited here: {caller.missing_limits}")
    graded["points"] = sum(one.passed for one in results)
    graded["checks"] = [_as_plain(exercise, one) for one in results]
    graded["misconception"] = None if named is None else {"id": named.id, "text": named.text}
    slow = [one for one in results if one.counterexample is not None and one.counterexample.outcome.kind == "slow"]
    if slow:
        graded["notes"].append(
            f"too slow in {len(slow)} of {len(results)} checks: a case may take {exercise.meta.seconds:g} s of CPU time"
        )
    return graded


def seed_number(seed: str, exercise_id: str) -> int:
    """Return the number with which an exercise's cases are drawn."""
    return int.from_bytes(hashlib.sha256(f"{seed}|{exercise_id}".encode()).digest()[:8])


def exercise_hash(exercise_id: str) -> str:
    """Return a hash of everything that decides about an exercise's marks: its files, and those of the checker."""
    exercise = load(exercise_id)
    checker = [Path(__file__), *sorted(exercise.folder.parent.glob("*.py"))]
    own = [path for path in sorted(exercise.folder.iterdir()) if path.suffix in (".py", ".toml", ".json")]
    digest = hashlib.sha256()
    for path in (*own, *checker):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def cache_key(exercise_id: str, answer: Answer, *, rule: str, seed: str) -> str:
    """Return the name under which a graded answer is kept, so that grading can go on where it stopped."""
    facts = [exercise_id, answer.source, list(answer.notes), rule, seed, exercise_hash(exercise_id), VERSION]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _nothing(exercise: Exercise, why: str) -> list[dict[str, Any]]:
    names = [(EXAMPLES, "examples")]
    names += [(one.name, "hidden" if one.is_hidden else "visible") for one in exercise.checks.properties]
    return [{"name": name, "kind": kind, "passed": False, "problem": why} for name, kind in names]


def _as_plain(exercise: Exercise, result: CheckResult) -> dict[str, Any]:
    wrong = result.counterexample
    problem = None if wrong is None else "\n".join(wrong_lines(exercise, wrong))[:_MOST_TEXT]
    return {"name": result.name, "kind": result.kind, "passed": result.passed, "problem": problem}
