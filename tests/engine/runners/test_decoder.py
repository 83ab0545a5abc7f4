"""The decoder runner: pads, chooses, packs and runs; a miss returns to the unpadded batch."""

import collections
import contextlib

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.cuda_graphs.dummies import PADDING_DUMMY_ID
from engine.errors import CaptureRefusedError, ReplayRefusedError
from engine.inputs.records import Writer
from engine.probe import Stage
from engine.reasons import FallOff, PathKind
from engine.scheduled import RowKind


def config(**graph):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        cuda_graph=CudaGraphConfig(**{"batch_sizes": (1, 2, 4), **graph}),
    )


class Steps:
    """Keeps what each stage of each step handed over, as plain facts."""

    def __init__(self):
        self.facts = collections.defaultdict(dict)

    def emit(self, stage, step, value):
        facts = self.facts[step]
        if stage is Stage.PADDED:
            facts["kinds"] = [span.kind for span in value.spans]
            facts["ids"] = [span.request_id for span in value.spans]
        elif stage is Stage.GRAPH_CHOSEN:
            facts["reason"], facts["key"] = value.reason, value.key
        elif stage is Stage.COPIED:
            facts["rows"] = value.num_tokens
            facts["ids_on_device"] = value.input_ids.tolist()
            facts["addresses"] = (value.input_ids.data_ptr(), value.position_ids.data_ptr())
            facts["writers"] = [w.writer for w in value.writes if w.buffer == "input_ids"]
        elif stage is Stage.METADATA:
            facts["metadata"] = id(value)
            facts["seqs"] = value.step.num_seqs
        elif stage is Stage.RAN:
            facts["path"], facts["check"], facts["simulated"] = value.path, value.check, value.simulated


def run(llm, num_requests, max_tokens=4):
    steps = Steps()
    llm.set_probe(steps)
    outputs = llm.generate([[i + 1, 5, 9] for i in range(num_requests)], SamplingParams(max_tokens=max_tokens))
    llm.set_probe(None)
    assert all(out.error is None for out in outputs)
    return [steps.facts[step] for step in sorted(steps.facts)]


def test_three_requests_replay_the_graph_for_four_with_one_real_dummy():
    with LLM("tiny", config()) as llm:
        prefill, *decodes = run(llm, 3)
    assert prefill["path"] is PathKind.EAGER
    assert prefill["reason"] is FallOff.HAS_CONTEXT_UNPROMOTED
    assert (prefill["rows"], prefill["seqs"]) == (9, 3), "eager takes the unpadded batch"
    for step in decodes:
        assert step["path"] is PathKind.REPLAY
        assert step["kinds"] == [RowKind.GENERATION] * 3 + [RowKind.PADDING]
        assert step["ids"][3] == PADDING_DUMMY_ID
        assert (step["rows"], step["seqs"], step["key"].batch_size) == (4, 4, 4)
        assert step["ids_on_device"][3] == 0, "the dummy's row is zero-filled"
        assert step["writers"] == [Writer.DEVICE_GATHER, Writer.ZERO_FILL]
        assert step["check"].passed
        assert step["simulated"]


def test_an_exact_bucket_needs_no_dummy_and_no_zero_fill():
    with LLM("tiny", config()) as llm:
        _prefill, *decodes = run(llm, 2)
    for step in decodes:
        assert step["kinds"] == [RowKind.GENERATION] * 2
        assert step["writers"] == [Writer.DEVICE_GATHER]


def test_above_the_largest_bucket_a_step_runs_eagerly_and_unpadded():
    with LLM("tiny", config(batch_sizes=(1, 2))) as llm:
        _prefill, *decodes = run(llm, 3)
    for step in decodes:
        assert step["path"] is PathKind.EAGER
        assert step["reason"] is FallOff.ABOVE_LARGEST_BUCKET
        assert step["check"] is None
        assert step["rows"] == 3


@pytest.mark.parametrize(
    ("graph", "num_requests", "reason"),
    [
        ({"enabled": False}, 2, FallOff.GRAPHS_DISABLED),
        ({"enable_padding": False}, 3, FallOff.NO_EXACT_BUCKET_PADDING_OFF),
        ({"batch_sizes": (1,)}, 2, FallOff.ABOVE_LARGEST_BUCKET),
    ],
)
def test_a_decode_step_off_the_graph_path_names_its_reason(graph, num_requests, reason):
    if graph == {"enabled": False}:
        graph = {"enabled": False, "batch_sizes": None}
    with LLM("tiny", config(**graph)) as llm:
        _prefill, *decodes = run(llm, num_requests)
    assert {step["reason"] for step in decodes} == {reason}


