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


def generate_rate(llm: LLM, prompts: list[list[int]], new_tokens: int, *, rounds: int) -> tuple[float, list[list[int]]]:
    """Return decode tokens a second of ``LLM.generate``, the median of rounds, and the tokens.

    Units: every token but the first of each request, over the time from the commit of the step that gave the first
    ones (all prompts are computed in one step) to the return of ``generate``. One round runs before those that count.
    """
    params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
    rates: list[float] = []
    tokens: list[list[int]] = []
    for _ in range(1 + rounds):
        first = _FirstCommit(llm)
        llm.set_probe(first)
        outputs = llm.generate(prompts, params)
        seconds = time.perf_counter() - first.time
        assert first.num_continued == len(prompts), "the prompts took more than one step"
        rates.append(len(prompts) * (new_tokens - 1) / seconds)
        tokens = [list(output.token_ids) for output in outputs]
    return statistics.median(rates[1:]), tokens
