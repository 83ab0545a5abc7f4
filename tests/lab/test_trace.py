import dataclasses
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from engine.errors import TraceError
from lab.snapshot import equal
from lab.trace import RowMark, Trace, trace_target
from tests.lab.sample_steps import sample_trace


def rewrite(path, change):
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def test_a_trace_comes_back_from_its_file(tmp_path):
    trace = sample_trace(num_steps=12)
    again = Trace.load(trace.save(tmp_path / "x.trace.json.gz"))
    assert again.header == trace.header
    assert len(again) == 12
    assert all(equal(a, b) for a, b in zip(trace.steps, again.steps, strict=True))
    assert again.summary() == trace.summary()
    assert list(tmp_path.iterdir()) == [tmp_path / "x.trace.json.gz"]


def test_marks_come_back_and_lose_their_words_when_redacted(tmp_path):
    trace = dataclasses.replace(sample_trace(num_steps=3), marks=(RowMark(2, 1, "samples 7, right is 9"),))
    assert Trace.load(trace.save(tmp_path / "x.trace.json.gz")).marks == trace.marks
    assert Trace.load(trace.save(tmp_path / "y.trace.json.gz", redact=True)).marks == (RowMark(2, 1, ""),)


def test_a_file_from_before_marks_has_none(tmp_path):
    path = sample_trace(num_steps=2).save(tmp_path / "x.trace.json.gz")
    rewrite(path, lambda content: content.pop("marks"))
    assert Trace.load(path).marks == ()


def test_the_summary_counts_paths_reasons_and_padding():
    summary = sample_trace(num_steps=8).summary()
    assert summary.paths == {"replay": 7, "eager": 1}
    assert summary.reasons == {"HAS_CONTEXT_UNPROMOTED": 1}
    assert summary.deferrals == {"NO_FREE_BLOCKS": 1}
    assert summary.num_requests == 2
    assert summary.num_tokens == 1 + sum(1 + i % 8 for i in range(1, 8))
    assert summary.padding_share == 0.0
    assert set(summary.host_us) >= {"SCHEDULED", "COMMITTED"}
    assert str(summary).startswith("8 steps (7 replay, 1 eager), 2 requests")
    assert str(sample_trace(num_steps=1).summary()).startswith("1 step (1 eager), 2 requests, 1 token sampled\n")
    assert ("simulated" in str(summary)) is summary.simulated is sample_trace().header.device.simulated
    assert "simulated" not in str(dataclasses.replace(summary, simulated=False))
    assert "graphs: simulated by the CPU tape" in str(dataclasses.replace(summary, simulated=True))
    eager = dataclasses.replace(summary, simulated=True, paths={"eager": 8})
    assert "graphs: used by no step" in str(eager).splitlines()
    assert "graphs: off" in str(dataclasses.replace(eager, reasons={"GRAPHS_DISABLED": 8})).splitlines()
    assert "graphs:" not in str(dataclasses.replace(eager, simulated=False))


def test_an_empty_trace_has_a_summary():
    summary = sample_trace(num_steps=1).summary()
    empty = Trace(sample_trace().header, []).summary()
    assert summary.num_steps == 1
    assert (empty.num_steps, empty.paths, empty.padding_share, empty.host_us) == (0, {}, 0.0, {})


def test_a_printed_trace_is_one_short_line():
    assert repr(sample_trace(num_steps=8)) == "<Trace of tiny: 8 steps (7 replay, 1 eager; graphs simulated)>"
    assert repr(sample_trace(num_steps=1)) == "<Trace of tiny: 1 step (1 eager)>"
    real = dataclasses.replace(sample_trace().header.device, simulated=False)
    assert repr(sample_trace(num_steps=8, device=real)) == "<Trace of tiny: 8 steps (7 replay, 1 eager)>"
    assert str(Trace(sample_trace().header, [])) == "<Trace of tiny: 0 steps>"


def test_a_damaged_trace_still_prints(tmp_path):
    path = sample_trace(num_steps=8).save(tmp_path / "d.gz")
    rewrite(path, lambda content: content["steps"]["windows"][0].update(columns={}))
    assert repr(Trace.load(path)) == "<Trace of tiny: 8 steps (damaged)>"


def test_texts_grow_with_the_steps():
    trace = sample_trace()
    assert trace.texts(0) == {0: "A", 1: ""}
    assert trace.texts(-1) == {0: "A", 1: ""}


def test_a_redacted_trace_holds_no_token_and_no_text(tmp_path):
    trace = sample_trace()
    path = trace.save(tmp_path / "r.trace.json.gz", redact=True)
    again = Trace.load(path)
    assert again.header.redacted
    assert again.header.pieces == {}
    assert again.texts(-1) == {0: "", 1: ""}
    for request in again.header.requests:
        assert request.prompt_token_ids is None
        assert request.prompt_text is None
        assert "stop" not in request.params
    assert [request.num_prompt_tokens for request in again.header.requests] == [12, 3]
    for step in again.steps:
        assert np.all(step.rows.token_ids == -1)
        assert all(token == -1 for _, token in step.outcome.tokens)
        assert all(view.values is None for view in step.buffers)
    assert b"secret" not in gzip.decompress(path.read_bytes())
    assert trace.header.requests[0].prompt_text == "a secret prompt"


