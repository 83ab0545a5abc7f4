"""What a fault is: a rule of the graph path broken on purpose, with the workload that shows the harm.

A fault is a scoped patch of the engine, or another record of ``Decisions``, or something done to a started engine;
the engine's files hold no fault. ``swapped`` is the only way in which a fault changes the engine, and it changes it
back.

Does not: run anything (``runs.py``) or list the faults (``catalogue.py``).
Source: the public bugs, and rules of other engines, that the faults name.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from engine.llm import LLM

_ABSENT: Final = object()
TOKENS_PER_BLOCK: Final = 4  # small, so that a short run crosses block boundaries
GREEDY: Final = SamplingParams(max_tokens=10, ignore_eos=True)


@contextlib.contextmanager
def swapped(target: object, name: str, new: object) -> Generator[None]:
    """Give an attribute of a class, a module or an object another value inside the block.

    Raises: AttributeError when there is none of that name: the engine has changed and the fault must follow.
    """
    getattr(target, name)
    before: object = vars(target).get(name, _ABSENT)
    setattr(target, name, new)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(target, name)
        else:
            setattr(target, name, before)


def part(whole: object, name: str) -> Any:
    """Return a part of the engine that no interface shows, as the value that it is. Raises: AttributeError."""
    return getattr(whole, name)


@dataclasses.dataclass(frozen=True, slots=True)
class Joining:
    """One request of a workload: the step at which it joins, its prompt and what it asks for."""

    prompt: str
    arrival_step: int = 0
    params: SamplingParams = GREEDY


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What runs, with the fault and without it, always on the tiny model.

    lag: actions that a CPU device is behind the host (on CUDA the device is held back instead). interrupts: steps in
    which a Ctrl-C arrives before the samples are read, once each.
    """

    joining: tuple[Joining, ...]
    config: EngineConfig
    lag: int = 0
    interrupts: tuple[int, ...] = ()


def small_config(
    *,
    batch_sizes: tuple[int, ...] = (4,),
    num_blocks: int = 40,
    tokens_per_block: int = TOKENS_PER_BLOCK,
    sample_modes: tuple[str, ...] = ("greedy",),
    chunk_rows: int | None = None,
    attention_backend: Literal["native", "vanilla"] = "native",
) -> EngineConfig:
    """Return the configuration of most workloads: batches of four, short sequences, blocks of four tokens.

    chunk_rows: rows of a step, into which longer prompts are cut; None: prompts run whole.
    """
    return EngineConfig(
        dtype="float32",
        max_seq_len=48,
        attention_backend=attention_backend,
        scheduler=SchedulerConfig(
            max_batch_size=4,
            max_num_tokens=chunk_rows or 64,
            chunking=None if chunk_rows is None else "fcfs",
        ),
        kv_cache=KVCacheConfig(num_blocks=num_blocks, tokens_per_block=tokens_per_block),
        cuda_graph=CudaGraphConfig(batch_sizes=batch_sizes, sample_modes=sample_modes),
    )


THREE: Final = (Joining("Hello there"), Joining("abc"), Joining("xyz!?"))
FOUR: Final = (*THREE, Joining("once upon"))


def _do_nothing(_llm: LLM) -> None:
    """Leave a started engine as it is."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    explanation: what goes wrong, in a sentence. rule: the rule that it breaks, as one would state it to a colleague.
    source: the public bug, or another engine's rule, that it is modelled on. patch: applied while the engine is built
    and run. decisions: the decisions that the engine gets. start: done to the engine when it is warm. lift: applied too
    when the guards are off, for a guard of this fault alone.
    """

    name: str
    explanation: str
    rule: str
    source: str
    workload: Workload
    patch: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    decisions: Callable[[], Decisions] = Decisions
    start: Callable[[LLM], None] = _do_nothing
    lift: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
