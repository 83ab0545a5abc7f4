"""Places in a run: a step as an index, and a stage by number, engine name or label.

Does not: hold steps, or word a stage (``strings.py`` does).
"""

import difflib
from collections.abc import Sequence
from typing import Final

from engine.errors import ConfigError
from engine.fields import shown
from lab.snapshot import STAGES
from lab.widgets.stages import VIEW_LINKS
from lab.widgets.strings import LANGUAGES, table

NUM_PANELS: Final = len(STAGES) + len(VIEW_LINKS)
_MOST_LETTERS: Final = 80  # of a name that is compared
_LIKE: Final = 0.55  # how alike two names are, from 0 to 1, for one to be taken for the other


def integer(value: object) -> int | None:
    """Return an integer as it is, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def stage_labels(language: str = "en") -> list[str]:
    """Return what a reader sees of each stage, and of each view behind them."""
    return [table(language)[f"stage.{at}"] for at in range(NUM_PANELS)]


def stage_names() -> str:
    """Return what may name a stage, as one list in words: the label that a reader sees, and the engine's name."""
    labels = stage_labels()
    named = [f"{label} ({name})" for label, name in zip(labels, STAGES, strict=False)]
    return ", ".join([*named, *labels[len(STAGES) :]])


def stage_spellings() -> list[str]:
    """Return every text that names a stage, the labels of each language first."""
    return [*(label for language in LANGUAGES for label in stage_labels(language)), *STAGES]


def nearest(got: object, names: Sequence[str]) -> str:
    """Return the end of a refusal: the name that was most likely meant, or nothing."""
    lowered = {name.lower(): name for name in reversed(names)}
    text = got.strip().lower()[:_MOST_LETTERS] if isinstance(got, str) else ""
    found = difflib.get_close_matches(text, lowered, n=1, cutoff=_LIKE)
    return f"; did you mean {lowered[found[0]]!r}?" if found else ""


def stage_number(stage: object) -> int | None:
    """Return a stage by number, engine name or label; None where there is no such stage."""
    names = {name.lower(): at for at, name in enumerate(STAGES)}
    for language in LANGUAGES:
        names |= {label.lower(): at for at, label in enumerate(stage_labels(language))}
    number = names.get(stage.lower()) if isinstance(stage, str) else integer(stage)
    return number if number is not None and 0 <= number < NUM_PANELS else None


def stage_of_text(text: str) -> str | int:
    """Return what names a stage where all is text: a number in digits as one, anything else as it is."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def stage_index(stage: str | int | None) -> int:
    """Return a stage by number, engine name or label; None is the first. Raises: ConfigError."""
    number = 0 if stage is None else stage_number(stage)
    if number is None:
        near = nearest(stage, stage_spellings())
        message = f"stage must be 0 to {NUM_PANELS - 1} or one of {stage_names()}, got {shown(stage)}{near}"
        raise ConfigError(message)
    return number


def step_index(step: int | None, num_steps: int) -> int:
    """Return a step as an index into the trace; negative counts from the end. Raises: ConfigError."""
    index = 0 if step is None else integer(step)
    if index is None or (num_steps and not -num_steps <= index < num_steps):
        message = (
            f"step must be from {-num_steps} to {num_steps - 1} in a trace of {num_steps} steps, got {shown(step)}"
        )
        raise ConfigError(message)
    return index % num_steps if num_steps else 0
