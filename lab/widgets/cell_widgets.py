"""Which steppers a notebook cell shows, so that running it again closes those of its last run: each holds its trace.

A live session loses nothing by it: its steps are in its own trace, which the new stepper shows.

Does not: need a notebook; without one nothing is kept.
"""

import sys
from typing import Any, Final, Protocol


class Closable(Protocol):
    """What can be closed."""

    def close(self) -> None:
        """Close it."""
        ...


_last_of_cell: Final[dict[str, tuple[str, list[Closable]]]] = {}


def _running_cell() -> tuple[str, str] | None:
    """Return (cell id, execution id) of the notebook cell that runs now, or None outside of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return None
    parent = kernel.get_parent("shell") or {}
    cell = parent.get("metadata", {}).get("cellId")
    return (cell, parent["header"]["msg_id"]) if cell else None


def close_earlier_of_this_cell(widget: Closable) -> None:
    """Close what an earlier run of the same cell showed, and remember ``widget`` in its place."""
    running = _running_cell()
    if running is None:
        return
    cell, execution = running
    before, widgets = _last_of_cell.get(cell, (execution, []))
    if before != execution:
        for old in widgets:
            old.close()
        widgets = []
    _last_of_cell[cell] = (execution, [*widgets, widget])
