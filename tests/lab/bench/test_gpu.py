import sys

import pytest
import torch

from engine.device import DeviceSpec, resolve_device
from engine.errors import ConfigError, ModelError
from lab.bench import gpu
from lab.bench.gpu import GpuBench, measure
from lab.bench.peer import StaticCachePeer
from lab.bench.replay import Rates
from lab.bench.shapes import SHAPES, step_bytes

KEYS = [
    "shape", "batch", "replay_tok_s", "e2e_tok_s", "peer", "peer_tok_s", "replay_ratio", "e2e_ratio",
    "decode_tok_s", "peer_decode_tok_s", "decode_ratio", "limit_fraction",
]  # fmt: skip
SMALL = GpuBench(shapes=("tiny",), batches=(2, 1), prompt_len=6, new_tokens=6, rounds=1, replays=2)


@pytest.fixture(autouse=True)
def _a_short_read(monkeypatch):
    monkeypatch.setattr(gpu, "READ_BYTES", 1 << 24)


def test_a_rehearsal_on_the_tape_fills_every_column():
    notes = []
    rows = list(measure(SMALL, device="cpu", note=notes.append))
    assert [list(row) for row in rows] == [[*KEYS, "simulated"]] * 2
    assert [row["simulated"] for row in rows] == [True, True]
    assert [(row["shape"], row["batch"]) for row in rows] == [("tiny", 1), ("tiny", 2)]
    for row in rows:
        assert row["peer"] == "transformers static cache"
        assert row["replay_ratio"] == pytest.approx(row["replay_tok_s"] / row["peer_tok_s"], rel=0.02)
        assert row["e2e_ratio"] == pytest.approx(row["e2e_tok_s"] / row["peer_tok_s"], rel=0.02)
        assert row["decode_ratio"] == pytest.approx(row["replay_tok_s"] / row["peer_decode_tok_s"], rel=0.02)
        assert row["limit_fraction"] > 0
    assert notes[0].startswith("CPU, a rehearsal, torch ")
    assert [note.split(":")[0] for note in notes[1:]] == [
        "tiny batch 1",
        "tiny batch 1",
        "tiny batch 2",
        "tiny batch 2",
    ]


def test_a_rehearsal_that_does_not_fit_into_memory_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(gpu, "free_memory", lambda spec: 8 << 30)
    notes = []
    words = r"a rehearsal of llama-3\.1-8b on the CPU needs 59\.8 GiB \(twice its weights.* 8\.0 GiB are free; take a"
    with pytest.raises(ConfigError, match=words):
        list(measure(GpuBench(shapes=("tiny", "llama-3.1-8b")), device="cpu", note=notes.append))
    assert notes == []


def test_only_a_rehearsal_is_called_simulated():
    ours = gpu._Ours(replay_seconds=0.5, rates=Rates(decode=1.0, whole=9.0), tokens=[])
    spec = DeviceSpec(torch.device("cuda"), torch.bfloat16, is_cuda=True)
    row = gpu._row(SMALL, "tiny", 2, ours, peer=Rates(decode=2.0, whole=9.0), spec=spec, bandwidth=1e9)
    assert list(row) == KEYS


def test_the_limit_is_the_steps_bytes_at_the_bandwidth_over_the_replay():
    ours = gpu._Ours(replay_seconds=0.5, rates=Rates(decode=1.0, whole=0.8), tokens=[])
    nbytes = step_bytes(SHAPES["tiny"], torch.float32, batch=2, cached_tokens=6 + 3 - 1)
    spec = resolve_device("cpu", "float32")
    row = gpu._row(SMALL, "tiny", 2, ours, peer=Rates(decode=2.0, whole=1.6), spec=spec, bandwidth=4.0 * nbytes)
    assert (row["replay_tok_s"], row["limit_fraction"]) == (4.0, 0.5)


def test_the_calls_are_compared_whole_and_without_their_prefill():
    ours = gpu._Ours(replay_seconds=0.5, rates=Rates(decode=1.0, whole=0.8), tokens=[])
    spec = resolve_device("cpu", "float32")
    row = gpu._row(SMALL, "tiny", 2, ours, peer=Rates(decode=2.0, whole=1.6), spec=spec, bandwidth=1e9)
    assert (row["e2e_tok_s"], row["peer_tok_s"], row["replay_ratio"], row["e2e_ratio"]) == (0.8, 1.6, 2.5, 0.5)
    assert (row["decode_tok_s"], row["peer_decode_tok_s"], row["decode_ratio"]) == (1.0, 2.0, 2.0)


def test_tokens_that_the_peer_would_not_choose_stop_the_bench(monkeypatch):
    monkeypatch.setattr(StaticCachePeer, "shortfall", lambda self, prompt, tokens: 1.5)
    with pytest.raises(
        ModelError, match=r"got one 1\.50 standard deviations below at tiny, batch 1; speeds of different"
    ):
        list(measure(SMALL, device="cpu", note=str))


def test_a_missing_peer_stops_the_bench_before_it_starts(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    notes = []
    with pytest.raises(ConfigError, match=r"needs the package transformers.*pip install 'stepscope\[dev\]'"):
        list(measure(SMALL, device="cpu", note=notes.append))
    assert not notes


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        (GpuBench(shapes=("gpt-2",)), r"a shape is one of tiny, smollm2-135m, llama-3\.1-8b, got 'gpt-2'"),
        (GpuBench(rounds=0), "rounds must be at least 1, got 0"),
        (GpuBench(batches=(4, 0)), "batches must be at least 1, got 4, 0"),
        (GpuBench(new_tokens=2), "new_tokens must be at least 3"),
    ],
)
def test_a_measurement_of_nothing_is_refused(bench, message):
    with pytest.raises(ConfigError, match=message):
        list(measure(bench, device="cpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_cuda_it_is_refused():
    with pytest.raises(ConfigError, match="device 'cuda' needs a CUDA GPU"):
        list(measure(SMALL))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # the peer compiles: torch 2.11 warns of its own imports and of TF32
def test_the_engine_and_the_peer_agree_in_bfloat16():
    notes = []
    rows = list(measure(GpuBench(shapes=("tiny",), batches=(1, 4), rounds=1, replays=5), note=notes.append))
    assert [row["batch"] for row in rows] == [1, 4]
    assert all(min(row["replay_tok_s"], row["e2e_tok_s"], row["peer_tok_s"]) > 0 for row in rows)
