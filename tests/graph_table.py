"""Everything that is tried with graphs, in one table: scenarios and faults, with the verdict on the tape and on CUDA.

The rows are kept where they are defined (``tests/engine/cuda_graphs/scenarios.py``, which needs no lab, and
``tests/lab/faults/expected.py``); the default tests prove the tape's column, ``tests/gpu/test_graph_scenarios.py``
CUDA's. ``python -m tests.graph_table`` prints the table for LOG.md.
"""

import dataclasses

from tests.engine.cuda_graphs.scenarios import SCENARIOS
from tests.lab.faults.expected import VERDICTS


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One thing that is tried. difference: why the verdicts differ, "" when they do not."""

    name: str
    tape: str
    cuda: str
    difference: str


def table_rows() -> tuple[TableRow, ...]:
    """Collect every row: the scenarios, then each fault with the guards on and off."""
    rows = [TableRow(name, row.tape, row.cuda, row.difference) for name, row in SCENARIOS.items()]
    for name, row in VERDICTS.items():
        for guards in ("on", "off"):
            verdicts = row.verdict(guards, "cpu"), row.verdict(guards, "cuda")
            difference = row.difference if verdicts[0] != verdicts[1] else ""
            rows.append(TableRow(f"fault {name}, guards {guards}", *verdicts, difference))
    return tuple(rows)


def markdown(rows: tuple[TableRow, ...]) -> str:
    """Lay the table out, and behind it the differences with their reasons."""
    lines = ["| tried | tape | CUDA |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.tape} | {'the same' if row.tape == row.cuda else row.cuda} |" for row in rows]
    different = [row for row in rows if row.difference]
    lines += ["", f"{len(rows)} rows, {len(different)} of them differ:", "", "| tried | why |", "|---|---|"]
    return "\n".join([*lines, *(f"| {row.name} | {row.difference} |" for row in different)])


if __name__ == "__main__":
    print(markdown(table_rows()))  # noqa: T201 - a table to paste
