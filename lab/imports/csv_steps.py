"""Step statistics as CSV, one line a step: the format for an engine whose log has none of the other two.

The heading names the columns, in any order; ``rows`` is the only one that must be there, an empty value is not known.
``docs/import.md`` describes each.

Does not: derive what a column does not say (``outline_steps.py``).
"""

import csv
import re
from collections.abc import Iterable, Mapping
from typing import Final

from engine.reasons import FallOff, PathKind
from lab.imports.logged import MOST_ROWS, MOST_STEPS, Log, LoggedStep, refuse_line

COLUMNS: Final = (
    "step", "rows", "requests", "context_requests", "context_rows", "draft_len", "path", "padded_rows", "reason",
    "host_us", "free_blocks",
)  # fmt: skip
_PATHS: Final = tuple(kind.value for kind in PathKind)
_REASONS: Final = tuple(reason.value for reason in FallOff)
_GRAPHS: Final = ("replay", "prefill_replay", "capture")


def read_csv(lines: Iterable[str], path: str, *, limit: int = MOST_STEPS) -> Log:
    """Read the first ``limit`` steps. Raises: TraceError, with the file and the line."""
    reader = csv.reader(lines)
    steps: list[LoggedStep] = []
    try:
        names = _heading(next(reader, []), path)
        for values in reader:
            if not values or len(steps) >= limit:  # an empty line ends many files
                continue
            line = reader.line_num
            if len(values) != len(names):
                refuse_line(path, line, f"a line must have {len(names)} values, as the heading has", values)
            cells = {name: value.strip() for name, value in zip(names, values, strict=True) if value.strip()}
            steps.append(_step(cells, path, line, steps[-1].step + 1 if steps else 0))
    except csv.Error as error:
        refuse_line(path, reader.line_num, "a line must be CSV", str(error))
    return Log(tuple(steps))


def _heading(values: list[str], path: str) -> list[str]:
    names = [value.strip().lower() for value in values]
    strange = [name for name in names if name not in COLUMNS]
    if strange or "rows" not in names or len(set(names)) != len(names):
        wanted = f"the heading must name columns of {', '.join(COLUMNS)}, rows among them, each once"
        refuse_line(path, 1, wanted, ",".join(values))
    return names


def _step(cells: Mapping[str, str], path: str, line: int, next_step: int) -> LoggedStep:
    def count(name: str, low: int, high: int) -> int | None:
        text = cells.get(name)
        if text is None:
            return None
        value = int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None
        if value is None or not low <= value <= high:
            refuse_line(path, line, f"{name} must be an integer from {low} to {high}", text)
        return value

    if "rows" not in cells:
        refuse_line(path, line, "rows must be an integer of at least 0", "nothing")
    rows = count("rows", 0, MOST_ROWS) or 0
    number = count("step", next_step, (1 << 31) - 1)
    requests = count("requests", 0, rows)
    how = cells.get("path")
    reason = cells.get("reason")
    if how is not None and how not in _PATHS:
        refuse_line(path, line, f"path must be one of {', '.join(_PATHS)}", how)
    if reason is not None and (how != "eager" or reason not in _REASONS):
        refuse_line(path, line, f"reason belongs to path eager and must be one of {', '.join(_REASONS)}", reason)
    if "padded_rows" in cells and how not in _GRAPHS:
        refuse_line(path, line, f"padded_rows belongs to a path of {', '.join(_GRAPHS)}", cells["padded_rows"])
    return LoggedStep(
        step=next_step if number is None else number,
        rows=rows,
        requests=requests,
        num_contexts=count("context_requests", 0, rows if requests is None else requests),
        context_rows=count("context_rows", 0, rows),
        draft_len=count("draft_len", 0, MOST_ROWS) or 0,
        path=how,
        padded=count("padded_rows", rows, MOST_ROWS),
        reason=reason,
        host_us=_microseconds(cells.get("host_us"), path, line),
        free_blocks=count("free_blocks", 0, 1 << 40),
    )


def _microseconds(text: str | None, path: str, line: int) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,12}(\.\d*)?", text, re.ASCII):
        refuse_line(path, line, "host_us must be microseconds, 0 or more", text)
    return float(text)
