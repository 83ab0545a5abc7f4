"""The layer stack alone is warmed up without requests; an engine then runs it as chains, or compiled."""

import collections

import pytest
import torch

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.attention.interface import MetadataCapacity
from engine.cuda_graphs.dummies import PADDING_DUMMY_ID
from engine.device import resolve_device
from engine.errors import CaptureRefusedError, ConfigError, ReplayRefusedError
from engine.inputs.records import Writer
from engine.kv_cache.storage import KVStorage
from engine.models import compiled
from engine.probe import Stage
from engine.reasons import FallOff, PathKind
from engine.runners.body_warmup import step_of_padding
from tests.engine.attention.paged_world import make_backend
from tests.engine.models.compilers import needs_compiler

CPU = resolve_device("cpu", "float32")


def config(*, torch_compile=False, **graph):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        torch_compile=torch_compile,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32, chunking="fcfs"),
        cuda_graph=CudaGraphConfig(**{"batch_sizes": (1, 2, 4), "prefill_num_tokens": (8, 16), **graph}),
    )


class Steps:
    """Keeps what each stage of each step handed over, as plain facts."""

    def __init__(self):
        self.facts = collections.defaultdict(dict)

    def emit(self, stage, step, value):
        facts = self.facts[step]
        if stage is Stage.PADDED:
            facts["ids"] = [span.request_id for span in value.spans]
        elif stage is Stage.GRAPH_CHOSEN:
            facts["reason"], facts["bucket"], facts["key"] = value.reason, value.prefill_bucket, value.key
        elif stage is Stage.COPIED:
            facts["rows"], facts["tokens"] = value.num_tokens, value.input_ids.tolist()
            facts["zeroed"] = [(w.buffer, w.start, w.end) for w in value.writes if w.writer is Writer.ZERO_FILL]
        elif stage is Stage.METADATA:
            facts["padded"], facts["is_graphs"] = value.step.padded_num_tokens, value.capacity.is_cuda_graph
        elif stage is Stage.RAN:
            facts["path"], facts["event"] = value.path, value


def run(llm, lengths, max_tokens=3):
    steps = Steps()
    llm.set_probe(steps)
    prompts = [list(range(5, 5 + length)) for length in lengths]
    outputs = llm.generate(prompts, SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    llm.check()
    llm.set_probe(None)
    assert all(out.error is None for out in outputs)
    return [steps.facts[step] for step in sorted(steps.facts)], [out.token_ids for out in outputs]


@pytest.mark.parametrize("backend", ["native", "vanilla"])
def test_a_step_of_padding_gives_zeros_and_writes_nothing(backend):
    storage = KVStorage.allocate(num_layers=1, num_blocks=4, tokens_per_block=4, num_kv_heads=2, head_size=8, spec=CPU)
    metadata = make_backend(backend).make_metadata(storage, MetadataCapacity(2, 16, 2, 4))
    metadata.prepare(step_of_padding(5))
    assert metadata.step.num_seqs == 0
    rows = [torch.ones(5, heads, 8) for heads in (4, 2, 2)]
    assert not metadata.attend(0, *rows, torch.zeros(5, dtype=torch.int32)).any()
    assert not storage.blocks[:, :, :, : storage.num_blocks].any()


def test_a_prompt_runs_as_the_chain_of_the_bucket_above_it():
    with LLM("tiny", config()) as llm, LLM("tiny", config(prefill_num_tokens=())) as plain:
        (prefill, *decodes), tokens = run(llm, [3, 2])
        (eager, *_), expected = run(plain, [3, 2])
    assert tokens == expected
    assert (prefill["path"], prefill["reason"], prefill["key"]) == (PathKind.PREFILL_REPLAY, None, None)
    assert (prefill["bucket"], prefill["padded"], prefill["is_graphs"]) == (8, 8, False)
    assert (prefill["rows"], prefill["tokens"]) == (5, [5, 6, 7, 5, 6, 0, 0, 0])
    assert prefill["zeroed"] == [("input_ids", 5, 8), ("position_ids", 5, 8)]
    assert PADDING_DUMMY_ID not in prefill["ids"], "rows are added, no requests"
    event = prefill["event"]
    assert (event.key, event.simulated, event.check.passed) == ("(prefill 8)", True, True)
    assert {step["path"] for step in decodes} == {PathKind.REPLAY}
    assert (eager["path"], eager["reason"]) == (PathKind.EAGER, FallOff.HAS_CONTEXT_UNPROMOTED)


def test_prompts_of_one_token_take_the_chain_when_their_promoted_rows_have_no_graph():
    few = config(batch_sizes=(1, 2))
    with LLM("tiny", few) as llm, LLM("tiny", config(batch_sizes=(1, 2), prefill_num_tokens=())) as plain:
        (chain, *decodes), tokens = run(llm, [1, 1, 1])
        (eager, *_), expected = run(plain, [1, 1, 1])
        (promoted, *_), _tokens = run(llm, [1, 1])
    assert tokens == expected
    assert (chain["path"], chain["reason"], chain["bucket"]) == (PathKind.PREFILL_REPLAY, None, 8)
    assert (chain["rows"], chain["zeroed"]) == (3, [("input_ids", 3, 8), ("position_ids", 3, 8)])
    assert (eager["path"], eager["reason"]) == (PathKind.EAGER, FallOff.ABOVE_LARGEST_BUCKET)
    assert {step["reason"] for step in decodes} == {FallOff.ABOVE_LARGEST_BUCKET}, "decodes have no chain"
    assert promoted["path"] is PathKind.REPLAY, "where there is a graph for them, it is better than a chain"


def test_above_the_largest_chain_a_prompt_runs_eagerly_and_unpadded():
    with LLM("tiny", config()) as llm:
        (first, *_), _tokens = run(llm, [17])
    assert (first["path"], first["reason"]) == (PathKind.EAGER, FallOff.ABOVE_LARGEST_PREFILL_BUCKET)
    assert (first["rows"], first["padded"], first["zeroed"], first["event"].check) == (17, None, [], None)


def test_a_shorter_prompt_behind_a_longer_one_sees_none_of_its_rows():
    with LLM("tiny", config(prefill_num_tokens=(16,))) as llm:
        alone = run(llm, [3])[1]
        run(llm, [15])
        assert run(llm, [3])[1] == alone


def test_an_unfinished_chunk_runs_as_a_chain_and_samples_nothing():
    with LLM("tiny", config(prefill_num_tokens=(32,))) as llm, LLM("tiny", config()) as plain:
        steps, tokens = run(llm, [45])
        assert run(plain, [45])[1] == tokens
    assert [step["path"] for step in steps[:2]] == [PathKind.PREFILL_REPLAY] * 2
    assert [step["rows"] for step in steps[:2]] == [32, 13]


def test_warm_up_captures_each_bucket_and_reports_it():
    with LLM("tiny", config()) as llm:
        report = llm.warmup_report
        assert [capture.num_tokens for capture in report.prefill_captures] == [16, 8]
        total = sum(capture.pool_bytes for capture in (*report.captures, *report.prefill_captures))
        assert total == report.pool_bytes
        llm._model_engine._runner._parts.prefill.check()


@pytest.mark.parametrize("graph", [{"enabled": False, "batch_sizes": None}, {"prefill_num_tokens": ()}])
def test_without_buckets_or_graphs_no_chain_is_captured(graph):
    with LLM("tiny", config(**graph)) as llm:
        assert llm.warmup_report.prefill_captures == ()
        assert run(llm, [4])[0][0]["path"] is PathKind.EAGER


def test_released_chains_leave_steps_that_run_eagerly():
    with LLM("tiny", config()) as llm:
        expected = run(llm, [6])[1]
        llm._model_engine._runner._parts.prefill.release()
        (first, *_), tokens = run(llm, [6])
    assert tokens == expected
    assert first["reason"] is FallOff.CAPTURE_NOT_ALLOWED_NOW


def test_a_refused_chain_fails_its_requests_and_no_others(monkeypatch):
    with LLM("tiny", config()) as llm:
        prefill = llm._model_engine._runner._parts.prefill
        kept, moved = prefill.statics, {"hidden": torch.zeros_like(prefill.statics.hidden)}
        monkeypatch.setattr(prefill, "statics", type(kept)(**(kept.tensors() | moved)))
        (broken,) = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=2))
        assert broken.error.startswith(ReplayRefusedError.__name__)
        assert "address of prefill.hidden" in broken.error
        monkeypatch.undo()
        assert run(llm, [4])[0][0]["path"] is PathKind.PREFILL_REPLAY


