"""Devices resolve or say why not; streams keep order; a pinned list is not rewritten while it is still to be read."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import device
from engine.device import (
    DeviceRegistry,
    ImmediateStream,
    LaggedStream,
    PinnedRing,
    free_memory,
    make_stream,
    nvtx_range,
    pinned_empty,
    resolve_device,
    set_nvtx,
)
from engine.errors import CapacityError, CaptureRefusedError, ConfigError

CPU = resolve_device("cpu", "auto")


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(device, "_can_multiply", lambda *_: True)


def test_a_cpu_resolves_to_float32():
    assert device.DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False) == CPU


def test_auto_without_cuda_is_the_cpu(no_cuda):
    assert resolve_device("auto", "bfloat16").torch_device.type == "cpu"


def test_auto_with_cuda_is_the_current_gpu_in_bfloat16(two_gpus):
    assert resolve_device("auto", "auto") == device.DeviceSpec(torch.device("cuda", 1), torch.bfloat16, is_cuda=True)


def test_a_gpu_without_bfloat16_gets_float32_by_default(two_gpus, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert resolve_device("cuda:0", "auto").dtype is torch.float32


@pytest.mark.parametrize("name", ["gpu", "cpu:1", "cuda:", "cuda:x", "cuda:-1", "", "CUDA", 7, None])
def test_an_unknown_device_is_named_with_the_choices(name, two_gpus):
    with pytest.raises(ConfigError, match="device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got "):
        resolve_device(name, "auto")


def test_cuda_without_cuda_says_what_is_missing_and_what_to_do(no_cuda):
    with pytest.raises(ConfigError, match=r"device 'cuda' needs a CUDA GPU, but .*; use device='cpu'"):
        resolve_device("cuda", "auto")


def test_a_gpu_beyond_the_count_says_which_exist(two_gpus):
    with pytest.raises(ConfigError, match=r"'cuda:9' does not exist: 2 GPU\(s\) found; use 'cuda:0' to 'cuda:1'"):
        resolve_device("cuda:9", "auto")


def test_an_unknown_dtype_is_named_with_the_choices():
    with pytest.raises(ConfigError, match="dtype must be 'auto', 'float32', 'bfloat16', 'float16', got 'int8'"):
        resolve_device("cpu", "int8")


def test_a_dtype_that_cannot_be_multiplied_is_refused(monkeypatch):
    def no_half(self, other):
        message = "not implemented for 'Half'"
        raise RuntimeError(message)

    monkeypatch.setattr(torch.Tensor, "matmul", no_half)
    with pytest.raises(ConfigError, match="'float16' is not supported on device 'cpu' here; use dtype='float32'"):
        resolve_device("cpu", "float16")


def test_the_plain_cpu_stream_acts_at_once():
    stream, target = make_stream(CPU), torch.zeros(2)
    assert isinstance(stream, ImmediateStream)
    stream.copy_(target, torch.ones(2))
    stream.launch(lambda: target.add_(1))
    stream.record().wait()
    assert target.tolist() == [2, 2]


def test_a_lagged_copy_reads_its_source_when_it_runs():
    stream, source, target = make_stream(CPU, lag=2), torch.ones(1), torch.zeros(1)
    stream.copy_(target, source)
    source.fill_(5)  # the race: rewritten before the device has read it
    assert target.item() == 0
    stream.synchronize()
    assert target.item() == 5


def test_a_lagged_stream_runs_the_oldest_work_beyond_its_depth():
    stream, done = LaggedStream(2), []
    for number in range(5):
        stream.launch(lambda number=number: done.append(number))
        assert stream.num_pending <= 2
    assert done == [0, 1, 2]


def test_an_event_runs_what_came_before_it_and_no_more():
    stream, done = LaggedStream(10), []
    stream.launch(lambda: done.append("before"))
    event = stream.record()
    stream.launch(lambda: done.append("after"))
    event.wait()
    assert done == ["before"]
    event.wait()
    assert done == ["before"]


def test_work_that_hands_over_more_work_keeps_it_inside():
    stream, done = LaggedStream(10), []
    stream.launch(lambda: (stream.launch(lambda: done.append("inner")), done.append("outer")))
    stream.launch(lambda: done.append("next"))
    stream.synchronize()
    assert done == ["inner", "outer", "next"]


def test_work_that_raises_leaves_the_queue_and_the_rest_still_runs():
    stream, done = LaggedStream(10), []
    stream.launch(lambda: 1 // 0)
    stream.launch(lambda: done.append("next"))
    with pytest.raises(ZeroDivisionError):
        stream.synchronize()
    stream.synchronize()
    assert done == ["next"]


@settings(deadline=None)
@given(st.integers(0, 4), st.lists(st.sampled_from(["launch", "record", "wait"]), max_size=30))
def test_any_lag_leaves_what_the_plain_stream_leaves(lag, actions):
    logs = []
    for depth in (0, lag):
        stream, log, events = make_stream(CPU, lag=depth), [], []
        for number, action in enumerate(actions):
            if action == "launch":
                stream.launch(lambda number=number, log=log: log.append(number))
            elif action == "record":
                events.append((stream.record(), actions[:number].count("launch")))
            elif events:
                event, num_before = events[-1]
                event.wait()
                assert len(log) >= num_before
        stream.synchronize()
        logs.append(log)
    assert logs[0] == logs[1]


@pytest.mark.parametrize("lag", [0, 3])
def test_a_host_wait_inside_capture_is_refused(lag):
    stream = make_stream(CPU, lag=lag)
    event = stream.record()
    with stream.capturing():
        for wait in (event.wait, stream.synchronize, stream.record().wait):
            with pytest.raises(CaptureRefusedError, match="the host waits for the device inside capture"):
                wait()
    stream.synchronize()


def test_capturing_begins_with_everything_done():
    stream, done = LaggedStream(10), []
    stream.launch(lambda: done.append("earlier"))
    with stream.capturing():
        stream.launch(lambda: done.append("recorded"))
        assert done == ["earlier", "recorded"]


@pytest.mark.parametrize("lag", [-1, -5])
def test_a_negative_lag_is_refused(lag):
    with pytest.raises(ConfigError, match="lag must be 0 or more on a CPU"):
        make_stream(CPU, lag=lag)


def test_a_lag_on_cuda_is_refused():
    with pytest.raises(ConfigError, match="0 on CUDA, got 2 on cuda:0"):
        make_stream(device.DeviceSpec(torch.device("cuda", 0), torch.float32, is_cuda=True), lag=2)


def test_the_registry_owns_views_of_what_was_registered_and_nothing_else():
    registry, weight = DeviceRegistry(), torch.zeros(4, 4)
    registry.register("weight", weight)
    assert registry.owns(weight[1:, 2])
    assert not registry.owns(weight.clone())
    assert registry.names() == ("weight",)
    registry.check()


def test_a_name_registered_again_moves_and_a_forgotten_one_is_gone():
    registry, old, new = DeviceRegistry(), torch.zeros(1), torch.zeros(1)
    registry.register("x", old)
    registry.register("x", new)
    assert (registry.owns(old), registry.owns(new)) == (False, True)
    registry.register("same storage", new[:])
    registry.forget("x")
    assert registry.owns(new)
    registry.forget("same storage")
    registry.forget("never there")
    assert not registry.owns(new)
    registry.check()


def test_the_ring_stages_lists_arrays_and_tables():
    ring = PinnedRing((4,), torch.int32, CPU)
    assert ring.stage([1, 2, 3]).tolist() == [1, 2, 3]
    assert ring.stage(np.arange(4)).tolist() == [0, 1, 2, 3]
    assert ring.stage(()).tolist() == []
    table = PinnedRing((2, 3), torch.int64, CPU)
    assert table.stage(np.array([[1, 2]])).tolist() == [[1, 2]]


@pytest.mark.parametrize(("capacity", "values"), [((2,), [1, 2, 3]), ((2, 2), np.zeros((1, 3))), ((2, 2), [1])])
def test_the_ring_refuses_what_it_cannot_hold(capacity, values):
    with pytest.raises(CapacityError, match="staging holds a list of shape"):
        PinnedRing(capacity, torch.int32, CPU).stage(values)


def _stage_lists(depth, mark):
    """Stage 0, 1, ... on a lagging stream; return what the device got."""
    stream = LaggedStream(100)
    ring = PinnedRing((1,), torch.int32, CPU, depth=depth)
    received = [torch.full((1,), -1, dtype=torch.int32) for _ in range(5)]
    for number, target in enumerate(received):
        stream.copy_(target, ring.stage([number]))
        if mark:
            ring.mark_copied(stream)
    stream.synchronize()
    return [target.item() for target in received]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_mirror_waits_for_its_own_copy_before_it_is_rewritten(depth):
    assert _stage_lists(depth, mark=True) == [0, 1, 2, 3, 4]


def test_without_the_events_a_lagging_device_reads_later_lists():
    assert _stage_lists(2, mark=False) == [4, 3, 4, 3, 4]


def test_two_mirrors_let_the_host_run_one_list_ahead():
    stream, ring = LaggedStream(100), PinnedRing((1,), torch.int32, CPU)
    targets = [torch.zeros(1, dtype=torch.int32) for _ in range(3)]
    pending = []
    for number, target in enumerate(targets):
        stream.copy_(target, ring.stage([number]))
        ring.mark_copied(stream)
        pending.append(stream.num_pending)
    assert pending == [1, 2, 2]
    ring.wait()
    assert stream.num_pending == 0


def test_host_memory_is_pinned_only_for_cuda():
    assert not pinned_empty((2, 3), torch.int32, CPU).is_pinned()
    assert pinned_empty([2, 3], torch.int32, CPU).shape == (2, 3)


def test_free_memory_is_positive_and_no_more_than_the_machine_has():
    pages = device.os.sysconf("SC_PHYS_PAGES") * device.os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_memory(CPU) <= pages


def test_ranges_are_off_by_default_and_on_only_with_cuda(monkeypatch):
    assert nvtx_range("a") is nvtx_range("b")
    monkeypatch.setattr(torch.version, "cuda", None)
    set_nvtx(True)
    assert nvtx_range("a") is nvtx_range("b")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    named = []
    monkeypatch.setattr(torch.cuda.nvtx, "range", named.append)
    set_nvtx(True)
    nvtx_range("step")
    set_nvtx(False)
    nvtx_range("after")
    assert named == ["step"]
