"""Rows with the same keys as a table for the terminal.

Does not: compute a value.
"""

from typing import Any


def table(rows: list[dict[str, Any]]) -> str:
    """Lay rows with the same keys out under a heading; numbers to the right."""
    if not rows:
        return "no steps"
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    texts = {at for at, value in enumerate(rows[0]) if value in ("path", "reason")}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at in texts else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