def test_a_failed_capture_of_a_chain_releases_everything(monkeypatch):
    from engine.cuda_graphs.prefill import PrefillGraphs
    from engine.cuda_graphs.runner import CUDAGraphRunner

    released = []
    plain = CUDAGraphRunner.release_graphs
    monkeypatch.setattr(CUDAGraphRunner, "release_graphs", lambda self: released.append(1) or plain(self))

    def refuse(*_args):
        message = "no room"
        raise CaptureRefusedError(message)

    monkeypatch.setattr(PrefillGraphs, "_record", refuse)
    with pytest.raises(CaptureRefusedError, match="no room"):
        LLM("tiny", config())
    assert released == [1]


@needs_compiler
def test_on_the_tape_a_compiled_body_runs_eagerly_and_serving_compiles_nothing():
    from torch._dynamo.utils import counters

    with LLM("tiny", config(prefill_num_tokens=())) as plain:
        expected = run(plain, [3, 2, 1])[1], run(plain, [5, 5])[1]
    with LLM("tiny", config(torch_compile=True, batch_sizes=(2,), prefill_num_tokens=())) as llm:
        assert llm.loaded.model.compiled.rows == {2}
        assert (llm.warmup_report.captures, llm.warmup_report.pool_bytes) == ((), 0)
        before = counters["stats"]["unique_graphs"]
        three, two = run(llm, [3, 2, 1]), run(llm, [5, 5])
        assert counters["stats"]["unique_graphs"] == before
    assert (three[1], two[1]) == expected
    for step in three[0] + two[0]:
        assert (step["path"], step["reason"]) == (PathKind.EAGER, FallOff.COMPILE_NOT_RECORDED)
        assert PADDING_DUMMY_ID not in step["ids"]


@needs_compiler
def test_a_model_that_was_compiled_for_one_engine_is_not_for_the_next():
    with LLM("tiny", config(torch_compile=True, batch_sizes=(2,), prefill_num_tokens=())) as llm:
        loaded = llm.loaded
    with LLM(loaded, config()) as llm:
        assert llm.loaded.model is loaded.model
        assert loaded.model.compiled is None
        assert run(llm, [3])[0][1]["path"] is PathKind.REPLAY


def test_a_missing_compiler_refuses_the_engine(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-c++")
    monkeypatch.setattr(compiled.shutil, "which", lambda _name: None)
    with pytest.raises(
        ConfigError, match=r"torch_compile=True needs a C\+\+ compiler, and there is no 'no-such-c\+\+'"
    ):
        LLM("tiny", config(torch_compile=True))
