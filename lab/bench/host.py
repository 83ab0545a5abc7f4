"""Host microseconds of a decode step, stage by stage, on the full path and on the steady path.

One engine decodes one batch; blocks of steps on either path alternate, so that a machine that slows down slows both.
A stage's time runs from the
return of the last ``emit`` to the entry of its own. *Preparation* is PACKED, COPIED and METADATA of one step
together; with the tests that choose the path they begin at PADDED. ``direct.py`` times the calls once more with no
probe about.

Sequences stand in two ways. Spread, as in real traffic: they end at every place of a block. Together: all end at the
same place. The engine hands blocks out early, in every fourth step, where it has plenty; so medians over its steps see
no table grow. The calls without a probe are timed at the worst: spread, one table in sixteen grows in every call.

Does not: time the device. On CUDA the RAN stage is the launch, and SAMPLED waits for the device.
"""

import dataclasses
import enum
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from engine.device import DeviceSpec, resolve_device
from engine.errors import ConfigError
from engine.inputs.steady import SteadyRecord, SteadyRefusal, SteadyRows, UseFacts, why_not_use
from engine.llm import LLM
from engine.probe import Stage
from engine.scheduled import ScheduledRequests
from lab.bench.decode import prompt_ids, require_positive
from lab.bench.direct import NUM_SAMPLES, StepKeeper, full_seconds, steady_seconds
from lab.bench.shapes import random_model, random_weights, shape_config

PREPARATION = (Stage.PACKED, Stage.COPIED, Stage.METADATA)
TESTED = (Stage.PADDED, Stage.GRAPH_CHOSEN, *PREPARATION)
BLOCK = 8  # steps of one path before the other's turn
TOKENS_PER_BLOCK = 16
GPU_SHAPES = ("tiny", "smollm2-135m")
CPU_SHAPES = ("tiny",)  # there a larger shape's own work hides the host's
LAST_STAGE = "step"  # of the rows of one batch

Note = Callable[[str], object]
Times = dict[Stage, int]  # nanoseconds


class Growth(enum.StrEnum):
    """When block tables grow; see the module."""

    SPREAD = "spread"
    TOGETHER = "together"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostBench:
    """What to measure. steps: of each path. prompt_len: tokens of the shortest prompt. growth: of the block tables.

    shapes: none means those that suit the device.
    """

    shapes: tuple[str, ...] = ()
    batches: tuple[int, ...] = (8, 256)
    prompt_len: int = 128
    steps: int = 64
    growth: tuple[Growth, ...] = (Growth.SPREAD, Growth.TOGETHER)


class StageClock:
    """A probe that times the stages of the step that runs."""

    def __init__(self) -> None:
        self.times: Times = {}
        self.is_steady = False
        self._last = 0

    def start(self) -> None:
        """Begin a step now."""
        self.times, self.is_steady = {}, False
        self._last = time.perf_counter_ns()

    def emit(self, stage: Stage, step: int, value: object) -> None:
        """Note the nanoseconds since the last emit returned."""
        entry = time.perf_counter_ns()
        self.times[stage] = entry - self._last
        if stage is Stage.PACKED:
            self.is_steady = isinstance(value, SteadyRows)
        self._last = time.perf_counter_ns()


@dataclasses.dataclass(slots=True)
class _Switch:
    """The steady path's use test, which can be made to fail."""

    allow_steady: bool = True

    def why_not_use(self, record: SteadyRecord | None, facts: UseFacts) -> SteadyRefusal | None:
        refusal = why_not_use(record, facts)
        return refusal if self.allow_steady else refusal or SteadyRefusal.NOTHING_RECORDED


