"""What a step and a graph cost on this machine, as the terms of bucket advice: straight lines through two batch sizes.

One engine with graphs and one without decode a batch of 1 and a larger one; the lines go through the medians of their
rounds. Prompt rows come from two prompt lengths. Captures report their own time and bytes; memory that all graphs share
is counted once, and divided. On a CPU graphs are the tape: then a graph saves nothing, and the origin says simulated.

Does not: choose buckets (``lab/advice``). The KV lengths that attention reads are part of the fixed term here.
"""

import dataclasses
import statistics
import time

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from lab.bench.decode import decode_rate, prompt_ids

BATCHES = (1, 8)
PROMPTS = (32, 256)
ROUNDS = 3
NEW_TOKENS = 24


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """terms: of the replay's cost model by name, in microseconds. Units: milliseconds and MiB a graph."""

    terms: dict[str, float]
    capture_ms: float
    graph_mib: float
    origin: str


def line(points: dict[int, float]) -> tuple[float, float]:
    """Return (fixed, per row) of the line through two points; a line never falls, and never begins below zero."""
    (low, at_low), (high, at_high) = sorted(points.items())
    per_row = max(0.0, (at_high - at_low) / (high - low))
    return max(0.0, at_low - per_row * low), per_row


def measure(model: str) -> MeasuredCosts:
    """Measure with a model, named as everywhere. Raises: ModelError, ConfigError."""
    config = _config(graphs=True)
    with LLM(model, config) as llm:
        on_graph = line({batch: _decode_us(llm, batch) for batch in BATCHES})
        captures, device = llm.warmup_report.captures, llm.device_spec.torch_device
        simulated = llm.warmup_report.simulated
        pool_bytes = llm.warmup_report.pool_bytes
    with LLM(model, _config(graphs=False)) as llm:
        eager = line({batch: _decode_us(llm, batch) for batch in BATCHES})
        prompts = line({length: _prompt_us(llm, length) for length in PROMPTS})
    terms: dict[str, float] = {}
    for path, (fixed, per_row) in {"graph": on_graph, "prefill": prompts, "eager": eager}.items():
        terms |= {f"{path}.fixed": round(fixed, 2), f"{path}.per_row": round(per_row, 3), f"{path}.per_kv_token": 0.0}
    seconds = [capture.warmup_seconds + capture.capture_seconds for capture in captures]
    return MeasuredCosts(
        terms=terms,
        capture_ms=round(1e3 * statistics.mean(seconds), 2),
        graph_mib=round(pool_bytes / len(captures) / 2**20, 3),
        origin=f"measured here: {model} on {device}{', graphs simulated by the tape' if simulated else ''}",
    )


def _config(*, graphs: bool) -> EngineConfig:
    return EngineConfig(
        max_seq_len=512,
        scheduler=SchedulerConfig(max_batch_size=BATCHES[-1], max_num_tokens=512),
        cuda_graph=CudaGraphConfig(enabled=graphs, batch_sizes=BATCHES, sample_modes=("greedy",)),
    )


def _decode_us(llm: LLM, batch: int) -> float:
    """Return the median microseconds of a decode step of one batch."""
    prompts = prompt_ids(batch, 16, llm.loaded.config.vocab_size)
    return statistics.median(1e6 * batch / decode_rate(llm, prompts, NEW_TOKENS)[0] for _ in range(ROUNDS))


def _prompt_us(llm: LLM, length: int) -> float:
    """Return the median microseconds of a step with one prompt."""
    found: list[float] = []
    for at in range(ROUNDS):
        prompt = [(7 * at + 3 * position) % llm.loaded.config.vocab_size for position in range(length)]
        llm.submit(prompt, SamplingParams(max_tokens=1, ignore_eos=True))
        began = time.perf_counter()
        while llm.has_unfinished:
            llm.step()
        found.append(1e6 * (time.perf_counter() - began))
    return statistics.median(found)
