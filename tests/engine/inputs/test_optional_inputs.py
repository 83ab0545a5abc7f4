"""Every row of an optional input is written in every step: given, or neutral; and a graph reads what was written."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.device import DeviceRegistry, make_stream, resolve_device
from engine.errors import ModelError
from engine.inputs.optional_inputs import OptionalInputs
from engine.models.llama import CausalLM
from engine.models.optional_input import OptionalInput
from tests.equivalence.margin import PathCounter

CPU = resolve_device("cpu", "float32")
SHIFT, SCALE = OptionalInput("shift", 0.0), OptionalInput("scale", 1.0)
RANK = OptionalInput("rank", -1, torch.int32)
ROWS = 8


def make(*declared, lag=0):
    registry, stream = DeviceRegistry(), make_stream(CPU, lag=lag)
    return OptionalInputs(declared or (SCALE, RANK), ROWS, stream, CPU, registry), registry, stream


def contents(inputs, num_rows=ROWS):
    return {name: view.tolist() for name, view in inputs.views(num_rows).items()}


def test_buffers_begin_neutral_and_are_device_memory():
    inputs, registry, _stream = make()
    assert contents(inputs, 3) == {"scale": [1.0] * 3, "rank": [-1] * 3}
    assert set(inputs.tensors()) == {"optional_inputs.scale", "optional_inputs.rank"}
    assert all(registry.owns(tensor) for tensor in inputs.tensors().values())
    inputs.check()


def test_what_a_step_leaves_out_is_neutral_and_not_that_of_the_step_before():
    inputs, _registry, _stream = make()
    inputs.write({"scale": [2.0, 3.0, 4.0], "rank": [7, 8, 9]}, 3)
    inputs.write({"rank": [5]}, 3)
    assert contents(inputs, 3) == {"scale": [1.0] * 3, "rank": [5, -1, -1]}
    inputs.write(None, 3)
    assert contents(inputs, 3) == {"scale": [1.0] * 3, "rank": [-1] * 3}
    inputs.check()


step_values = st.lists(st.integers(-9, 9), max_size=ROWS)


@given(
    steps=st.lists(
        st.tuples(st.integers(1, ROWS), st.none() | step_values, st.none() | step_values), min_size=1, max_size=6
    ),
    lag=st.sampled_from([0, 1, 50]),
)
def test_after_any_steps_the_rows_of_the_last_one_are_its_own(steps, lag):
    inputs, _registry, stream = make(lag=lag)
    for num_rows, *values in steps:
        step = {name: some[:num_rows] for name, some in zip(("scale", "rank"), values, strict=True) if some is not None}
        inputs.write(step, num_rows)
    stream.synchronize()
    expected = {"scale": [1.0] * num_rows, "rank": [-1] * num_rows}
    for name, some in step.items():
        expected[name][: len(some)] = some
    assert contents(inputs, num_rows) == expected


def test_an_array_is_taken_too():
    inputs, _registry, _stream = make()
    inputs.write({"scale": np.array([0.5, 0.25], dtype=np.float64)}, 2)
    assert contents(inputs, 2)["scale"] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"tilt": [1.0]}, r"that the model declares in optional_inputs \(scale, rank\), got 'tilt'"),
        ({"scale": [1.0] * 3}, "at most one value of 'scale' for each row, 2, got 3"),
    ],
)
def test_a_value_that_no_row_reads_is_refused_and_nothing_is_written(values, text):
    inputs, _registry, _stream = make()
    inputs.write({"rank": [3, 4]}, 2)
    with pytest.raises(ModelError, match=text):
        inputs.write({"rank": [1, 2], **values}, 2)
    assert contents(inputs, 2)["rank"] == [3, 4]


def test_a_model_without_optional_inputs_has_no_buffers():
    inputs = OptionalInputs((), ROWS, make_stream(CPU), CPU, DeviceRegistry())
    inputs.write(None, 5)
    assert (inputs.views(5), inputs.tensors()) == ({}, {})


class Shifted(CausalLM):
    """A decoder whose embedding of a row is shifted and scaled by optional inputs; neutral ones change nothing."""

    optional_inputs = (SHIFT, SCALE)
    wanted = None  # of a step: the values of a request's rows, by name; None offers nothing

    def enter(self, input_ids, *, shift, scale):
        x = functional.embedding(input_ids, self.embedding) * scale.unsqueeze(1) + shift.unsqueeze(1)
        return x, self.stack[0].before(x)

    def prepare_request_inputs(self, batch, attn_metadata):
        if self.wanted is None:
            return None
        return {
            name: [value for span in batch.spans if not span.request.is_dummy for value in [by_request] * span.num_rows]
            for name, by_request in self.wanted.items()
        }


def config(*, graphs=True, prefill=()):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        kv_cache=KVCacheConfig(enable_block_reuse=False),  # the cache does not know what the rows were computed with
        cuda_graph=CudaGraphConfig(enabled=graphs, batch_sizes=(4,), prefill_num_tokens=prefill),
    )


def serve(llm, wanted, num_prompts=3):
    """Serve the same prompts under some optional inputs; return the tokens and how the steps ran."""
    llm.loaded.model.wanted = wanted
    counter = PathCounter()
    llm.set_probe(counter)
    prompts = [[5 + at, 60, 7, 120 + at][: 2 + at] for at in range(num_prompts)]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=6, ignore_eos=True))
    llm.check()
    return [output.token_ids for output in outputs], counter


@pytest.fixture
def shifted():
    """The tiny model with optional inputs, loaded and not yet served."""
    with LLM("tiny", config(graphs=False)) as llm:
        loaded = llm.loaded
    loaded.model.__class__ = Shifted
    yield loaded
    loaded.model.__class__ = CausalLM


@pytest.mark.parametrize("prefill", [(), (16,)])
def test_a_replay_without_the_input_computes_as_if_there_were_none(shifted, prefill):
    with LLM("tiny", config()) as plain:
        expected, _counter = serve(plain, None)
    with LLM(shifted, config(prefill=prefill)) as llm:
        first, _counter = serve(llm, None)
        nudged, counter = serve(llm, {"shift": 0.5, "scale": -1.0})
        again, _counter = serve(llm, None)
        half, _counter = serve(llm, {"scale": -1.0})
    with LLM(shifted, config(graphs=False)) as llm:
        assert serve(llm, {"shift": 0.5, "scale": -1.0})[0] == nudged
        assert serve(llm, {"scale": -1.0})[0] == half, "the shift of an earlier step was read"
    assert first == again == expected
    assert nudged != expected != half != nudged, "an input that changes nothing proves nothing"
    assert counter.num_replays > 0
    assert bool(counter.counts["prefill_replay"]) == bool(prefill)
    assert counter.counts["padded"] > 0, "dummy rows have no values of their own"


def test_a_moved_buffer_of_an_optional_input_is_refused_at_replay(shifted):
    with LLM(shifted, config()) as llm:
        optional = llm._model_engine._runner._parts.optional
        optional._buffers["scale"] = optional._buffers["scale"].clone()
        (output,) = llm.generate([[1, 2]], SamplingParams(max_tokens=4))
        assert output.finish_reason == "error"
        assert "address of optional_inputs.scale: captured 0x" in output.error