def measure(bench: HostBench, *, device: str = "auto", note: Note = print) -> Iterator[dict[str, Any]]:
    """Yield one row for each shape, batch, growth and stage; those of a batch come as soon as it is measured.

    Keys: shape, device, batch, growth, stage, full_us and steady_us (medians over the steps of either path; None where
    a path has no such stage), share (steady over full); simulated: True where graphs ran on the tape. After the ten
    stages come "preparation and its tests", "preparation", "preparation without a probe" and LAST_STAGE.
    note: receives the legend, then a line of progress for each batch.
    Raises: ConfigError for a count too small, an unknown shape, or a device that is not there.
    """
    spec = resolve_device(device, "auto")
    require_positive(steps=bench.steps, prompt_len=bench.prompt_len, batches=bench.batches)
    shapes = bench.shapes or (GPU_SHAPES if spec.is_cuda else CPU_SHAPES)
    for shape in shapes:
        shape_config(shape)
    for line in legend(bench, spec):
        note(line)
    runs = list(itertools.product(shapes, sorted(set(bench.batches)), bench.growth))
    for at, (shape, batch, growth) in enumerate(runs, start=1):
        note(f"measuring {at} of {len(runs)}: {shape}, batch {batch}, growth {growth.value}")
        found = _measure_batch(bench, shape, batch, spec, is_spread=growth is Growth.SPREAD)
        about = {"shape": shape, "device": spec.torch_device.type, "batch": batch, "growth": growth.value}
        label = {"simulated": True} if found.simulated else {}
        yield from (about | row | label for row in _stage_rows(found))


