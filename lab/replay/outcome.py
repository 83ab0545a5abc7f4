"""What a replay leaves behind, and the numbers that are drawn from it: a summary, and tables of rows.

Does not: run anything, print, or draw (``lab/figures``). Torch-free.
"""

import dataclasses
from typing import Any, Final

import numpy as np

from engine.config import EngineConfig
from lab.replay.cost_model import CostModel
from lab.replay.serving_trace import ServingTrace
from lab.replay.step_log import EAGER, NO_REASON, PATH_NAMES, REASONS, Columns

PERCENTILES: Final = (50, 90, 99, 100)


@dataclasses.dataclass(slots=True)
class Totals:
    """Counts of requests that ended. failed: ended with an error, or not at their exact length.

    first_failure: which one failed first, and how.
    """

    finished: int = 0
    failed: int = 0
    generated_tokens: int = 0
    first_failure: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """A request that can never run: it needs so much of ``what``, and so much is there."""

    line: int
    what: str
    needed: int
    available: int

    def __str__(self) -> str:
        """Say it in one line."""
        return f"line {self.line}: the request needs {self.needed} {self.what} {self.available}"


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """A request that finished: its place in the trace, and what it waited for.

    first_step: the step of its first row. max_wait_steps: its longest run of steps without a row. Units: microseconds
    of virtual time since its arrival.
    """

    index: int
    first_step: int
    max_wait_steps: int
    first_token_us: float
    finished_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A trace served. columns: see ``step_log.COLUMNS``. wall_s: real seconds. endings: in order of finishing."""

    trace: ServingTrace
    config: EngineConfig
    costs: CostModel
    columns: Columns
    totals: Totals
    refusals: tuple[Refusal, ...]
    endings: tuple[Ending, ...]
    buckets: tuple[int, ...]
    max_wait_steps: int
    blocks_leaked: int
    wall_s: float
    is_interrupted: bool = False

    def summary(self) -> dict[str, Any]:
        """Return the ten numbers of ``--json``.

        prompt_tokens: of all requests of the trace. computed_prompt_tokens: prompt rows that ran, those that a pause
        made necessary again included, those found in the cache left out. paused: pauses. max_wait_steps: the longest
        run of steps in which a live request had no row.
        """
        columns = self.columns
        return {
            "requests": len(self.trace.requests),
            "finished": self.totals.finished,
            "prompt_tokens": sum(request.prompt_len for request in self.trace.requests),
            "computed_prompt_tokens": int(columns["context_rows"].sum()),
            "generated_tokens": self.totals.generated_tokens,
            "steps": len(columns["step"]),
            "paused": int(columns["paused"].sum()),
            "max_wait_steps": self.max_wait_steps,
            "blocks_leaked": self.blocks_leaked,
            "wall_s": round(self.wall_s, 3),
        }


def path_rows(columns: Columns) -> list[dict[str, Any]]:
    """Return one row for each path and reason: steps, their share, virtual seconds, rows and waste in percent."""
    rows: list[dict[str, Any]] = []
    total = max(1, len(columns["step"]))
    pairs = columns["path"] * (len(REASONS) + 1) + columns["reason"] - NO_REASON
    for pair in np.unique(pairs):
        at = pairs == pair
        path, reason = divmod(int(pair), len(REASONS) + 1)
        reason += NO_REASON
        useful, computed = int(columns["rows"][at].sum()), int(columns["computed_rows"][at].sum())
        rows.append(
            {
                "path": PATH_NAMES[path],
                "reason": REASONS[reason].value if path == EAGER and reason != NO_REASON else None,
                "steps": int(at.sum()),
                "share_pct": round(100 * int(at.sum()) / total, 1),
                "virtual_s": round(int(columns["cost_us"][at].sum()) / 1e6, 2),
                "rows": computed,
                "waste_pct": round(100 * (computed - useful) / max(1, computed), 2),
            }
        )
    return rows


def spread_rows(replay: Replay) -> list[dict[str, Any]]:
    """Return one row for each quantity: its mean and percentiles over the steps, or over the finished requests."""
    columns = replay.columns
    quantities: list[tuple[str, Any]] = [
        ("requests a step", columns["requests"]),
        ("rows a step", columns["rows"]),
        ("waiting requests a step", columns["waiting"]),
        ("KV blocks in use", num_usable_blocks(replay) - columns["free_blocks"]),
        ("virtual us a step", columns["cost_us"]),
        ("host us a step", columns["host_ns"] / 1e3),
        ("first token after, virtual ms", np.array([one.first_token_us / 1e3 for one in replay.endings])),
        ("finished after, virtual ms", np.array([one.finished_us / 1e3 for one in replay.endings])),
    ]
    return [_spread(name, values) for name, values in quantities if len(values)]


def num_usable_blocks(replay: Replay) -> int:
    """Blocks of the pool, without that of the padding dummy."""
    assert replay.config.kv_cache.num_blocks is not None
    return replay.config.kv_cache.num_blocks


def _spread(name: str, values: Any) -> dict[str, Any]:
    found = np.percentile(values, PERCENTILES)
    tops = {("max" if at == 100 else f"p{at}"): round(float(v), 1) for at, v in zip(PERCENTILES, found, strict=True)}
    return {"quantity": name, "mean": round(float(np.mean(values)), 1), **tops}


def bucket_rows(columns: Columns, buckets: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return one row for each decode bucket that was used: steps, requests in it on average, padding in percent."""
    rows: list[dict[str, Any]] = []
    on_graph = columns["path"] == PATH_NAMES.index("graph")
    for bucket in buckets:
        at = on_graph & (columns["computed_rows"] == bucket)
        num_steps = int(at.sum())
        if num_steps:
            mean = float(columns["requests"][at].mean())
            waste = 100 * (1 - mean / bucket)
            rows.append(
                {"bucket": bucket, "steps": num_steps, "mean_requests": round(mean, 2), "waste_pct": round(waste, 2)}
            )
    return rows


def size_rows(columns: Columns) -> list[dict[str, Any]]:
    """Return one row for each batch size that came: steps, virtual seconds, and the share of them on a graph."""
    rows: list[dict[str, Any]] = []
    for size in np.unique(columns["requests"]):
        at = columns["requests"] == size
        num_steps, num_eager = int(at.sum()), int((columns["path"][at] == EAGER).sum())
        rows.append(
            {
                "requests": int(size),
                "steps": num_steps,
                "virtual_s": round(int(columns["cost_us"][at].sum()) / 1e6, 2),
                "on_graph_pct": round(100 * (num_steps - num_eager) / num_steps, 1),
            }
        )
    return rows
