"""Predictions: truth, verdicts, the file beside the notebook, and the same answer from a cell and from the viewer."""

import dataclasses
import json

import numpy as np
import pytest

from engine.errors import ConfigError, TraceError
from lab import predict
from lab.trace import Trace
from lab.widgets.predictions import FOLDER, QUESTIONS, score, trace_hash, truth, write
from lab.widgets.stepper import Stepper
from tests.lab.sample_steps import sample_trace


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(here, trace):
    return json.loads((here / FOLDER / f"{trace_hash(trace)}.json").read_text(encoding="utf-8"))


def test_every_question_has_its_truth():
    eager, replay = sample_trace(3).steps[0], sample_trace(3).steps[2]
    assert [truth(eager, one) for one in QUESTIONS] == ["eager", "1", "0", "eager", "0"]
    assert [truth(replay, one) for one in QUESTIONS] == ["3", "3", "3", "replay", "42"]
    assert truth(replay, "position_ids[0]") == truth(replay, "cell")
    wanted = r"a question is one of way, batch, bucket, path, cell, or a cell: one of input_ids, .*; got 'colour'"
    with pytest.raises(ConfigError, match=wanted):
        truth(eager, "colour")


def test_a_cell_that_nobody_read_or_that_was_imported_is_said():
    step = sample_trace(3).steps[2]
    unread = dataclasses.replace(step, rows=dataclasses.replace(step.rows, token_ids=step.rows.token_ids * 0 - 1))
    with pytest.raises(ConfigError, match=r"what input_ids\[0\] held in step 2 stayed on the device.*another cell"):
        truth(unread, "input_ids[0]")
    with pytest.raises(ConfigError, match=r"step 2 was imported without rows.*choose another question"):
        truth(dataclasses.replace(step, mode="imported"), "kv_lens[0]")


def test_nothing_to_run_is_a_path_of_its_own():
    step = sample_trace(3).steps[0]
    idle = dataclasses.replace(step, schedule=dataclasses.replace(step.schedule, spans=()))
    assert [truth(idle, one) for one in ("way", "bucket", "path")] == ["idle", "0", "idle"]


def test_an_answer_in_a_cell_is_scored_said_and_written(here):
    trace = sample_trace(4)
    right, wrong = predict(trace, 2, "bucket", 3), predict(trace, -1, "path", "eager")
    assert str(right) == "Step 2, bucket: right, 3."
    assert str(wrong) == "Step 3, path: you said eager; it was replay."
    report = written(here, trace)
    assert (report["trace"], report["right"], report["answered"]) == (trace_hash(trace), 1, 2)
    assert report["answers"][0] == {"step": 2, "question": "bucket", "answer": "3", "truth": "3", "right": True}


def test_the_next_cell_is_answered_in_a_cell_or_in_the_viewer_and_written_as_the_same(here):
    trace = sample_trace(4)
    said = predict(trace, 2, "kv_lens[0]", 43)
    assert str(said) == f"Step 2, kv_lens[0]: {'right' if said.is_right else 'you said 43'}" + (
        ", 43." if said.is_right else f"; it was {said.truth}."
    )
    assert predict(trace, 2, "block_table[0][99]", "none").is_right
    by_hand = written(here, trace)
    (here / FOLDER / f"{trace_hash(trace)}.json").unlink()
    widget = Stepper(trace)
    widget.set_state({"ask": "cell", "cell": "kv_lens[0]", "answers": {"2kv_lens[0]": "43"}})
    widget.set_state({"answers": {"2kv_lens[0]": "43", "2block_table[0][99]": "none"}})
    widget.close()
    assert written(here, trace) == by_hand


def test_a_later_answer_takes_the_place_of_an_earlier_one(here):
    trace = sample_trace(4)
    predict(trace, 2, "batch", 1)
    predict(trace, 2, "bucket", 1)
    predict(trace, 2, "batch", 3)
    assert [(one["question"], one["answer"]) for one in written(here, trace)["answers"]] == [
        ("bucket", "1"),
        ("batch", "3"),
    ]


