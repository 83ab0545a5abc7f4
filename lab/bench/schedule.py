"""What the step loop costs on the host: scheduling, reserving and committing, with nobody's model in between.

The executor serves over the null runner (``lab/replay/null_engine.py``). Two kinds of step: *repeating*, the same
requests as the step before; *changing*, one of them ends and one that waits is let in, in each step. Each with a queue
and without one: the cost has to follow what runs, not what waits. Times are CPU time of the thread, since the loop
waits for nothing here, so other programs on the machine count little.

Does not: time preparation of inputs (``host.py``), a device, or the arrival of requests.
"""

import dataclasses
import statistics
import time
from collections.abc import Iterator
from typing import Any, Final

from engine.config import EngineConfig, KVCacheConfig, SchedulerConfig
from engine.llm_request import RequestSpec
from lab.bench.decode import require_positive
from lab.replay.null_engine import NullEngine, build_null_engine, length_params

PROMPT: Final = 16
SETTLE: Final = 8  # steps before the first that counts
TOKENS_PER_BLOCK: Final = 16


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBench:
    """What to measure. running: requests a step. waiting: requests behind them. steps: behind each median."""

    running: int = 256
    waiting: int = 2000
    steps: int = 200
    policies: tuple[str, ...] = ("guaranteed_no_evict", "max_utilization")


def measure(bench: ScheduleBench) -> Iterator[dict[str, Any]]:
    """Yield a row for each policy, kind of step, and queue: its median CPU microseconds, in all and a request.

    Raises: ConfigError for a count below 1.
    """
    require_positive(running=bench.running, waiting=bench.waiting, steps=bench.steps)
    for policy in bench.policies:
        for is_changing in (False, True):
            for num_waiting in (0, bench.waiting):
                found = _step_us(bench, policy, num_waiting, is_changing=is_changing)
                yield {
                    "stage": f"step loop, {'changing' if is_changing else 'repeating'}",
                    "policy": policy,
                    "running": bench.running,
                    "waiting": num_waiting,
                    "step_us": round(found, 1),
                    "us_per_request": round(found / bench.running, 2),
                }


def _step_us(bench: ScheduleBench, policy: str, num_waiting: int, *, is_changing: bool) -> float:
    """Return the median microseconds of a step."""
    engine = _serving(bench, policy)
    num_ending = bench.steps + SETTLE if is_changing else 0
    longest = 2 * (bench.steps + SETTLE)
    # The running requests end one a step, or none does; whoever follows them stays to the end of the measurement.
    lengths = [SETTLE + 1 + at if at < num_ending else longest for at in range(bench.running)]
    lengths += [longest] * (num_waiting + num_ending)
    for at, length in enumerate(lengths):
        first = (at + 1) << 24
        engine.submit(RequestSpec(at, range(first, first + PROMPT), length_params(length), max_new_tokens=length))
    times: list[int] = []
    for step in range(SETTLE + min(bench.steps, bench.running if is_changing else bench.steps)):
        began = time.thread_time_ns()
        engine.executor.step()
        if step >= SETTLE:
            times.append(time.thread_time_ns() - began)
        engine.executor.take_finished()
    return statistics.median(times) / 1e3


def _serving(bench: ScheduleBench, policy: str) -> NullEngine:
    """Build an engine whose batch is full with the running ones, and whose pool is not what anybody waits for."""
    length = PROMPT + 2 * (bench.steps + SETTLE)
    config = EngineConfig(
        device="cpu",
        max_seq_len=length,
        scheduler=SchedulerConfig(
            max_batch_size=bench.running,
            max_num_tokens=bench.running * PROMPT + TOKENS_PER_BLOCK,
            capacity_policy=policy,  # pyright: ignore[reportArgumentType]
            chunking="fcfs",
        ),
        kv_cache=KVCacheConfig(
            tokens_per_block=TOKENS_PER_BLOCK, num_blocks=2 * bench.running * -(-length // TOKENS_PER_BLOCK)
        ),
    )
    return build_null_engine(config)
