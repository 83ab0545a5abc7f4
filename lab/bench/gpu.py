"""CUDA decode speed, replayed graphs beside eager launches: what graph capture buys on this device.

Does not: compare with other engines, or run without CUDA.
"""

import dataclasses
from typing import Any

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from engine.llm import LLM
from lab.bench.decode import decode_rate, prompt_ids, require_positive


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuBench:
    """What to measure. Units: prompt_len and new_tokens in tokens of each request."""

    model: str = "tiny"
    batches: tuple[int, ...] = (1, 4, 8)
    prompt_len: int = 16
    new_tokens: int = 64
    rounds: int = 3


def measure(bench: GpuBench, *, device: str = "cuda") -> list[dict[str, Any]]:
    """Return one row for each batch size: batch, eager_tok_s, graph_tok_s, ratio.

    device: "cpu" times the tape, which proves the bench and says nothing of speed.
    Raises: ConfigError for a count below 1, or without CUDA.
    """
    require_positive(rounds=bench.rounds, prompt_len=bench.prompt_len, **{f"batch {b}": b for b in bench.batches})
    require_positive(new_tokens_minus_one=bench.new_tokens - 1)
    batches = tuple(sorted(set(bench.batches)))
    best = {is_graph: dict.fromkeys(batches, 0.0) for is_graph in (False, True)}
    for is_graph, rates in best.items():
        config = EngineConfig(
            device=device,
            max_seq_len=bench.prompt_len + bench.new_tokens,
            scheduler=SchedulerConfig(max_batch_size=batches[-1], max_num_tokens=batches[-1] * bench.prompt_len),
            cuda_graph=CudaGraphConfig(enabled=is_graph, batch_sizes=batches),
        )
        with LLM(bench.model, config) as llm:
            for _ in range(bench.rounds):
                for batch in batches:
                    prompts = prompt_ids(batch, bench.prompt_len, llm.loaded.config.vocab_size)
                    rates[batch] = max(rates[batch], decode_rate(llm, prompts, bench.new_tokens)[0])
    return [
        {
            "batch": batch,
            "eager_tok_s": round(best[False][batch], 1),
            "graph_tok_s": round(best[True][batch], 1),
            "ratio": round(best[True][batch] / best[False][batch], 2),
        }
        for batch in batches
    ]
