"""Cells that a reader may predict: one place of a list that the step writes for its kernels, and what it held.

``input_ids[3]`` is the token of row 3, ``position_ids[3]`` its position; ``seq_lens[1]``, ``kv_lens[1]`` and
``seq_slots[1]`` are of sequence 1, ``block_table[1][2]`` is the third block of its table, and ``gather_ids[0]`` the
first row that gives logits. A step that does not write the place has no such cell.

Does not: score or write an answer (``predictions.py``), or read a buffer: these are the lists as the host made them.
"""

import re
from typing import Final

from lab.snapshot import StepSnapshot

FIRST_CELL: Final = "position_ids[0]"
LISTS: Final = ("input_ids", "position_ids", "seq_lens", "kv_lens", "seq_slots", "gather_ids")  # also in esm/predict.js
TABLE: Final = "block_table"
NO_CELL: Final = "none"
CELLS_WANTED: Final = f"one of {', '.join(LISTS)} with a place, such as {LISTS[0]}[3], or {TABLE}[0][2]"
_FORM: Final = re.compile(r"([a-z_]+)\[(\d{1,6})\](?:\[(\d{1,6})\])?")


def parse_cell(name: str) -> tuple[str, int, int | None] | None:
    """Return a cell's list, place and, of a block table, the block's place; None where it is no name of a cell."""
    match = _FORM.fullmatch(name)
    if match is None:
        return None
    of_table = match[3] is not None
    if (match[1] == TABLE) != of_table or match[1] not in (*LISTS, TABLE):
        return None
    return match[1], int(match[2]), int(match[3]) if of_table else None


def value_of(step: StepSnapshot, name: str) -> str | None:
    """Return what a cell held in a step; NO_CELL where the step has none, None where the trace does not tell.

    name: a cell's, as ``parse_cell`` takes it.
    """
    parsed = parse_cell(name)
    assert parsed is not None, "whoever asks has checked the name"
    of, place, column = parsed
    metadata, rows = step.metadata, step.rows
    if column is not None:
        tables = metadata.block_tables
        in_table = place < len(tables) and column < len(tables[place])
        return str(tables[place][column]) if in_table else NO_CELL
    if of == "kv_lens":
        held = (metadata.cached_lens + metadata.seq_lens).tolist()
    elif of in ("seq_lens", "seq_slots"):
        held = (metadata.seq_lens if of == "seq_lens" else metadata.seq_slots).tolist()
    else:
        held = {"input_ids": rows.token_ids, "position_ids": rows.positions, "gather_ids": rows.gather_ids}[of].tolist()
    if place >= len(held):
        return NO_CELL
    is_told = held[place] >= 0 or of != "input_ids"  # a token that nobody read
    return str(held[place]) if is_told else None