def test_a_missing_file_says_how_to_record_one(tmp_path):
    with pytest.raises(TraceError, match=r"there is no trace file .*stepscope trace record --out"):
        Trace.load(tmp_path / "none.gz")


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_truncated_file_is_one_clear_error(tmp_path, keep):
    path = sample_trace().save(tmp_path / "t.gz")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TraceError, match=r"t\.gz cannot be read as a trace"):
        Trace.load(path)


def test_another_json_file_is_no_trace(tmp_path):
    path = tmp_path / "other.gz"
    path.write_bytes(gzip.compress(b'["hello"]'))
    with pytest.raises(TraceError, match="is not a trace file"):
        Trace.load(path)


def test_another_version_is_refused_by_number(tmp_path):
    path = sample_trace().save(tmp_path / "v.gz")
    rewrite(path, lambda content: content.update(version=99))
    with pytest.raises(TraceError, match=r"trace version 99\.2, this Stepscope reads 1\.1 to 1\.2"):
        Trace.load(path)


def test_a_header_without_its_model_is_damaged(tmp_path):
    path = sample_trace().save(tmp_path / "d.gz")
    rewrite(path, lambda content: content["header"].pop("model"))
    with pytest.raises(TraceError, match="damaged trace"):
        Trace.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": "12"}, r"damaged trace \(TypeError: header\.buckets is \('1', '2'\)\); record it again"),
        ({"config": []}, r"damaged trace \(TypeError: header\.config is \[\]\)"),
        ({"pieces": {"x": "a"}}, r"damaged trace \(ValueError: invalid literal"),
        ({"pieces": []}, r"damaged trace \(AttributeError"),
        ({"model": {"name": 5, "weight_hash": ""}}, r"damaged trace \(TypeError: header\.model is ModelFacts\(name=5"),
        ({"surplus": 1}, r"damaged trace \(TypeError: .*surplus"),
    ],
)
def test_a_header_of_other_types_is_damaged(tmp_path, change, message):
    path = sample_trace().save(tmp_path / "d.gz")
    rewrite(path, lambda content: content["header"].update(change))
    with pytest.raises(TraceError, match=message):
        Trace.load(path)


def test_a_folder_that_does_not_exist_cannot_be_written(tmp_path):
    with pytest.raises(TraceError, match="cannot write the trace"):
        sample_trace().save(tmp_path / "nowhere" / "x.gz")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda folder: "/dev/null", "exists and is no regular file"),
        (lambda folder: folder, "exists and is no regular file"),
        (lambda folder: folder / "missing" / "x.trace.json.gz", "is no file in an existing folder"),
        (lambda folder: "", "exists and is no regular file"),
        (lambda folder: "a\0b", "cannot name one"),
        (lambda folder: None, "cannot name one"),
        (lambda folder: folder / ("x" * 300), "cannot"),
    ],
)
def test_a_target_that_is_no_file_is_refused_before_any_work(tmp_path, make, why):
    with pytest.raises(TraceError, match=why):
        trace_target(make(tmp_path))


def test_a_device_survives_an_attempt_to_save_over_it(tmp_path):
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    with pytest.raises(TraceError, match="no regular file"):
        trace_target(fifo)
    assert fifo.is_fifo()


@pytest.mark.parametrize("i", [5, -6, 1.0, "0", True, None])
def test_a_step_that_is_not_there_is_one_clear_error_everywhere(i):
    trace = sample_trace(5)
    for ask in (trace.explain, trace.texts, trace.place):
        with pytest.raises(TraceError, match=r"step must be an index from -5 to 4, got"):
            ask(i)
    assert [trace.place(one) for one in (0, -1, -5)] == [0, 4, 0]
    with pytest.raises(TraceError, match=r"^the trace has no steps, so there is no step 0$"):
        Trace(trace.header, ()).explain(0)


def test_a_trace_of_the_first_version_still_loads_and_is_saved_as_the_newest(tmp_path):
    old = Trace.load(Path(__file__).parent / "old" / "version_1.trace.json.gz")
    assert len(old) == 5
    step = old.steps[1]
    assert (step.version, step.schedule.draft_len, step.outcome.accepted) == (1, 0, ())
    assert (step.reservation.ledger, step.graph.flight.order) == (None, ())
    assert old.header.requests[0].draft_tokens == ()
    assert old.ledger(-1).num_blocks == 0
    assert "finishes (length)" in old.explain(-1)
    again = Trace.load(old.save(tmp_path / "again.json.gz"))
    assert all(equal(a, b) for a, b in zip(old.steps, again.steps, strict=True))
