import numpy as np
import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.errors import ConfigError
from engine.probe import Stage
from engine.scheduled import BudgetUse, ScheduledRequests
from lab.recorder import Recorder
from lab.session import Session
from lab.snapshot import ROW_SOURCES, STAGES, UNKNOWN, WriteView, equal
from lab.widgets.frames import FrameEncoder
from tests.lab.sample_steps import sample_header
from tests.lab.tiny_runs import run_workload

EMPTY = ScheduledRequests((), (), (), (), BudgetUse(0, 64, 0, 4, 32))


def test_an_unknown_mode_and_a_limit_of_nothing_are_refused():
    with pytest.raises(ConfigError, match="mode must be 'light' or 'full', got 'fast'"):
        Recorder(sample_header, mode="fast")
    with pytest.raises(ConfigError, match="limit must be an integer of at least 1, got 0"):
        Recorder(sample_header, limit=0)


def test_a_step_that_is_rolled_back_begins_again_under_its_number():
    recorder = Recorder(sample_header)
    recorder.emit(Stage.SCHEDULED, 7, EMPTY)
    recorder.emit(Stage.SCHEDULED, 7, EMPTY)
    recorder.check()
    assert recorder.steps == ()


def test_at_most_two_steps_stay_open():
    recorder = Recorder(sample_header)
    for step in range(5):
        recorder.emit(Stage.SCHEDULED, step, EMPTY)
        recorder.check()
    assert sorted(recorder._open) == [3, 4]


def test_a_step_joined_in_its_middle_and_a_warm_up_step_are_not_kept():
    recorder = Recorder(sample_header)
    recorder.emit(Stage.PADDED, 3, object())
    recorder.emit(Stage.SCHEDULED, -1, object())
    assert recorder.steps == ()
    assert recorder._open == {}


def test_every_stage_of_every_step_is_timed(full_trace):
    for step in full_trace.steps:
        assert len(step.host_us) == len(STAGES)
        assert np.all(step.host_us >= 0)


def test_rows_name_their_request_token_and_source(full_trace):
    first, joint = full_trace.steps[0], full_trace.steps[1]
    assert first.rows.token_ids.tolist() == list(b"Hello there")
    assert first.rows.positions.tolist() == list(range(11))
    assert {ROW_SOURCES[code] for code in first.rows.sources} == {"prompt"}
    assert joint.rows.request_ids.tolist() == [1, 1, 1, 0]
    assert [ROW_SOURCES[code] for code in joint.rows.sources] == ["prompt"] * 3 + ["previous_sample"]
    assert joint.rows.source_slots.tolist()[:3] == [UNKNOWN] * 3
    assert joint.rows.token_ids[3] == first.outcome.tokens[0][1]
    assert joint.rows.positions[3] == 11


def test_what_the_rows_say_is_what_the_device_held(full_trace):
    for step in full_trace.steps:
        rows = step.rows
        assert step.buffer("input_ids").values.tolist() == rows.token_ids.tolist()
        assert step.buffer("position_ids").values.tolist() == rows.positions.tolist()
        assert step.buffer("gather_ids").values.tolist() == rows.gather_ids.tolist()
        assert step.buffer("kv_lens", "metadata").values.tolist() == step.metadata.kv_lens.tolist()
        for table, row in zip(step.metadata.block_tables, step.buffer("block_table", "metadata").values, strict=True):
            assert tuple(row[: len(table)]) == table


def test_a_padded_step_shows_zero_filled_rows_of_a_dummy(full_trace):
    padded = next(step for step in full_trace.steps if step.path.num_padding)
    assert padded.path.num_requests == 3
    assert padded.path.bucket == 4
    assert padded.rows.num_padding_rows == 1
    assert padded.rows.request_ids[-1] == -2
    assert ROW_SOURCES[padded.rows.sources[-1]] == "zero_fill"
    tail = padded.buffer("input_ids").origins[1]
    assert (tail.start, tail.end, tail.step, tail.writer) == (3, 4, padded.step, "zero_fill")


def test_rows_above_the_batch_keep_the_age_of_their_last_write(full_trace):
    step = full_trace.steps[4]
    view = step.buffer("input_ids")
    assert view.live_rows == 4
    assert view.ages(step.step)[:4].tolist() == [0, 0, 0, 0]
    assert set(view.ages(step.step)[4:].tolist()) == {1}
    assert view.stale_rows(step.step).tolist() == []