def test_addresses_and_metadata_objects_are_the_same_in_every_step_of_a_key():
    with LLM("tiny", config()) as llm:
        steps = run(llm, 3, max_tokens=20) + run(llm, 2, max_tokens=20) + run(llm, 3, max_tokens=20)
    assert len({step["addresses"] for step in steps}) == 1
    objects = collections.defaultdict(set)
    for step in steps:
        objects[step["key"]].add(step["metadata"])
    assert all(len(ids) == 1 for ids in objects.values())
    assert len(objects) == 3, "eager, 2 and 4"


def test_a_sampling_request_takes_the_graph_of_the_full_sampler():
    with LLM("tiny", config()) as llm:
        steps = Steps()
        llm.set_probe(steps)
        llm.generate(["a", "b"], [SamplingParams(temperature=1.0, seed=1), SamplingParams()])
        keys = {str(facts["key"]) for facts in steps.facts.values() if facts["key"]}
    assert keys == {"(batch 2, draft 0, full)"}, "the greedy request rides along in the full sampler"


def test_the_model_hook_sees_the_padded_batch_before_it_is_packed():
    seen = []
    with LLM("tiny", config()) as llm:
        llm.loaded.model.prepare_request_inputs = lambda batch, metadata: seen.append(
            (batch.num_tokens, metadata.capacity.is_cuda_graph)
        )
        run(llm, 3, max_tokens=2)
    assert seen == [(9, False), (4, True)]


def test_a_profiler_sees_each_step_as_preparation_and_run(monkeypatch):
    named = []

    @contextlib.contextmanager
    def nvtx_range(name):
        named.append(name)
        yield

    with LLM("tiny", config()) as llm:
        monkeypatch.setattr("engine.runners.decoder.nvtx_range", nvtx_range)
        run(llm, 3, max_tokens=3)
    assert named == ["prepare", "run"] * 3


def test_a_failed_warm_up_gives_the_dummy_back_and_releases_the_graphs(monkeypatch):
    from engine.cuda_graphs.runner import CUDAGraphRunner
    from engine.runners.decoder import DecoderRunner

    seen = {}
    real, count = CUDAGraphRunner.capture, iter(range(100))

    def capture(self, key, *args, **kwargs):
        if next(count) == 8:
            message = "no memory for this graph"
            raise RuntimeError(message)
        return real(self, key, *args, **kwargs)

    original = DecoderRunner.warmup

    def warmup(self, resource_manager):
        seen["resources"], seen["graphs"] = resource_manager, self._parts.graphs
        return original(self, resource_manager)

    monkeypatch.setattr(CUDAGraphRunner, "capture", capture)
    monkeypatch.setattr(DecoderRunner, "warmup", warmup)
    with pytest.raises(RuntimeError, match="no memory"):
        LLM("tiny", config())
    kv_cache = seen["resources"].kv_cache
    assert kv_cache.num_free_blocks == kv_cache.num_blocks
    assert seen["graphs"].captured_keys == frozenset()


def test_a_second_warm_up_is_refused_and_the_graphs_go_on_serving():
    with LLM("tiny", config(prefill_num_tokens=(32,))) as llm:
        expected = [facts["path"] for facts in run(llm, 3)]
        with pytest.raises(CaptureRefusedError, match="warm-up runs once, and this engine's graphs serve already"):
            llm._model_engine.warmup(llm._resources)
        llm.check()
        assert [facts["path"] for facts in run(llm, 3)] == expected
        assert expected == [PathKind.PREFILL_REPLAY, *[PathKind.REPLAY] * 3]


def test_a_rebound_metadata_tensor_is_refused_at_replay_and_ends_only_its_requests():
    with LLM("tiny", config()) as llm:
        graphs = llm._model_engine._runner._parts.graphs
        key = next(k for k in graphs.captured_keys if k.batch_size == 2 and k.sample_mode.value == "greedy")
        metadata = graphs.metadata_for(key)
        kept, metadata.kv_lens = metadata.kv_lens, metadata.kv_lens.clone()
        outputs = llm.generate([[1, 2], [3, 4]], SamplingParams(max_tokens=3))
        metadata.kv_lens = kept
        assert [out.finish_reason for out in outputs] == ["error", "error"]
        assert all(ReplayRefusedError.__name__ in out.error and "kv_lens" in out.error for out in outputs)
        llm.check()
        assert all(out.finish_reason == "length" for out in llm.generate([[1, 2], [3, 4]]))
