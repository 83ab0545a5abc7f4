"""CPU decode speed beside transformers ``generate``: same weights, same prompts, same process, interleaved.

Each round runs both at every batch size, one right after the other, so that a machine that slows down slows both; the
best round of each counts. Both decode greedily in float32 with torch's own number of threads, and prefill is left out
on both sides. The tokens are compared before anything is believed.

Does not: tune. The engine runs with its default config, its buckets being the measured batch sizes.
"""

import dataclasses
import time
from typing import Any

import torch

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from engine.errors import ConfigError, ModelError
from engine.llm import LLM
from lab.bench.decode import decode_rate, prompt_ids, require_positive
from lab.bench.reference import load_reference, require_transformers

MIN_SAME: int = 4  # leading greedy tokens that must agree; later ones may part at a near-tie


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CpuBench:
    """What to measure. Units: prompt_len and new_tokens in tokens of each request."""

    model: str = "smollm2-135m"
    batches: tuple[int, ...] = (1, 4, 8)
    prompt_len: int = 16
    new_tokens: int = 48
    rounds: int = 3


class _Stamps:
    """A stopping criterion that never stops: it notes when each token was ready."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def measure(bench: CpuBench) -> list[dict[str, Any]]:
    """Return one row for each batch size: batch, stepscope_tok_s, transformers_tok_s, ratio.

    Raises: ConfigError for a count below 1 or without transformers; ModelError when the two disagree.
    """
    require_positive(rounds=bench.rounds, prompt_len=bench.prompt_len, batches=bench.batches)
    if bench.new_tokens < 2:
        message = f"new_tokens must be at least 2 (the first of each request is not timed), got {bench.new_tokens}"
        raise ConfigError(message)
    require_transformers()
    batches = tuple(sorted(set(bench.batches)))
    config = EngineConfig(
        device="cpu",
        dtype="float32",
        max_seq_len=bench.prompt_len + bench.new_tokens,
        scheduler=SchedulerConfig(max_batch_size=batches[-1], max_num_tokens=batches[-1] * bench.prompt_len),
        cuda_graph=CudaGraphConfig(batch_sizes=batches),
    )
    with LLM(bench.model, config) as llm:
        reference = load_reference(bench.model)
        best = dict.fromkeys(batches, (0.0, 0.0))
        for _ in range(bench.rounds):
            for batch in batches:
                best[batch] = _round(llm, reference, bench, batch, best[batch])
    return [
        {
            "batch": batch,
            "stepscope_tok_s": round(ours, 1),
            "transformers_tok_s": round(theirs, 1),
            "ratio": round(ours / theirs, 2),
        }
        for batch, (ours, theirs) in best.items()
    ]


def _round(llm: LLM, reference: Any, bench: CpuBench, batch: int, best: tuple[float, float]) -> tuple[float, float]:
    prompts = prompt_ids(batch, bench.prompt_len, llm.loaded.config.vocab_size)
    ours, tokens = decode_rate(llm, prompts, bench.new_tokens)
    theirs, expected = _generate_rate(reference, prompts, bench.new_tokens)
    same = min(MIN_SAME, bench.new_tokens)
    if [row[:same] for row in tokens] != [row[:same] for row in expected]:
        message = (
            f"the engine and transformers must give the same first {same} tokens on the same weights, got {tokens[0]} "
            f"and {expected[0]} for the first request; speeds of different models say nothing"
        )
        raise ModelError(message)
    return max(best[0], ours), max(best[1], theirs)


def _generate_rate(reference: Any, prompts: list[list[int]], new_tokens: int) -> tuple[float, list[list[int]]]:
    """Return decode tokens a second of ``generate``, from its first token to its last, and the tokens."""
    ids, stamps = torch.tensor(prompts), _Stamps()
    with torch.no_grad():
        out = reference.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
            stopping_criteria=[stamps],
        )
    seconds = stamps.times[-1] - stamps.times[0]
    return len(prompts) * (new_tokens - 1) / seconds, out[:, ids.shape[1] :].tolist()
