"""Time the decode steps of an engine: the prefill is left out, and every request decodes in every timed step.

Does not: choose a workload's meaning: the prompts are fixed arithmetic ids, since speed does not read them.
"""

import time

from engine.config import SamplingParams
from engine.errors import ConfigError
from engine.llm import LLM


def prompt_ids(batch: int, length: int, vocab_size: int) -> list[list[int]]:
    """Return different prompts of one length. Shapes: [batch][length]."""
    return [[(7 + 13 * row + 31 * at) % vocab_size for at in range(length)] for row in range(batch)]


def require_positive(**counts: int | tuple[int, ...]) -> None:
    """Raise ConfigError for a count below 1, alone or in a tuple, by name; and for a tuple of none."""
    for name, value in counts.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if min(numbers, default=0) < 1:
            message = f"{name} must be at least 1, got {', '.join(map(str, numbers)) or 'none'}"
            raise ConfigError(message)


def decode_rate(llm: LLM, prompts: list[list[int]], new_tokens: int) -> tuple[float, list[list[int]]]:
    """Return decode tokens a second of one batch, and the tokens. The first token of each comes from the prefill."""
    params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
    request_ids = [llm.submit(prompt, params) for prompt in prompts]
    llm.step()
    tokens: dict[int, list[int]] = {}
    began = time.perf_counter()
    while len(tokens) < len(request_ids):
        for output in llm.step():
            tokens[output.request_id] = list(output.token_ids)
    seconds = time.perf_counter() - began
    rate = len(prompts) * (new_tokens - 1) / seconds
    return rate, [tokens[request_id] for request_id in request_ids]
