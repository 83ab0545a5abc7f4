"""Grade a folder of submissions: two answers at a time, resumable, with a progress bar.

Submissions lie as nbgrader collects them, ``STUDENT/SET/*.ipynb``, or simply as ``STUDENT/*.ipynb`` or
``STUDENT.ipynb``. Each graded answer is kept under a name made of everything that decides about it; what is kept is
not graded again.

Does not: judge (``grading.py``), or word a report.
"""

import concurrent.futures
import dataclasses
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from engine.errors import ExerciseError
from engine.fields import shown
from lab.classroom.course import Course
from lab.classroom.gradebook import entry
from lab.classroom.grading import cache_key, grade_answer
from lab.classroom.submissions import ANSWER, Answer, read_submission
from lab.exercises.catalogue import exercise_id, problem_sets

TIMINGS: Final = "timings.json"
AT_A_TIME: Final = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """One student's notebooks for one problem set."""

    student: str
    set_name: str
    paths: tuple[Path, ...]

    @property
    def timestamp(self) -> str:
        """When it was collected, as nbgrader noted it beside the notebook; empty where nobody did."""
        notes = [path.parent / "timestamp.txt" for path in self.paths]
        return next((note.read_text(encoding="utf-8").strip() for note in notes if note.is_file()), "")


@dataclasses.dataclass(frozen=True, slots=True)
class _Job:
    """One answer to grade. kept: where the graded answer is kept."""

    student: str
    exercise: str
    answer: Answer
    rule: str
    kept: Path


def find_submissions(folder: Path, set_name: str | None = None) -> list[Submission]:
    """Return what lies in a folder, by student. Raises: ExerciseError when there is nothing, or for an unknown set."""
    if set_name is not None and set_name not in problem_sets():
        message = f"there is no problem set {shown(set_name)}; there are {', '.join(problem_sets())}"
        raise ExerciseError(message)
    if not folder.is_dir():
        message = f"there is no folder {folder}"
        raise ExerciseError(message)
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(folder.rglob("*.ipynb")):
        parts = path.relative_to(folder).parts
        if any(part.startswith(".") for part in parts):
            continue
        student = path.stem if len(parts) == 1 else parts[0]
        named = parts[1] if len(parts) > 2 and parts[1] in problem_sets() else _set_of(path)
        if named is not None and set_name in (None, named):
            found.setdefault((student, named), []).append(path)
    if not found:
        message = f"there are no notebooks of a problem set in {folder}; expected STUDENT/SET/*.ipynb or STUDENT.ipynb"
        raise ExerciseError(message)
    return [Submission(student, named, tuple(paths)) for (student, named), paths in sorted(found.items())]


def _set_of(path: Path) -> str | None:
    """Return the problem set whose name the file has, or most of whose answer cells it holds."""
    named = next((name for name in problem_sets() if name in path.stem), None)
    if named is not None:
        return named
    text = path.read_text(encoding="utf-8", errors="replace")
    counts = {
        name: sum(f'"{one}{ANSWER}"' in text for one in (*chosen["exercises"], *chosen["further"]))
        for name, chosen in problem_sets().items()
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def grade_all(
    submissions: Sequence[Submission],
    course: Course,
    out: Path,
    *,
    seed: str,
    only: str | None = None,
    quiet: bool = False,
) -> list[dict[str, Any]]:
    """Grade and return the gradebook's entries; with ``only``, of that exercise. Raises: ExerciseError."""
    chosen = exercise_id(only) if only is not None else None
    kept = out / "graded"
    kept.mkdir(parents=True, exist_ok=True)
    jobs: dict[tuple[str, str], list[_Job]] = {}
    for one in submissions:
        names = [name for name in course.exercises(one.set_name) if chosen in (None, name)]
        answers = read_submission(one.paths, names)
        jobs[one.student, one.set_name] = [
            _job(one.student, name, answers[name], course, kept=kept, seed=seed) for name in names
        ]
    times = _run([job for some in jobs.values() for job in some if not job.kept.is_file()], seed, quiet=quiet)
    _note_times(out, times)
    return [
        entry(
            course,
            one.set_name,
            one.student,
            [json.loads(job.kept.read_text(encoding="utf-8")) for job in jobs[one.student, one.set_name]],
            one.timestamp,
        )
        for one in submissions
        if jobs[one.student, one.set_name]
    ]


def _job(student: str, exercise: str, answer: Answer, course: Course, *, kept: Path, seed: str) -> _Job:
    rule = course.rule(exercise, student)
    key = cache_key(exercise, answer, rule=rule, seed=seed)
    return _Job(student, exercise, answer, rule, kept / f"{exercise}-{key}.json")


def _grade_job(job: _Job, seed: str) -> float:
    """Grade one answer in a worker process and keep it. Returns: seconds."""
    began = time.perf_counter()
    graded = grade_answer(job.exercise, job.answer, rule=job.rule, seed=seed)
    draft = job.kept.with_suffix(f".{job.student}.draft")
    draft.write_text(json.dumps(graded, indent=1, sort_keys=True, ensure_ascii=False), encoding="utf-8")
    draft.replace(job.kept)  # whole or not at all: an interrupted grading leaves no half answer
    return time.perf_counter() - began


def _run(jobs: list[_Job], seed: str, *, quiet: bool) -> dict[str, float]:
    from tqdm import tqdm

    unique = list({job.kept: job for job in jobs}.values())  # equal answers are graded once
    if not unique:
        return {}
    times: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(min(AT_A_TIME, len(unique)), mp_context=context) as pool,
        tqdm(total=len(unique), desc="grading", unit="answer", disable=quiet, file=sys.stderr) as bar,
    ):
        running = {pool.submit(_grade_job, job, seed): job for job in unique}
        try:
            for done in concurrent.futures.as_completed(running):
                job = running[done]
                times[f"{job.student} {job.exercise}"] = round(done.result(), 3)
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return times


def _note_times(out: Path, times: dict[str, float]) -> None:
    """Add the seconds of this run to those of earlier ones; they are apart, since they differ from run to run."""
    path = out / TIMINGS
    before: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**before, **times}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