def test_an_unwritten_live_row_is_stale(full_trace):
    view = full_trace.steps[4].buffer("input_ids")
    assert view.stale_rows(5).tolist() == [0, 1, 2, 3]


def test_only_a_replay_fills_the_statics(full_trace):
    for step in full_trace.steps:
        view = step.buffer("input_ids", "static")
        if step.graph.path == "replay":
            assert view.values.tolist() == step.rows.token_ids.tolist()
            assert view.writes == (WriteView(0, step.rows.num_rows, "device_copy"),)
        else:
            assert (view.live_rows, view.writes) == (0, ())


def test_a_prefill_chain_fills_its_own_statics_and_the_tail_of_its_bucket():
    graphs = CudaGraphConfig(batch_sizes=(1, 2), prefill_num_tokens=(8, 16))
    scheduler = SchedulerConfig(max_batch_size=2, max_num_tokens=32)
    config = EngineConfig(device="cpu", max_seq_len=64, scheduler=scheduler, cuda_graph=graphs)
    with Session("tiny", prompts=[[5, 6, 7, 8, 9]], config=config, params=SamplingParams(max_tokens=3)) as session:
        session.run()
        trace = session.trace
    first, *others = trace.steps
    assert (first.graph.path, first.graph.key, first.path.key) == ("prefill_replay", "(prefill 8)", None)
    assert (first.path.reason, first.metadata.padded_num_tokens, first.rows.num_rows) == (None, 8, 5)
    ids = first.buffer("input_ids")
    assert ids.live_rows == 5
    assert ids.writes == (WriteView(0, 5, "host_copy"), WriteView(5, 8, "zero_fill"))
    mine = first.buffer("prefill.input_ids", "static")
    assert (mine.live_rows, mine.writes) == (8, (WriteView(0, 8, "device_copy"),))
    assert first.buffer("input_ids", "static").writes == ()
    for step in others:
        assert step.graph.path == "replay"
        assert step.buffer("prefill.input_ids", "static").writes == ()
        assert step.buffer("input_ids", "static").writes != ()
    assert [fact.key for fact in trace.header.warmup.captures][-2:] == ["(prefill 16)", "(prefill 8)"]
    assert trace.summary().paths["prefill_replay"] == 1
    assert "The captured segments (prefill 8) are replayed" in trace.explain(0)
    assert FrameEncoder(trace).frames[0]["run"]["path"] == "prefill_replay"


def test_without_prefill_chains_there_are_no_such_statics(full_trace):
    assert not [view.name for view in full_trace.steps[0].buffers if view.name.startswith("prefill")]


def test_addresses_never_change_and_each_graph_key_has_one_metadata_object(full_trace):
    by_buffer, by_key = {}, {}
    for step in full_trace.steps:
        for view in step.buffers:
            if view.layer != "metadata":
                by_buffer.setdefault((view.layer, view.name), set()).add(view.address)
        by_key.setdefault(step.path.bucket if step.path.key else None, set()).add(step.metadata.object_id)
    assert len(by_buffer) == 10
    assert all(len(addresses) == 1 for addresses in by_buffer.values())
    assert all(len(objects) == 1 for objects in by_key.values())
    assert len(set().union(*by_key.values())) == len(by_key)


def test_light_mode_tells_the_same_story_without_values(full_trace, light_trace):
    assert len(light_trace) == len(full_trace)
    for light, full in zip(light_trace.steps, full_trace.steps, strict=True):
        assert all(view.values is None for view in light.buffers)
        assert light.rows.token_ids.tolist() == full.rows.token_ids.tolist()
        assert light.graph.path == full.graph.path
        assert equal(light.rows.positions, full.rows.positions)


def test_the_ring_lets_the_oldest_steps_go_and_counts_them(tiny_llm):
    session = run_workload(tiny_llm, "light", limit=3)
    assert len(session.trace) == 3
    assert session.trace.header.num_dropped == 6
    assert session.trace.steps[-1].outcome.continued == ()


def test_the_outcome_adds_up_to_the_outputs(tiny_llm):
    session = run_workload(tiny_llm, "light")
    tokens = {}
    for step in session.trace.steps:
        for request_id, token in step.outcome.tokens:
            tokens.setdefault(request_id, []).append(token)
    assert {output.request_id: list(output.token_ids) for output in session.outputs} == tokens
    assert {output.request_id: output.text for output in session.outputs} == session.trace.texts(-1)
    finished = dict(pair for step in session.trace.steps for pair in step.outcome.finished)
    assert finished == {output.request_id: output.finish_reason for output in session.outputs}
