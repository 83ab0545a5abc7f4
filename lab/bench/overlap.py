"""What the host costs once it works ahead: ``LLM.generate`` with overlap, beside the graph's replays alone.

For each shape and batch, in one run: back-to-back replays of the decode graph with sampling in it, and the decode part
of ``LLM.generate`` with and without overlap. A step of generate cannot be faster than a replay; what it takes longer is
what the host, the copies and the launches around the graph add. The host's time by stage is taken in a pass of its own
with a probe attached, which makes COMMITTED dearer than it is unobserved.

Does not: compare with other engines (``gpu.py`` does), or measure a device without CUDA unless asked to rehearse.
"""

import cProfile
import dataclasses
import gc
import io
import pstats
import statistics
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.device import DeviceSpec, resolve_device
from engine.errors import ConfigError
from engine.llm import LLM
from engine.probe import Stage
from lab.bench.decode import prompt_ids, require_positive
from lab.bench.host import StageClock
from lab.bench.replay import Rates, generate_rates, replay_seconds
from lab.bench.shapes import random_model, random_weights, shape_config

Note = Callable[[str], object]
_PROFILED: Final = 50  # steps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OverlapBench:
    """What to measure. Units: prompt_len and new_tokens in tokens of each request.

    rounds: how many the medians are taken over. replays: of one round. profile: list the functions of a steady step.
    """

    shapes: tuple[str, ...] = ("smollm2-135m", "llama-3.1-8b")
    batches: tuple[int, ...] = (1, 64, 256)
    prompt_len: int = 128
    new_tokens: int = 128
    rounds: int = 5
    replays: int = 100
    profile: bool = False


def measure(bench: OverlapBench, *, device: str = "cuda", note: Note = print) -> Iterator[dict[str, Any]]:
    """Yield one row for each shape and batch.

    Keys: shape, batch, replay_tok_s, overlap_tok_s, sync_tok_s (tokens a second after the first ones), of_replays
    (overlap over replays), host_us (a dict: stage to median microseconds of a step with overlap; "host" is the sum
    without the wait for samples). device: "cpu" rehearses on the tape; every row then has simulated: True.
    Raises: ConfigError for a count too small, an unknown shape, or without CUDA.
    """
    spec = resolve_device(device, "auto")
    require_positive(rounds=bench.rounds, replays=bench.replays, prompt_len=bench.prompt_len, batches=bench.batches)
    if bench.new_tokens < 8:
        message = f"new_tokens must be at least 8 (steps in the middle are timed), got {bench.new_tokens}"
        raise ConfigError(message)
    for shape in bench.shapes:
        weights = random_weights(shape_config(shape), spec)
        for batch in sorted(set(bench.batches)):
            yield _measure_batch(bench, shape, batch, weights, spec=spec, note=note)
        del weights
        _free(spec)


def _measure_batch(
    bench: OverlapBench, shape: str, batch: int, weights: dict[str, torch.Tensor], *, spec: DeviceSpec, note: Note
) -> dict[str, Any]:
    prompts = prompt_ids(batch, bench.prompt_len, shape_config(shape).vocab_size)
    rates: dict[bool, Rates] = {}
    seconds, host_us, tokens = 0.0, dict[str, float](), dict[bool, list[list[int]]]()
    for overlap in (False, True):
        model = random_model(shape, weights, spec, max_seq_len=bench.prompt_len + bench.new_tokens)
        with LLM(model, _config(bench, batch, spec, overlap=overlap)) as llm:
            rates[overlap], tokens[overlap] = generate_rates(llm, prompts, bench.new_tokens, rounds=bench.rounds)
            if overlap:
                host_us = _host_times(llm, prompts, bench.new_tokens)
                if bench.profile:
                    note(_profile(llm, prompts, bench.new_tokens))
            else:
                halfway = bench.new_tokens // 2
                seconds = replay_seconds(llm, prompts, num_decodes=halfway, rounds=bench.rounds, replays=bench.replays)
        del llm, model
        _free(spec)
    assert tokens[True] == tokens[False], "overlap must not change a token: the same graphs ran the same rows"
    row = {
        "shape": shape,
        "batch": batch,
        "replay_tok_s": round(batch / seconds, 1),
        "overlap_tok_s": round(rates[True].decode, 1),
        "sync_tok_s": round(rates[False].decode, 1),
        "of_replays": round(rates[True].decode * seconds / batch, 3),
        "host_us": host_us,
    }
    sync, ahead = (f"{1e3 * batch / rates[overlap].decode:.3f}" for overlap in (False, True))
    note(
        f"{shape} batch {batch}, ms a step: a replay {1e3 * seconds:.3f}, generate {sync}, with overlap {ahead}; "
        f"host {host_us['host']} us"
    )
    return row if spec.is_cuda else {**row, "simulated": True}


def _config(bench: OverlapBench, batch: int, spec: DeviceSpec, *, overlap: bool) -> EngineConfig:
    return EngineConfig(
        device=str(spec.torch_device),
        max_seq_len=bench.prompt_len + bench.new_tokens,
        overlap=overlap,
        scheduler=SchedulerConfig(max_batch_size=batch, max_num_tokens=batch * bench.prompt_len),
        kv_cache=KVCacheConfig(enable_block_reuse=False),  # every round computes its prompts
        cuda_graph=CudaGraphConfig(batch_sizes=(batch,), sample_modes=("greedy",)),
    )


def _host_times(llm: LLM, prompts: list[list[int]], new_tokens: int) -> dict[str, float]:
    """Return the median microseconds of every stage over the decode steps of one generation."""
    clock, found = StageClock(), list[dict[Stage, int]]()
    for prompt in prompts:
        llm.submit(prompt, SamplingParams(max_tokens=new_tokens, ignore_eos=True))
    llm.step()
    llm.step()
    llm.set_probe(clock)
    for _ in range(new_tokens - 4):
        clock.start()
        llm.step()
        found.append(clock.times)
    llm.set_probe(None)
    while llm.has_unfinished:
        llm.step()
    median = {stage: statistics.median([times.get(stage, 0) for times in found]) / 1e3 for stage in Stage}
    host = sum(us for stage, us in median.items() if stage is not Stage.SAMPLED)
    return {**{stage.name.lower(): round(us, 1) for stage, us in median.items()}, "host": round(host, 1)}


def _profile(llm: LLM, prompts: list[list[int]], new_tokens: int) -> str:
    """List the functions in which steady steps spend the host's time; a profiled call is slower than a free one."""
    for prompt in prompts:
        llm.submit(prompt, SamplingParams(max_tokens=new_tokens, ignore_eos=True))
    for _ in range(4):
        llm.step()
    profile = cProfile.Profile()
    steps = min(_PROFILED, new_tokens - 8)
    profile.enable()
    for _ in range(steps):
        llm.step()
    profile.disable()
    while llm.has_unfinished:
        llm.step()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(25)
    return f"profile of {steps} steps with overlap, batch {len(prompts)}:\n{text.getvalue()}"


def _free(spec: DeviceSpec) -> None:
    gc.collect()
    if spec.is_cuda:
        torch.cuda.empty_cache()
