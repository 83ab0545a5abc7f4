"""Time an engine's decode in two ways: its captured graph alone, and all of ``LLM.generate``.

The graph is replayed back to back over the state that a real batch left behind in the middle of its generation:
its tokens, positions, block tables and KV lengths. Each replay computes that same step again, sampling included.

Does not: choose a model or compare.
"""

import dataclasses
import statistics
import time

import torch

from engine.config import SamplingParams
from engine.errors import ConfigError
from engine.inputs.records import RunEvent
from engine.llm import LLM
from engine.probe import Stage
from engine.py_executor import StepCommit
from engine.reasons import PathKind
from lab.bench.clock import median_of


@dataclasses.dataclass(slots=True)
class _LastRun:
    """A probe that remembers how the last step ran."""

    event: RunEvent | None = None

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if isinstance(value, RunEvent):
            self.event = value


@dataclasses.dataclass(slots=True)
class _FirstCommit:
    """A probe that notes when the first step was final, and leaves: the steps after it are not observed."""

    llm: LLM
    time: float = 0.0
    num_continued: int = 0

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if isinstance(value, StepCommit):
            self.num_continued = len(value.continued)
            self.llm.set_probe(None)
            self.time = time.perf_counter()


def replay_seconds(llm: LLM, prompts: list[list[int]], *, num_decodes: int, rounds: int, replays: int) -> float:
    """Return the median seconds of one replay of the batch's decode graph.

    num_decodes: decode steps that the batch runs first, so the graph attends over prompt + num_decodes tokens.
    rounds, replays: the median is taken over rounds of so many replays. The engine must be idle; it is so again after.
    Raises: ConfigError when the engine has no graph for the batch.
    """
    params = SamplingParams(max_tokens=num_decodes + 2, ignore_eos=True)
    last = _LastRun()
    llm.set_probe(last)
    request_ids = [llm.submit(prompt, params) for prompt in prompts]
    for _ in range(1 + num_decodes):
        llm.step()
    llm.set_probe(None)
    event = last.event
    if event is None or event.path is not PathKind.REPLAY:
        message = (
            f"the decode step of {len(prompts)} requests must replay a graph to be timed, it ran "
            f"{'not at all' if event is None else event.path.value}; give the engine a graph of this batch size"
        )
        raise ConfigError(message)
    [key] = [key for key in llm.graphs.captured_keys if str(key) == event.key]
    graph = llm.graphs.graph_for(key)
    with torch.no_grad():
        seconds = median_of(graph.replay, llm.device_spec.torch_device, rounds=rounds, calls=replays)
    for request_id in request_ids:
        llm.abort(request_id)
    llm.step()
    return seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """Medians of tokens a second. whole: all new tokens over the whole call, the prefill included.

    decode: every token but the first of each request, over the time from the first ones to the end.
    """

    decode: float
    whole: float


def median_rates(spans: list[tuple[float, float]], *, batch: int, new_tokens: int) -> Rates:
    """Turn (seconds of the call, seconds after the first tokens) of each round into rates."""
    whole, decode = (statistics.median(seconds) for seconds in zip(*spans, strict=True))
    return Rates(decode=batch * (new_tokens - 1) / decode, whole=batch * new_tokens / whole)


def generate_rates(
    llm: LLM, prompts: list[list[int]], new_tokens: int, *, rounds: int
) -> tuple[Rates, list[list[int]]]:
    """Return the rates of ``LLM.generate``, and the tokens.

    The first tokens are there when the step that computes all prompts is committed; the end is the return of
    ``generate``. One round runs before those that count.
    """
    params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
    spans: list[tuple[float, float]] = []
    tokens: list[list[int]] = []
    for _ in range(1 + rounds):
        first = _FirstCommit(llm)
        llm.set_probe(first)
        began = time.perf_counter()
        outputs = llm.generate(prompts, params)
        ended = time.perf_counter()
        assert first.num_continued == len(prompts), "the prompts took more than one step"
        spans.append((ended - began, ended - first.time))
        tokens = [list(output.token_ids) for output in outputs]
    return median_rates(spans[1:], batch=len(prompts), new_tokens=new_tokens), tokens
