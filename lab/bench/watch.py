"""What watching costs: an unwatched engine against its own files without probe sites, and a light recorder.

The stripped engine is made from the same two files, read from disk, with every guarded line pair removed, and
compiled under other module names. Both engines (and the watched one) decode the same batch in turns, a block of steps
each, so that a machine that slows down slows all; the median step of each counts.

Does not: judge. The ratios are printed; a test checks that stripping finds every site.
"""

import dataclasses
import importlib.util
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import engine.llm
import engine.model_engine
import engine.py_executor
import engine.runners.decoder
from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from lab.bench.decode import prompt_ids, require_positive
from lab.session import attach

GUARD = "if self._probe is not None:"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchBench:
    """What to measure. rounds: blocks of ``steps`` decode steps that each engine runs, in turns."""

    model: str = "tiny"
    batch: int = 8
    steps: int = 50
    rounds: int = 20


def strip_probe_sites(source: str) -> tuple[str, int]:
    """Return the source without its guarded lines, and how many sites went."""
    kept: list[str] = []
    lines = source.split("\n")
    at = num_sites = 0
    while at < len(lines):
        if lines[at].strip() == GUARD:
            num_sites += 1
            at += 2
            continue
        kept.append(lines[at])
        at += 1
    return "\n".join(kept), num_sites


def _stripped(module: types.ModuleType) -> types.ModuleType:
    """Compile a module again without its probe sites, under another name."""
    assert module.__file__ is not None
    source, _num_sites = strip_probe_sites(Path(module.__file__).read_text(encoding="utf-8"))
    name = f"{module.__name__}_without_probe_sites"
    spec = importlib.util.spec_from_loader(name, loader=None)
    assert spec is not None
    copy = importlib.util.module_from_spec(spec)
    sys.modules[name] = copy  # dataclasses look their module up
    exec(compile(source, module.__file__, "exec"), copy.__dict__)  # noqa: S102 our own source, two lines fewer a site
    return copy


def _stripped_llm(model: str, config: EngineConfig) -> LLM:
    decoder, executor = _stripped(engine.runners.decoder), _stripped(engine.py_executor)
    with (
        mock.patch.object(engine.model_engine, "DecoderRunner", decoder.DecoderRunner),
        mock.patch.object(engine.model_engine, "DecoderParts", decoder.DecoderParts),
        mock.patch.object(engine.model_engine, "DecoderRunnerConfig", decoder.DecoderRunnerConfig),
        mock.patch.object(engine.llm, "PyExecutor", executor.PyExecutor),
    ):
        return LLM(model, config)


def _step_times(llm: LLM, bench: WatchBench) -> Iterator[list[float]]:
    """Yield the seconds of each decode step, one block at a time; prompts are run before the first block."""
    params = SamplingParams(max_tokens=bench.steps * bench.rounds + 2, ignore_eos=True)
    for prompt in prompt_ids(bench.batch, 8, llm.loaded.config.vocab_size):
        llm.submit(prompt, params)
    llm.step()
    for _ in range(bench.rounds):
        times: list[float] = []
        for _ in range(bench.steps):
            started = time.perf_counter()
            llm.step()
            times.append(time.perf_counter() - started)
        yield times


def measure(bench: WatchBench) -> list[dict[str, Any]]:
    """Return rows {what, step_us, ratio}: stripped, unwatched and lightly recorded; ratios to the row before.

    Raises: ConfigError for a count below 1.
    """
    require_positive(batch=bench.batch, steps=bench.steps, rounds=bench.rounds)
    config = EngineConfig(
        device="cpu",
        max_seq_len=bench.steps * bench.rounds + 16,
        scheduler=SchedulerConfig(max_batch_size=bench.batch, max_num_tokens=max(64, bench.batch * 8)),
        cuda_graph=CudaGraphConfig(batch_sizes=(bench.batch,)),
    )
    makers: dict[str, Callable[[str, EngineConfig], LLM]] = {
        "probe sites stripped": _stripped_llm,
        "no probe": LLM,
        "light recorder": LLM,
    }
    engines = {what: make(bench.model, config) for what, make in makers.items()}
    seconds: dict[str, list[float]] = {what: [] for what in engines}
    with attach(engines["light recorder"], mode="light"):
        runs = {what: _step_times(llm, bench) for what, llm in engines.items()}
        for _ in range(bench.rounds):
            for what, run in runs.items():
                seconds[what].extend(next(run))
    for llm in engines.values():
        llm.close()
    medians = {what: statistics.median(times) for what, times in seconds.items()}
    return [
        {"what": what, "step_us": round(1e6 * medians[what], 1), "ratio": round(medians[what] / medians[base], 4)}
        for what, base in zip(medians, ["probe sites stripped", "probe sites stripped", "no probe"], strict=True)
    ]
