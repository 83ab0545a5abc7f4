"""Dispatch really raises for the wrong runner, and the KV pool is sized from what is there."""

import dataclasses

import pytest
import torch

from engine import CudaGraphConfig, EngineConfig, KVCacheConfig, SchedulerConfig
from engine.device import resolve_device
from engine.errors import ConfigError, DispatchError
from engine.footprint import size_kv_cache
from engine.inputs.records import PackedInputs, RunEvent, ScheduledInputs
from engine.model_engine import PyTorchModelEngine
from engine.models.tiny import TINY_CONFIG
from engine.reasons import PathKind
from engine.resources import ResourceManager
from engine.runners.interface import (
    ForwardOutputs,
    PackedModelRunner,
    PendingLogits,
    ScheduledModelRunner,
    WarmupReport,
)
from engine.scheduled import BudgetUse, ScheduledRequests
from tests.engine.live_requests import World

EMPTY = ScheduledRequests((), (), (), (), BudgetUse(0, 8, 0, 4))
PACKED = PackedInputs(input_ids=(1, 2, 3), sequence_lengths=(1, 2))


class Encoder(PackedModelRunner):
    """Sums each sequence."""

    def __init__(self):
        self.calls = []

    def forward(self, inputs):
        parts = torch.tensor(inputs.input_ids).split(list(inputs.sequence_lengths))
        return {"sums": torch.stack([part.sum() for part in parts])}

    def release_graphs(self):
        self.calls.append("release")

    def wait_for_input_copy(self):
        self.calls.append("wait")


class Decoder(ScheduledModelRunner):
    """Remembers what it got."""

    def __init__(self):
        self.got: list[ScheduledInputs] = []

    def forward(self, inputs, *, resource_manager, is_dummy=False):
        self.got.append(inputs)
        return ForwardOutputs(PendingLogits(), RunEvent(PathKind.EAGER, True, None, None, 0, None))

    def roll_back(self):
        self.got.clear()

    def warmup(self, resource_manager):
        return WarmupReport((), 7, 0.5, simulated=True)

    def set_probe(self, probe):
        self.probe = probe

    def release_graphs(self):
        return None

    def wait_for_input_copy(self):
        return None


@pytest.fixture
def resources() -> ResourceManager:
    return World().resources


def test_each_batch_goes_to_the_runner_of_its_kind(resources):
    encoder, decoder = PyTorchModelEngine(Encoder(), max_num_sequences=4), Decoder()
    assert encoder.forward(PACKED)["sums"].tolist() == [1, 5]
    engine = PyTorchModelEngine(decoder, max_num_sequences=4)
    engine.forward(EMPTY, resource_manager=resources, step=3)
    assert [(inputs.batch, inputs.step) for inputs in decoder.got] == [(EMPTY, 3)]
    assert engine.get_max_num_sequences() == 4


def test_the_wrong_pairing_raises_and_names_both_sides(resources):
    with pytest.raises(DispatchError, match="a packed batch needs a PackedModelRunner, this engine has a Decoder"):
        PyTorchModelEngine(Decoder(), max_num_sequences=4).forward(PACKED)
    with pytest.raises(
        DispatchError, match="a scheduled batch needs a ScheduledModelRunner, this engine has a Encoder"
    ):
        PyTorchModelEngine(Encoder(), max_num_sequences=4).forward(EMPTY, resource_manager=resources)


def test_a_scheduled_batch_without_its_blocks_is_refused():
    with pytest.raises(DispatchError, match="needs the resource_manager"):
        PyTorchModelEngine(Decoder(), max_num_sequences=4).forward(EMPTY)


def test_warm_up_and_probe_reach_only_a_runner_that_has_stages(resources):
    assert PyTorchModelEngine(Decoder(), max_num_sequences=1).warmup(resources).pool_bytes == 7
    encoder = PyTorchModelEngine(Encoder(), max_num_sequences=1)
    assert encoder.warmup(resources).captures == ()
    encoder.set_probe(None)


def test_closing_waits_for_the_input_copies_before_it_releases_graphs():
    runner = Encoder()
    PyTorchModelEngine(runner, max_num_sequences=1).release_graphs()
    assert runner.calls == ["wait", "release"]


def test_the_pool_is_as_large_as_the_batch_can_use():
    config = EngineConfig(max_seq_len=100, scheduler=SchedulerConfig(max_batch_size=3))
    assert size_kv_cache(config, TINY_CONFIG, resolve_device("cpu", "float32")) == 3 * 7


def test_the_pool_is_cut_to_what_memory_allows_and_refused_below_one_sequence():
    huge = dataclasses.replace(TINY_CONFIG, num_layers=1 << 12, num_kv_heads=1 << 12, num_heads=1 << 12)
    with pytest.raises(ConfigError, match="must hold one sequence of max_seq_len=100, which needs 7 blocks"):
        size_kv_cache(EngineConfig(max_seq_len=100), huge, resolve_device("cpu", "float32"))


def test_an_explicit_pool_size_is_taken_as_it_is():
    config = EngineConfig(max_seq_len=64, kv_cache=KVCacheConfig(num_blocks=9), cuda_graph=CudaGraphConfig())
    assert size_kv_cache(config, TINY_CONFIG, resolve_device("cpu", "float32")) == 9