def legend(bench: HostBench, spec: DeviceSpec) -> Iterator[str]:
    """Say in a few lines what the rows mean, and on what they were measured."""
    threads = torch.get_num_threads()
    tape = "" if spec.is_cuda else "; graphs are simulated by the tape, so what ran says nothing of a GPU"
    yield f"{spec.torch_device}, {spec.dtype}, {threads} thread{'' if threads == 1 else 's'}{tape}"
    steps = BLOCK * -(-bench.steps // BLOCK)
    yield f"full_us, steady_us: host microseconds of a step, medians over {steps} steps of either path"
    yield "share: steady over full; stages of one step in the order in which they run, then sums"
    yield "preparation: packed, copied and metadata; its tests: padded and graph_chosen, which choose the path"
    yield f"without a probe: the calls of preparation one by one, unobserved, medians over {NUM_SAMPLES}"
    yield (
        f"growth of block tables: the engine's steps change tables in every fourth step, which medians do not see; the "
        f"calls without a probe grow one table in {TOKENS_PER_BLOCK} each when spread, none when together"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """Stage times of every step by path, the whole steps', and the medians of preparation alone. Units: ns, s."""

    stages: dict[bool, list[Times]]
    steps: dict[bool, list[int]]
    direct: dict[bool, float]
    simulated: bool


def _measure_batch(bench: HostBench, shape: str, batch: int, spec: DeviceSpec, *, is_spread: bool) -> _Found:
    switch, keeper = _Switch(), StepKeeper()
    config = _config(bench, batch, spec, max_seq_len=min(2048, shape_config(shape).max_position))
    loaded = random_model(shape, random_weights(shape_config(shape), spec), spec, max_seq_len=config.max_seq_len)
    decisions = Decisions(why_not_use_steady=switch.why_not_use, pack=keeper.pack)
    with LLM(loaded, config, decisions=decisions) as llm:
        found = _Found({True: [], False: []}, {True: [], False: []}, {}, llm.warmup_report.simulated)
        _prefill(
            llm,
            _prompts(bench, shape, batch, is_spread=is_spread),
            SamplingParams(max_tokens=_num_tokens(bench), ignore_eos=True),
        )
        for is_steady, times, nanoseconds in _run(llm, switch, bench.steps):
            found.stages[is_steady].append(times)
            found.steps[is_steady].append(nanoseconds)
        switch.allow_steady = False
        llm.set_probe(keeper)
        llm.step()
        llm.set_probe(None)
        kept = keeper.kept(llm, is_spread=is_spread)
        found.direct.update({False: full_seconds(*kept), True: steady_seconds(*kept)})
    return found


def _run(llm: LLM, switch: _Switch, steps: int) -> Iterator[tuple[bool, Times, int]]:
    """Yield (whether it was steady, its stage times, its whole time) of each step, in blocks of either path.

    The first step of a block is left out: it follows a step of the other path.
    """
    clock = StageClock()
    llm.set_probe(clock)
    for _ in range(-(-steps // BLOCK)):
        for allow_steady in (False, True):
            switch.allow_steady = allow_steady
            for at in range(BLOCK + 1):
                clock.start()
                began = time.perf_counter_ns()
                llm.step()
                nanoseconds = time.perf_counter_ns() - began
                assert clock.is_steady == allow_steady, f"asked for steady={allow_steady}, got {clock.is_steady}"
                if at:
                    yield clock.is_steady, clock.times, nanoseconds
    llm.set_probe(None)


def _num_tokens(bench: HostBench) -> int:
    """Say how many tokens a request must be good for: the blocks of steps, and what comes around them."""
    return 2 * -(-bench.steps // BLOCK) * (BLOCK + 1) + 16


def _config(bench: HostBench, batch: int, spec: DeviceSpec, *, max_seq_len: int) -> EngineConfig:
    longest = bench.prompt_len + TOKENS_PER_BLOCK + _num_tokens(bench)
    if longest > max_seq_len:
        message = f"prompt_len and steps must fit into {max_seq_len} tokens, they need {longest}; lower one of them"
        raise ConfigError(message)
    return EngineConfig(
        device=str(spec.torch_device),
        max_seq_len=max_seq_len,
        scheduler=SchedulerConfig(max_batch_size=batch, max_num_tokens=batch * (bench.prompt_len + TOKENS_PER_BLOCK)),
        kv_cache=KVCacheConfig(
            tokens_per_block=TOKENS_PER_BLOCK,
            num_blocks=max(batch * -(-longest // TOKENS_PER_BLOCK), -(-max_seq_len // TOKENS_PER_BLOCK)),
        ),
        cuda_graph=CudaGraphConfig(batch_sizes=(batch,), sample_modes=("greedy",)),
    )


def _prompts(bench: HostBench, shape: str, batch: int, *, is_spread: bool) -> list[list[int]]:
    """Give prompts of one length, or of so many that their ends lie at every place of a block."""
    longest = prompt_ids(batch, bench.prompt_len + TOKENS_PER_BLOCK, shape_config(shape).vocab_size)
    extra = TOKENS_PER_BLOCK if is_spread else 1
    return [prompt[: bench.prompt_len + row % extra] for row, prompt in enumerate(longest)]


@dataclasses.dataclass(slots=True)
class _Settled:
    """A probe that counts the steps in which every request decoded."""

    batch: int
    num_steps: int = 0

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if isinstance(value, ScheduledRequests):
            self.num_steps += len(value.generation_requests) == self.batch


def _prefill(llm: LLM, prompts: list[list[int]], params: SamplingParams) -> None:
    """Submit, and step until every request has decoded three times."""
    settled = _Settled(len(prompts))
    llm.set_probe(settled)
    for prompt in prompts:
        llm.submit(prompt, params)
    while settled.num_steps < 3:
        llm.step()
    llm.set_probe(None)


def _stage_rows(found: _Found) -> Iterator[dict[str, Any]]:
    """Take the medians, stage by stage, then of the sums that count."""
    for stage in Stage:
        yield _stage_row(stage.name.lower(), *(_median(found.stages[path], (stage,)) for path in (False, True)))
    yield _stage_row("preparation and its tests", *(_median(found.stages[path], TESTED) for path in (False, True)))
    yield _stage_row("preparation", *(_median(found.stages[path], PREPARATION) for path in (False, True)))
    yield _stage_row("preparation without a probe", *(1e6 * found.direct[path] for path in (False, True)))
    yield _stage_row(LAST_STAGE, *(statistics.median(found.steps[path]) / 1e3 for path in (False, True)))


def _median(steps: list[Times], stages: tuple[Stage, ...]) -> float | None:
    """Return the median microseconds of some stages together; None when no step had any of them."""
    sums = [sum(times[stage] for stage in stages if stage in times) for times in steps]
    return statistics.median(sums) / 1e3 if any(stage in times for times in steps for stage in stages) else None


def _stage_row(stage: str, full: float | None, steady: float | None) -> dict[str, Any]:
    return {
        "stage": stage,
        "full_us": None if full is None else round(full, 1),
        "steady_us": None if steady is None else round(steady, 1),
        "share": None if full is None or steady is None else round(steady / full, 3),
    }
