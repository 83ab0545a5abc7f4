"""Lesson: what a teacher adds to a shown run: hidden parts, notes beside steps and stages, large type for a projector.

Notes are the teacher's words as plain text, for the whole run, a step, a stage, or a stage of a step. In Python a step
is an index into the trace, as ``show(step=)`` takes it; in a file of notes it is the number that the table shows.

Does not: draw, or read a trace from disk.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from engine.errors import ConfigError
from engine.fields import cut, shown
from lab.trace import Trace
from lab.widgets.masks import expand
from lab.widgets.places import (
    NUM_PANELS,
    integer,
    nearest,
    stage_index,
    stage_names,
    stage_number,
    stage_of_text,
    stage_spellings,
    step_index,
)

MAX_NOTES: Final = 1000
MAX_CHARACTERS: Final = 4000  # of one note
ANY: Final = "*"  # in a file of notes: every step
_WANTED: Final = (
    f"notes must be a text, or texts by step or (step, stage), at most {MAX_NOTES} of at most {MAX_CHARACTERS} "
    "characters each"
)


_IN_FILE: Final = 'a .json file of notes must hold texts by "STEP", "STEP/STAGE", "*/STAGE" or "*"'
_PLACE: Final = re.compile(r"\s*(\*|-?[0-9]{1,9})\s*(?:/\s*(.*?)\s*)?", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What goes to the browser. mask: as ``masks.expand`` gives it. notes: by "step", "step/stage", "/stage" or ""."""

    mask: Mapping[str, list[str]] = dataclasses.field(default_factory=dict[str, list[str]])
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    large: bool = False


NO_LESSON: Final = Lesson()


def make_lesson(
    number_of: Callable[[int], int], *, mask: object = None, notes: object = None, large: object = False
) -> Lesson:
    """Check what a teacher gave, and return it. number_of: from a step as the teacher names it to its number.

    Raises: ConfigError, which names what is allowed; whatever ``number_of`` raises.
    """
    if not isinstance(large, bool):
        message = f"large must be True or False, got {shown(large)}"
        raise ConfigError(message)
    return Lesson(mask=expand(mask), notes=encode_notes(notes, number_of), large=large)


def step_numbers(trace: Trace, *, grows: bool = False) -> Callable[[int], int]:
    """Return what turns an index into the trace's steps into a number; grows: later steps are to come."""

    def number_of(step: int) -> int:
        if grows and step >= len(trace.steps):
            return step + (trace.steps[0].step if len(trace.steps) else 0)
        return trace.steps[step_index(step, len(trace.steps))].step

    return number_of


def encode_notes(notes: object, number_of: Callable[[int], int]) -> dict[str, str]:
    """Return notes by the keys of ``Lesson``. Raises: ConfigError."""
    if notes is None:
        return {}
    given: Mapping[Any, Any] = cast("Any", notes) if isinstance(notes, Mapping) else {None: notes}
    if len(given) > MAX_NOTES:
        message = f"{_WANTED}, got {len(given)} notes"
        raise ConfigError(message)
    return {_key(place, number_of): _text(text) for place, text in given.items()}


def _key(place: object, number_of: Callable[[int], int]) -> str:
    """Return "step", "step/stage", "/stage" or ""."""
    parts: list[Any] = list(cast("Any", place)) if isinstance(place, tuple) else [place]
    if len(parts) not in (1, 2) or not (parts[0] is None or integer(parts[0]) is not None):
        message = f"{_WANTED}, got a note at {shown(place)}"
        raise ConfigError(message)
    step, stage = [*parts, None][:2]
    begin = "" if step is None else str(number_of(step))
    return begin if stage is None else f"{begin}/{stage_index(stage)}"


def _text(text: object) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > MAX_CHARACTERS:
        got = f"{len(text)} characters" if isinstance(text, str) else shown(text)
        message = f"{_WANTED}, got {got}"
        raise ConfigError(message)
    try:
        text.encode()
    except UnicodeEncodeError as error:  # half a character of UTF-16: neither a page nor a browser takes it
        message = f"{_WANTED}, got {shown(text[error.start])}, which is half a character; write the whole one"
        raise ConfigError(message) from error
    return text.strip()


def read_notes(file: str | Path) -> object:
    """Return a file's notes as ``make_lesson`` takes them; a step is its number. Raises: ConfigError.

    A ``.json`` file is an object of texts by "STEP", "STEP/STAGE", "*/STAGE" or "*"; any other file is one text.
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors put a mark before the text
    except UnicodeDecodeError as error:
        message = (
            f"notes must be text in UTF-8, got byte {error.start} of {path}, which is none; save the file as UTF-8"
        )
        raise ConfigError(message) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        message = f"cannot read notes from {shown(str(path))}: {why}; name a text file, or a .json file of texts"
        raise ConfigError(message) from error
    return _placed(text, path) if path.suffix == ".json" else text


def _placed(text: str, path: Path) -> dict[tuple[int | None, str | int | None], object]:
    """Return the notes of a JSON file by their places. Raises: ConfigError."""
    try:
        pairs: Any = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        message = f"{_IN_FILE}, got a file that is no JSON ({cut(error)}): {path}"
        raise ConfigError(message) from error
    if not isinstance(pairs, _Pairs):
        message = f"{_IN_FILE}, got {shown(pairs)} in {path}; a file of plain text needs another name"
        raise ConfigError(message)
    found: dict[tuple[int | None, str | int | None], object] = {}
    for key, one in pairs:
        place = _place(key)
        if place in found:
            message = f"{_IN_FILE}, got a second one at {shown(key)}; put both into one text"
            raise ConfigError(message)
        found[place] = dict(one) if isinstance(one, _Pairs) else one
    return found


class _Pairs(list[tuple[str, object]]):
    """A JSON object as it is written: a dictionary would keep the last of two equal keys alone."""


def _place(key: str) -> tuple[int | None, str | int | None]:
    match = _PLACE.fullmatch(key)
    stage = stage_of_text(match[2]) if match and match[2] else None
    if match is None or (stage is not None and stage_number(stage) is None):
        near = nearest(stage, stage_spellings())
        message = f"{_IN_FILE}, got {shown(key)}; a stage is 0 to {NUM_PANELS - 1} or one of {stage_names()}{near}"
        raise ConfigError(message)
    return None if match[1] == ANY else int(match[1]), stage
