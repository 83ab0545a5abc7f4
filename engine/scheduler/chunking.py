"""Chunking: how many of their prompt tokens the contexts of a step compute. Pure, over numbers.

Each prompt is (position of its next row, tokens left). ``whole``: all of it at once, and nobody overtakes.
``first_come``: each takes what those before it left; a chunk that is cut short ends on a multiple of the unit, so that
only whole blocks are left behind, and what the rounding leaves over may finish a shorter prompt. ``equal_progress``:
round by round everybody gets one unit more, until the budget or his prompt ends; long prompts then do not hold up short
ones, and everybody's first token is later.

Does not: know requests, blocks or why somebody got nothing (``micro_batch.py``).
Source: TensorRT-LLM's first-come-first-served and equal-progress chunking.
"""

from collections.abc import Sequence

Prompt = tuple[int, int]  # the position of the next row, tokens left


def chunk_rows(start: int, remaining: int, num_tokens_left: int, chunk_unit: int) -> int:
    """Size a chunk that begins at position ``start``: all of ``remaining``, or up to the last unit that fits."""
    if remaining <= num_tokens_left:
        return remaining
    end = (start + num_tokens_left) // chunk_unit * chunk_unit
    return max(0, end - start)


def whole(prompts: Sequence[Prompt], num_tokens_left: int, *, max_num_tokens: int, chunk_unit: int) -> list[int]:
    """Size each prompt as a whole; the first that does not fit gets nothing, and so do all behind it.

    What no step could hold is cut after all: a prompt that was paused may have outgrown ``max_num_tokens``, which a new
    one never does.
    """
    sizes = [0] * len(prompts)
    for index, (start, remaining) in enumerate(prompts):
        if remaining > num_tokens_left:
            if remaining > max_num_tokens:
                unit = chunk_unit if chunk_unit <= max_num_tokens else 1
                sizes[index] = chunk_rows(start, remaining, num_tokens_left, unit)
            break
        sizes[index] = remaining
        num_tokens_left -= remaining
    return sizes


def first_come(prompts: Sequence[Prompt], num_tokens_left: int, *, chunk_unit: int) -> list[int]:
    """Give each prompt, in order, as much as it can use."""
    sizes: list[int] = []
    for start, remaining in prompts:
        rows = chunk_rows(start, remaining, num_tokens_left, chunk_unit)
        sizes.append(rows)
        num_tokens_left -= rows
    return sizes


def equal_progress(prompts: Sequence[Prompt], num_tokens_left: int, *, chunk_unit: int) -> list[int]:
    """Give each prompt one unit more, round by round.

    A first piece that starts inside a unit ends with it. Whose next piece does not fit gets no more; a smaller piece of
    a later one may still fit.
    """
    sizes = [0] * len(prompts)
    growing = list(range(len(prompts)))
    while growing:
        still: list[int] = []
        for index in growing:
            start, remaining = prompts[index]
            end = start + sizes[index]
            piece = min(chunk_unit - end % chunk_unit, remaining - sizes[index])
            if 0 < piece <= num_tokens_left:
                sizes[index] += piece
                num_tokens_left -= piece
                still.append(index)
        growing = still
    return sizes
