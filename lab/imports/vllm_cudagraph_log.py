"""vLLM's CUDA graph statistics: the table that ``--cudagraph-metrics`` logs every 10 seconds.

A table counts the steps since the one before, by (unpadded tokens, padded tokens, runtime mode): FULL is a graph of the
whole forward, PIECEWISE a chain of captured pieces with attention eager between them, NONE is eager. The lines above
give the mode and the capture sizes. A logger's prefix before a line is passed over, and so are all other lines.

Does not: know the order of the steps within a table, their times or requests: the log does not say. A FULL step counts
as decode, one row a request, which holds without drafts; of the others it is not known how many requests they had.
Source: the table as ``vllm/compilation/cuda_graph.py`` prints it; ``docs/import.md``.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.reasons import FallOff
from lab.imports.logged import MOST_ROWS, MOST_STEPS, Log, LoggedStep, refuse_line

HEADING: Final = ("Unpadded Tokens", "Padded Tokens", "Num Paddings", "Runtime Mode", "Count")
PATHS: Final = {"FULL": "replay", "PIECEWISE": "prefill_replay", "NONE": "eager"}
_SIZES: Final = re.compile(r"Capture sizes: \[([\d, ]*)\]")


def read_cudagraph_log(lines: Iterable[str], path: str, *, limit: int = MOST_STEPS) -> Log:
    """Read the first ``limit`` steps, table after table. Raises: TraceError."""
    steps: list[LoggedStep] = []
    sizes: tuple[int, ...] = ()
    in_table = False
    for line, text in enumerate(lines, start=1):
        named = _SIZES.search(text)
        if named is not None:
            sizes = tuple(sorted({int(size) for size in named[1].replace(",", " ").split()}))
        cells = _cells(text)
        if cells == HEADING:
            in_table = True
        elif not cells:
            in_table = in_table and not text.strip()
        elif in_table and not all(set(cell) <= set("-:") for cell in cells):
            count, step = _row(cells, sizes, (path, line))
            room = limit - len(steps)
            if count > room and limit == MOST_STEPS:
                refuse_line(
                    path, line, f"a file may count {MOST_STEPS} steps in all", len(steps) + count, "give --limit"
                )
            steps += [step(len(steps) + at) for at in range(min(count, room))]
    return Log(tuple(steps), sizes)


def _cells(text: str) -> tuple[str, ...]:
    """Return the cells of a table's line, which begins at the first bar; () for any other line."""
    at = text.find("|")
    body = text[at:].strip()
    if at < 0 or not body.endswith("|") or len(body) == 1:
        return ()
    return tuple(cell.strip() for cell in body[1:-1].split("|"))


def _row(
    cells: Sequence[str], sizes: tuple[int, ...], where: tuple[str, int]
) -> tuple[int, Callable[[int], LoggedStep]]:
    numbers = [int(cell) if re.fullmatch(r"\d{1,9}", cell, re.ASCII) else -1 for cell in cells]
    mode = cells[3].rpartition(".")[2] if len(cells) == len(HEADING) else ""
    if mode not in PATHS or min(numbers[:3]) < 0 or numbers[4] < 0 or numbers[1] > MOST_ROWS:
        wanted = f"a row must have {', '.join(HEADING)}: numbers, and a mode of {', '.join(PATHS)}"
        refuse_line(*where, wanted, " | ".join(cells))
    unpadded, padded, paddings, _, count = numbers
    if padded - unpadded != paddings or unpadded < 1:
        refuse_line(
            *where, "Padded Tokens must be Unpadded Tokens (at least 1) and Num Paddings together", tuple(cells[:3])
        )
    is_full = mode == "FULL"
    above = bool(sizes) and mode == "NONE" and unpadded > sizes[-1]

    def step(number: int) -> LoggedStep:
        return LoggedStep(
            step=number,
            rows=unpadded,
            requests=unpadded if is_full else None,
            num_contexts=0 if is_full else None,
            context_rows=0 if is_full else None,
            path=PATHS[mode],
            padded=None if mode == "NONE" else padded,
            reason=FallOff.ABOVE_LARGEST_PREFILL_BUCKET.value if above else None,
        )

    return count, step