def test_a_choice_in_the_viewer_is_the_same_answer_as_one_in_a_cell(here):
    trace = sample_trace(4)
    widget = Stepper(trace)
    widget.set_state({"answers": {"2way": "3"}})
    widget.set_state({"answers": {"2way": "3", "3path": "eager"}})
    by_viewer = written(here, trace)
    widget.close()
    (here / FOLDER / f"{trace_hash(trace)}.json").unlink()
    predict(trace, 2, "way", "3")
    predict(trace, 3, "path", "eager")
    assert written(here, trace) == by_viewer


def test_leaving_predict_mode_deletes_nothing(here):
    trace = sample_trace(4)
    widget = Stepper(trace)
    widget.set_state({"answers": {"2batch": "3"}})
    widget.set_state({"answers": {}})
    widget.close()
    assert written(here, trace)["answered"] == 1


def test_keys_that_name_no_step_here_are_left_out():
    assert score(sample_trace(2), {"9way": "1", "x": "1", "1batch": "2"})[0].is_right
    assert len(score(sample_trace(2), {"9way": "1", "x": "1", "1batch": "2"})) == 1


def test_the_hash_stays_while_a_run_grows_and_changes_with_its_configuration():
    trace = sample_trace(5)
    assert trace_hash(trace) == trace_hash(Trace(trace.header, trace.steps[:2]))
    slower = [dataclasses.replace(step, host_us=step.host_us * 3) for step in trace.steps]
    assert trace_hash(Trace(trace.header, slower)) == trace_hash(trace)
    assert trace_hash(sample_trace(5, config={"device": "cpu"})) != trace_hash(trace)


def test_the_hash_survives_the_file(tmp_path):
    trace = sample_trace(3)
    assert trace_hash(Trace.load(trace.save(tmp_path / "run.trace.json.gz"))) == trace_hash(trace)


def test_what_cannot_be_written_or_is_no_file_of_answers_is_said(here):
    trace = sample_trace(3)
    with pytest.raises(TraceError, match="step must be an index from -3 to 2"):
        predict(trace, 7, "batch", 1)
    path = write(trace, [])
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is no file of answers .*move it away"):
        predict(trace, 1, "batch", 1)
    (here / "taken").write_text("", encoding="utf-8")
    for folder in (here / "taken", 5, "a\0b", b"x"):
        with pytest.raises(ConfigError, match=r"cannot write the answers to the folder .*; name another folder"):
            predict(trace, 1, "batch", 1, folder=folder)


@pytest.mark.parametrize("question", [None, 5, [], b"way"])
def test_what_is_no_question_is_refused_with_those_that_are(here, question):
    with pytest.raises(ConfigError, match=r"a question is one of way, batch, bucket, path, cell, or a cell: .*; got"):
        predict(sample_trace(3), 1, question, 1)


def test_what_is_no_trace_answer_or_step_is_refused_in_words(here):
    trace = sample_trace(3)
    with pytest.raises(ConfigError, match=r"predict takes a Trace, got 5; of a session, pass session\.trace"):
        predict(5, 1, "batch", 1)
    for answer in (None, [3], b"3", {}):
        with pytest.raises(ConfigError, match="an answer must be a number or a word, got"):
            predict(trace, 1, "batch", answer)
    with pytest.raises(TraceError, match="step must be an index from -3 to 2, got an integer of 16610 bits"):
        predict(trace, 10**5000, "batch", 1)
    assert not (here / FOLDER).exists()


@pytest.mark.parametrize("answer", [3, "3", 3.0, " 3 ", np.int64(3), np.float32(3)])
def test_the_same_number_is_right_however_it_was_worked_out(here, answer):
    assert predict(sample_trace(4), 2, "bucket", answer).is_right


@pytest.mark.parametrize("answer", [10**5000, "x" * 10**6, "\ud800", float("nan")], ids=["huge", "long", "half", "nan"])
def test_an_absurd_answer_is_wrong_and_can_be_written(here, answer):
    trace = sample_trace(4)
    assert not predict(trace, 2, "bucket", answer).is_right
    assert len(written(here, trace)["answers"][0]["answer"]) <= 100
