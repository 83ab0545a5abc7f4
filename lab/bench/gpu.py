"""CUDA decode speed of a shape with random weights: replays alone, ``LLM.generate``, a peer, and the memory's limit.

For each shape and batch, in one run: back-to-back replays of the decode graph with sampling in it; ``LLM.generate``;
transformers' ``generate`` over the same weights, prompts and dtype; and the time in which the bytes that a step must
read can be read. Both calls are timed whole and, more strictly, without their prefill, which no replay has. The tokens
that were generated are held against the peer's logits before a row counts.

Does not: run without CUDA unless asked to rehearse on the CPU's tape, where the numbers say nothing of speed.
"""

import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SchedulerConfig
from engine.device import DeviceSpec, free_memory, resolve_device
from engine.errors import ConfigError, ModelError
from engine.fields import bytes_in_words
from engine.llm import LLM
from engine.models.loading.layout import weight_shapes
from lab.bench.clock import read_bandwidths
from lab.bench.decode import prompt_ids, require_positive
from lab.bench.peer import StaticCachePeer
from lab.bench.reference import require_transformers
from lab.bench.replay import Rates, generate_rates, replay_seconds
from lab.bench.shapes import random_model, random_weights, shape_config, step_bytes

MAX_SHORTFALL: float = 1.0  # standard deviations of the logits; see ``StaticCachePeer.shortfall``
READ_SECONDS: float = 0.4  # of one round of passes; about what a round of replays takes
READ_BYTES: int = 4 << 30  # of one bandwidth pass, far more than any cache holds; a rehearsal reads less

Note = Callable[[str], object]
Weights = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GpuBench:
    """What to measure. Units: prompt_len and new_tokens in tokens of each request.

    rounds: how many the medians are taken over. replays: of one round.
    """

    shapes: tuple[str, ...] = ("smollm2-135m", "llama-3.1-8b")
    batches: tuple[int, ...] = (1, 64)
    prompt_len: int = 128
    new_tokens: int = 128
    rounds: int = 5
    replays: int = 100

    @property
    def num_decodes(self) -> int:
        """Decode steps before the timed one: half of the generation."""
        return self.new_tokens // 2


@dataclasses.dataclass(frozen=True, slots=True)
class _Ours:
    """The engine's side of a row. tokens: what generate returned. Units: seconds a replay; tokens a second."""

    replay_seconds: float
    rates: Rates
    tokens: list[list[int]]


def measure(bench: GpuBench, *, device: str = "cuda", note: Note = print) -> Iterator[dict[str, Any]]:
    """Yield one row for each shape and batch, as soon as it is measured.

    Keys: shape, batch, replay_tok_s, e2e_tok_s, peer, peer_tok_s, replay_ratio and e2e_ratio (to the peer), and
    limit_fraction (the step's bytes at the measured read bandwidth, over the time of a replay). e2e and peer: all new
    tokens over the whole call, prefill included. decode_tok_s, peer_decode_tok_s: of the same calls, every token but
    the first of each request, over the time from the first ones to the end; decode_ratio: replays to the peer's.
    device: "cpu" rehearses on the tape, and every row then also has simulated: True. note: receives a line of context
    now and then.
    Raises: ConfigError for a count too small, an unknown shape, without CUDA, without the peer, or for a rehearsal that
    does not fit into memory; ModelError when the two sides disagree on the tokens.
    """
    spec = resolve_device(device, "auto")
    _check(bench)
    if not spec.is_cuda:
        _require_weights_fit(bench, spec)
    require_transformers()
    name = torch.cuda.get_device_name(spec.torch_device) if spec.is_cuda else "CPU, a rehearsal"
    nbytes, seconds = (READ_BYTES, READ_SECONDS) if spec.is_cuda else (READ_BYTES >> 7, 0.0)
    bandwidths = read_bandwidths(spec.torch_device, nbytes=nbytes, rounds=3, seconds=seconds)
    passes = ", ".join(f"{kind} {bandwidth / 1e12:.3f}" for kind, bandwidth in bandwidths.items())
    note(f"{name}, torch {torch.__version__}, {spec.dtype}: reads, in TB/s: {passes}; the best is the limit")
    bandwidth = max(bandwidths.values())
    for shape in bench.shapes:
        yield from _measure_shape(bench, shape, spec, bandwidth, note)
        _free(spec)


def _check(bench: GpuBench) -> None:
    require_positive(rounds=bench.rounds, replays=bench.replays, prompt_len=bench.prompt_len, batches=bench.batches)
    for shape in bench.shapes:
        shape_config(shape)
    if bench.new_tokens < 3:
        message = f"new_tokens must be at least 3 (the middle one is timed), got {bench.new_tokens}"
        raise ConfigError(message)


