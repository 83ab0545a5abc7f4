"""Predictions: what a reader said of a step before it was shown, scored, and written down beside the notebook.

``predict(trace, step, "bucket", 4)`` in a cell and a choice in the viewer's predict mode are the same answer: both are
scored against the recorded step and kept in ``answers/<hash of the trace>.json``, one entry a step and question, the
latest answer last. The hash is of how the run began, so that it stays while a live session grows.

Does not: hide or show anything, or need a notebook.
Source: a prediction that is written before the answer is seen is what makes looking a lesson.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import ConfigError
from engine.fields import cut, shown
from lab.outline import IMPORTED
from lab.snapshot import StepSnapshot
from lab.trace import Trace
from lab.trace_summary import IDLE, path_word
from lab.widgets.predicted_cells import CELLS_WANTED, FIRST_CELL, parse_cell, value_of
from lab.widgets.strings import translate

WAY: Final = "way"
QUESTIONS: Final = (WAY, "batch", "bucket", "path", "cell")
FOLDER: Final = "answers"
_LONGEST: Final = 100  # characters of an answer that are kept
_KEY: Final = re.compile(r"(\d+)([a-z_]+(?:\[\d+\]){0,2})")


@dataclasses.dataclass(frozen=True, slots=True)
class Prediction:
    """One answer. step: the recorded step's number. question: of QUESTIONS, or a cell. answer, truth: as texts."""

    step: int
    question: str
    answer: str
    truth: str

    @property
    def is_right(self) -> bool:
        """Whether it was so."""
        return self.answer == self.truth

    def __str__(self) -> str:
        """Return the verdict in words."""
        name = "predict.cell_right" if self.is_right else "predict.cell_wrong"
        what = (f"predict.what.{self.question}", {})  # the name of a cell is shown as it is
        if self.question not in QUESTIONS:
            what = (self.question, {})
        return translate(name, {"step": self.step, "what": what, "mine": self.answer, "truth": self.truth})


def truth(step: StepSnapshot, question: str) -> str:
    """Return the right answer as the viewer's buttons name it.

    way: "eager", "idle", "prefill" or the bucket. batch: requests. bucket: 0 without a graph. path: as recorded, "idle"
    where nothing ran. A cell, such as "input_ids[3]": what it held, "none" where the step has no such cell; "cell" is
    the first position. Raises: ConfigError.
    """
    path, bucket = path_word(step), str(step.path.bucket)
    if question == WAY:
        return {"eager": path, IDLE: path, "prefill_replay": "prefill"}.get(path, bucket)
    if question == "batch":
        return str(step.path.num_requests)
    if question == "bucket":
        return "0" if path in ("eager", IDLE) else bucket
    if question == "path":
        return path
    cell = FIRST_CELL if question == "cell" else question
    if not isinstance(cell, str) or parse_cell(cell) is None:
        message = f"a question is one of {', '.join(QUESTIONS)}, or a cell: {CELLS_WANTED}; got {shown(question)}"
        raise ConfigError(message)
    if step.mode == IMPORTED:
        message = f"step {step.step} was imported without rows, so it has no cell to predict; choose another question"
        raise ConfigError(message)
    held = value_of(step, cell)
    if held is None:
        message = f"what {cell} held in step {step.step} stayed on the device, so nobody can say; choose another cell"
        raise ConfigError(message)
    return held


def predict(
    trace: Trace, step: int, question: str, answer: object, *, folder: str | os.PathLike[str] = FOLDER
) -> Prediction:
    """Score an answer about the step at index ``step``, write it down, and return it; printing it says the verdict.

    Raises: ConfigError, TraceError.
    """
    if not isinstance(trace, Trace):
        message = f"predict takes a Trace, got {shown(trace)}; of a session, pass session.trace"
        raise ConfigError(message)
    snapshot = trace.steps[trace.place(step)]
    made = Prediction(snapshot.step, question, _as_text(answer), truth(snapshot, question))
    write(trace, [made], folder)
    return made


def _as_text(answer: object) -> str:
    """Return an answer as the viewer would have it typed: 86 / 2 is 43. Raises: ConfigError."""
    value: object = answer.item() if isinstance(answer, np.generic) else answer
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int | float):
        message = f"an answer must be a number or a word, got {shown(answer)}"
        raise ConfigError(message)
    text = cut(value if isinstance(value, str) else shown(value), _LONGEST)
    return text.encode(errors="replace").decode()


def score(trace: Trace, answers: Mapping[str, Any]) -> list[Prediction]:
    """Return the answers of a viewer: a key is step number and question, such as "5kv_lens[0]"; others are left out.

    Raises: ConfigError for a question that is not there.
    """
    steps = {one.step: one for one in trace.steps}
    found: list[Prediction] = []
    for key, answer in answers.items():
        match = _KEY.fullmatch(str(key))
        step = steps.get(int(match[1])) if match else None
        if match and step is not None:
            found.append(Prediction(step.step, match[2], _as_text(answer), truth(step, match[2])))
    return found


def record(trace: Trace, before: Mapping[str, Any], answers: Mapping[str, Any]) -> None:
    """Write down what is new in a viewer's answers; an emptied list deletes nothing. Raises: ConfigError."""
    new = score(trace, {key: answer for key, answer in answers.items() if before.get(key) != answer})
    if new:
        write(trace, new)


def trace_hash(trace: Trace) -> str:
    """Return what names a run in its answers: configuration, weights, and the prompts with which it began.

    So it is the same however fast it ran, and while a live session still grows.
    """
    header = trace.header
    first = min([one.arrival_step for one in header.requests], default=0)
    facts: list[Any] = [header.config, header.model.name, header.model.weight_hash, header.buckets]
    facts += [[one.num_prompt_tokens, one.prompt_token_ids] for one in header.requests if one.arrival_step == first]
    facts += [trace.steps[0].step - first] if len(trace.steps) else []
    return hashlib.sha256(json.dumps(facts, default=str, sort_keys=True).encode()).hexdigest()[:16]


def write(trace: Trace, predictions: list[Prediction], folder: str | os.PathLike[str] = FOLDER) -> Path:
    """Add predictions to the file of the trace, whole or not at all, and return its path. Raises: ConfigError."""
    name = trace_hash(trace)
    try:
        target = Path(folder) / f"{name}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        entries = {(one["step"], one["question"]): one for one in _read(target)}
        for one in predictions:
            entries.pop((one.step, one.question), None)
            entries[one.step, one.question] = {**dataclasses.asdict(one), "right": one.is_right}
        right = sum(one["right"] for one in entries.values())
        report = {"trace": name, "model": trace.header.model.name, "right": right, "answered": len(entries)}
        part = target.with_suffix(f".{os.getpid()}.part")
        text = json.dumps({**report, "answers": list(entries.values())}, ensure_ascii=False, indent=1)
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except (OSError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        message = f"cannot write the answers to the folder {shown(str(folder))}: {why}; name another folder"
        raise ConfigError(message) from error
    return target


def _read(target: Path) -> list[dict[str, Any]]:
    """Return the entries written so far. Raises: ConfigError for a file that is not ours."""
    if not target.exists():
        return []
    try:
        entries = json.loads(target.read_text(encoding="utf-8"))["answers"]
        return [{**one, "step": int(one["step"]), "question": str(one["question"])} for one in entries]
    except (ValueError, LookupError, TypeError) as error:
        message = f"{target} is no file of answers ({type(error).__name__}); move it away"
        raise ConfigError(message) from error
