"""What one line of another engine's log says of a step, and how a line that says nothing sensible is refused.

Does not: know any format, or a trace.
"""

import dataclasses
from typing import Final, NoReturn

from engine.errors import TraceError
from engine.fields import shown

MOST_STEPS: Final = 100_000  # of one file
MOST_ROWS: Final = 1 << 24  # of one step


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoggedStep:
    """A step as a log has it; None: the log does not say.

    rows: scheduled, without padding; of them context_rows belong to the num_contexts prompts. path: how it ran, a
    ``PathKind``; None: to be derived from a bucket list. padded: rows that ran, of a graph. host_us: of the whole step.
    """

    step: int
    rows: int
    requests: int | None = None
    num_contexts: int | None = None
    context_rows: int | None = None
    draft_len: int = 0
    path: str | None = None
    padded: int | None = None
    reason: str | None = None
    host_us: float | None = None
    free_blocks: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Log:
    """A whole file. buckets: the sizes with a graph, where the file names them; () where it does not."""

    steps: tuple[LoggedStep, ...]
    buckets: tuple[int, ...] = ()


def refuse_line(path: str, line: int, wanted: str, got: object, hint: str = "") -> NoReturn:
    """Raise TraceError for a line: what was required, what was got, and the hint after a semicolon."""
    message = f"{path}, line {line}: {wanted}, got {shown(got)}{f'; {hint}' if hint else ''}"
    raise TraceError(message)
