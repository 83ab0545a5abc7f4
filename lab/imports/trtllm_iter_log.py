"""TensorRT-LLM's iteration log: the line that its PyTorch backend prints each iteration with ``print_iter_log: true``.

A line names the iteration, the rank, how many requests were scheduled, the host's time, and what was prepared (prompts,
their tokens, generation tokens). The spelling changed between versions (``num_scheduled_requests: 3`` and ``= 3``,
``elapsed_time`` in seconds and ``host_step_time`` in milliseconds); both are read, in any order. Other lines of the
server's log are passed over. Generation tokens are counted after padding there, and include drafts.

Does not: know how a step ran: the log does not say. ``prev_device_step_time`` is left out: when it began is not logged.
Source: the fields as ``py_executor.py`` of TensorRT-LLM prints them; ``docs/import.md``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from engine.inputs.padding import round_up_to_bucket
from lab.imports.logged import MOST_ROWS, MOST_STEPS, Log, LoggedStep, refuse_line

_LINE: Final = re.compile(r"\biter = (?P<iter>\d{1,9}), .*\bnum_scheduled_requests\b")
_FIELD: Final = re.compile(r"\b(global_rank|rank|num_scheduled_requests)(?: = |: )(\d{1,9})\b")
_STATES: Final = re.compile(r"\bstates = \{([^{}]*)\}")
_STATE: Final = re.compile(r"'(\w+)': (\d{1,9})\b")
_TIME: Final = re.compile(
    r"\b(?:host_step_time = (\d+(?:\.\d*)?(?:e-?\d+)?)ms|elapsed_time = (\d+(?:\.\d*)?(?:e-?\d+)?)s)"
)
STATES: Final = ("num_ctx_requests", "num_ctx_tokens", "num_generation_tokens")


def read_iter_log(
    lines: Iterable[str], path: str, *, buckets: tuple[int, ...] = (), rank: int = 0, limit: int = MOST_STEPS
) -> Log:
    """Read the first ``limit`` iterations of one rank. buckets: to tell padding from drafts. Raises: TraceError."""
    steps: list[LoggedStep] = []
    others: set[int] = set()
    for line, text in enumerate(lines, start=1):
        found = _LINE.search(text)
        if found is None or len(steps) >= limit:
            continue
        fields = {name: int(value) for name, value in _FIELD.findall(text)}
        whose = fields.get("global_rank", fields.get("rank", 0))
        if whose != rank:
            others.add(whose)
            continue
        number = int(found["iter"])
        if steps and number <= steps[-1].step:
            wanted = f"iter must grow, and the one before was {steps[-1].step}"
            refuse_line(path, line, wanted, number, "cut the file where the server was started again")
        steps.append(_step(text, fields, number, buckets, (path, line)))
    if not steps and others:
        message = f"rank {rank} must have iterations in the log"
        refuse_line(path, 1, message, f"ranks {', '.join(map(str, sorted(others)))}", "choose one with --rank")
    return Log(tuple(steps), buckets)


def _step(
    text: str, fields: Mapping[str, int], number: int, buckets: tuple[int, ...], where: tuple[str, int]
) -> LoggedStep:
    scheduled = fields.get("num_scheduled_requests")
    if scheduled is None:
        refuse_line(*where, "num_scheduled_requests must be a number", text.strip())
    times = _TIME.search(text)
    host_us = None if times is None else float(times[1]) * 1e3 if times[1] else float(times[2]) * 1e6
    if scheduled == 0:  # idle: states is what the iteration before left
        return LoggedStep(step=number, rows=0, requests=0, num_contexts=0, context_rows=0, host_us=host_us)
    states = _states(text, where)
    contexts, context_rows, tokens = (states[name] for name in STATES)
    generations = scheduled - contexts
    if generations < 0 or context_rows < contexts or tokens < generations:
        wanted = (
            f"of {scheduled} scheduled requests, num_ctx_requests must be at most all, with a token each in "
            "num_ctx_tokens, and the others must have one each in num_generation_tokens"
        )
        refuse_line(*where, wanted, (contexts, context_rows, tokens))
    rows, draft_len = _without_padding(generations, tokens, buckets)
    return LoggedStep(
        step=number,
        rows=context_rows + rows,
        requests=scheduled,
        num_contexts=contexts,
        context_rows=context_rows,
        draft_len=draft_len,
        host_us=host_us,
    )


def _states(text: str, where: tuple[str, int]) -> dict[str, int]:
    found = _STATES.search(text)
    states = {} if found is None else {name: int(value) for name, value in _STATE.findall(found[1])}
    missing = [name for name in STATES if states.get(name, MOST_ROWS + 1) > MOST_ROWS]
    if missing:
        wanted = f"states must be {{...}} with {', '.join(STATES)}, each at most {MOST_ROWS}"
        refuse_line(*where, wanted, "none" if found is None else found[0], f"{missing[0]} is missing or too large")
    return states


def _without_padding(generations: int, tokens: int, buckets: tuple[int, ...]) -> tuple[int, int]:
    """Return (rows of the generations, drafts of each), from tokens that count dummies and drafts too.

    Tokens of a bucket are padding; a multiple of the requests, or of their bucket, are drafts; else every token is
    somebody's row, and how many drafts each had is not known.
    """
    if not generations:
        return 0, 0
    bucket = round_up_to_bucket(generations, buckets) or generations
    if tokens in (generations, bucket):
        return generations, 0
    for size in (generations, bucket):
        if tokens % size == 0:
            draft_len = tokens // size - 1
            return generations * (1 + draft_len), draft_len
    return tokens, 0
