"""Places in a run: a step as an index, and a stage by number, engine name or label.

Does not: hold steps, or word a stage (``strings.py`` does).
"""

from typing import Final

from engine.errors import ConfigError
from engine.fields import shown
from lab.snapshot import STAGES
from lab.widgets.stages import VIEW_LINKS
from lab.widgets.strings import table

NUM_PANELS: Final = len(STAGES) + len(VIEW_LINKS)


def integer(value: object) -> int | None:
    """Return an integer as it is, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def stage_names() -> list[str]:
    """Return the name of each stage, the engine's, and of each view behind them."""
    return [*STAGES, *(table("en")[f"stage.{at}"].lower() for at in range(len(STAGES), NUM_PANELS))]


def stage_number(stage: object) -> int | None:
    """Return a stage by number, engine name or label; None where there is no such stage."""
    labels = {table("en")[f"stage.{at}"].lower(): at for at in range(NUM_PANELS)}
    names = {**{name.lower(): at for at, name in enumerate(STAGES)}, **labels}
    number = names.get(stage.lower()) if isinstance(stage, str) else integer(stage)
    return number if number is not None and 0 <= number < NUM_PANELS else None


def stage_of_text(text: str) -> str | int:
    """Return what names a stage where all is text: a number in digits as one, anything else as it is."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text


def stage_index(stage: str | int | None) -> int:
    """Return a stage by number, engine name or label; None is the first. Raises: ConfigError."""
    number = 0 if stage is None else stage_number(stage)
    if number is None:
        message = f"stage must be 0 to {NUM_PANELS - 1} or one of {', '.join(stage_names())}, got {shown(stage)}"
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