def _require_weights_fit(bench: GpuBench, spec: DeviceSpec) -> None:
    """Refuse a rehearsal that would die when memory runs out. Raises: ConfigError."""
    for shape in bench.shapes:
        numbers = sum(torch.Size(one).numel() for one in weight_shapes(shape_config(shape)).values())
        needed, free = 2 * numbers * spec.dtype.itemsize, free_memory(spec)
        if needed > free:
            message = (
                f"a rehearsal of {shape} on the CPU needs {bytes_in_words(needed)} (twice its weights in {spec.dtype}: "
                f"activations, caches and the peer take the second half), and {bytes_in_words(free)} are free; take a "
                "smaller shape, such as tiny"
            )
            raise ConfigError(message)


def _measure_shape(
    bench: GpuBench, shape: str, spec: DeviceSpec, bandwidth: float, note: Note
) -> Iterator[dict[str, Any]]:
    weights = random_weights(shape_config(shape), spec)
    ours = _measure_engine(bench, shape, weights, spec)
    _free(spec)
    for batch, side in ours.items():
        note(f"{shape} batch {batch}: a replay {1e3 * side.replay_seconds:.3f} ms; now the peer")
        peer, shortfall = _measure_peer(bench, shape, weights, side.tokens)
        note(
            f"{shape} batch {batch}: a replay {1e3 * side.replay_seconds:.3f} ms, a step of generate "
            f"{1e3 * batch / side.rates.decode:.3f} ms, of the peer {1e3 * batch / peer.decode:.3f} ms; "
            f"tokens at most {shortfall:.3f} below its choice"
        )
        yield _row(bench, shape, batch, side, peer=peer, spec=spec, bandwidth=bandwidth)


def _measure_engine(bench: GpuBench, shape: str, weights: Weights, spec: DeviceSpec) -> dict[int, _Ours]:
    """Time every batch size on one engine, which is gone afterwards."""
    batches = tuple(sorted(set(bench.batches)))
    max_seq_len = bench.prompt_len + bench.new_tokens
    config = EngineConfig(
        device=str(spec.torch_device),
        max_seq_len=max_seq_len,
        scheduler=SchedulerConfig(max_batch_size=batches[-1], max_num_tokens=batches[-1] * bench.prompt_len),
        kv_cache=KVCacheConfig(enable_block_reuse=False),  # every round computes its prompts
        cuda_graph=CudaGraphConfig(batch_sizes=batches, sample_modes=("greedy",)),
    )
    ours: dict[int, _Ours] = {}
    with LLM(random_model(shape, weights, spec, max_seq_len=max_seq_len), config) as llm:
        for batch in batches:
            prompts = _prompts(bench, shape, batch)
            rates, tokens = generate_rates(llm, prompts, bench.new_tokens, rounds=bench.rounds)
            seconds = replay_seconds(
                llm, prompts, num_decodes=bench.num_decodes, rounds=bench.rounds, replays=bench.replays
            )
            ours[batch] = _Ours(seconds, rates, tokens)
    return ours


def _measure_peer(bench: GpuBench, shape: str, weights: Weights, tokens: list[list[int]]) -> tuple[Rates, float]:
    """Return the peer's rates, and the worst shortfall of the engine's tokens."""
    prompts = _prompts(bench, shape, len(tokens))
    with StaticCachePeer(shape_config(shape), weights) as peer:
        worst = max(peer.shortfall(prompts[row], tokens[row]) for row in {0, len(tokens) - 1})
        if worst > MAX_SHORTFALL:
            message = (
                f"the engine's tokens must be the peer's best up to rounding, got one {worst:.2f} standard deviations "
                f"below at {shape}, batch {len(tokens)}; speeds of different computations say nothing"
            )
            raise ModelError(message)
        return peer.generate_rates(prompts, bench.new_tokens, rounds=bench.rounds)[0], worst


def _row(
    bench: GpuBench, shape: str, batch: int, ours: _Ours, *, peer: Rates, spec: DeviceSpec, bandwidth: float
) -> dict[str, Any]:
    replay_tok_s = batch / ours.replay_seconds
    cached_tokens = bench.prompt_len + bench.num_decodes - 1
    nbytes = step_bytes(shape_config(shape), spec.dtype, batch=batch, cached_tokens=cached_tokens)
    row = {
        "shape": shape,
        "batch": batch,
        "replay_tok_s": round(replay_tok_s, 1),
        "e2e_tok_s": round(ours.rates.whole, 1),
        "peer": StaticCachePeer.name,
        "peer_tok_s": round(peer.whole, 1),
        "replay_ratio": round(replay_tok_s / peer.whole, 3),
        "e2e_ratio": round(ours.rates.whole / peer.whole, 3),
        "decode_tok_s": round(ours.rates.decode, 1),
        "peer_decode_tok_s": round(peer.decode, 1),
        "decode_ratio": round(replay_tok_s / peer.decode, 3),
        "limit_fraction": round(nbytes / bandwidth / ours.replay_seconds, 4),
    }
    return row if spec.is_cuda else {**row, "simulated": True}


def _prompts(bench: GpuBench, shape: str, batch: int) -> list[list[int]]:
    return prompt_ids(batch, bench.prompt_len, shape_config(shape).vocab_size)


def _free(spec: DeviceSpec) -> None:
    gc.collect()
    if spec.is_cuda:
        torch.cuda.empty_cache()
