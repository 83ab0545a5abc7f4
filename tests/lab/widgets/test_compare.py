"""compare: two traces as one value, in words, with marks."""

import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.errors import ConfigError
from lab import compare
from lab.session import Session
from lab.trace import Trace
from lab.widgets.compare import MAX_MARKED_STEPS, pair
from lab.widgets.strings import LANGUAGES
from tests.lab.sample_steps import sample_header, sample_trace


def tiny(sizes, prompts=("The capital of France", (2, "Hi there"), (3, "more"))):
    config = EngineConfig(
        device="cpu",
        max_seq_len=128,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
        cuda_graph=CudaGraphConfig(batch_sizes=sizes),
    )
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    with Session("tiny", prompts=list(prompts), config=config, params=params) as session:
        return session.run()


@pytest.fixture(scope="module")
def wide():
    return tiny((1, 2, 4))


def test_two_runs_of_one_workload_are_the_same(wide):
    found = compare(wide, tiny((1, 2, 4)))
    assert found.is_same
    assert found.first is None
    assert repr(found) == f"The two runs are the same in all {len(wide)} steps: schedule, path, rows and samples."
    assert found.left.marks == found.right.marks == ()


def test_a_smaller_list_of_buckets_is_named_with_the_first_step_that_it_changed(wide):
    found = compare(wide, tiny((1, 2)))
    assert found.first is not None
    assert found.first.aspect == "path"
    assert wide.steps[found.first.indices[0]].graph.path == "replay"
    assert found.sentence().startswith(
        f"The first difference is in step {found.first.at}, in the path: replay in run A, eager in run B."
    )
    assert found.changed == (("cuda_graph.batch_sizes", "(1, 2, 4)", "(1, 2)"),)
    assert "Configured otherwise (A → B): cuda_graph.batch_sizes (1, 2, 4) → (1, 2)." in found.sentence()


def test_another_prompt_marks_its_rows_on_both_sides(wide):
    other = tiny((1, 2, 4), ("The capital of Greece", (2, "Hi there"), (3, "more")))
    found = compare(wide, other)
    assert found.first is not None
    assert found.first.aspect == "rows"
    first = [mark for mark in found.left.marks if mark.step == 0]
    assert first
    assert all(mark.text.startswith("the other run has ") for mark in first)
    for mark in first:
        assert wide.steps[0].rows.token_ids[mark.row] != other.steps[0].rows.token_ids[mark.row]
    assert [mark.row for mark in found.right.marks if mark.step == 0] == [mark.row for mark in first]


def test_a_trace_from_a_file_equals_the_one_that_was_saved(wide, tmp_path):
    assert compare(wide, Trace.load(wide.save(tmp_path / "run.trace.json.gz"))).is_same


def test_every_language_has_the_sentence(wide):
    found = compare(wide, tiny((1, 2)))
    said = {language: found.sentence(language) for language in LANGUAGES}
    assert said["zh"] != said["en"]
    assert "第一处不同" in said["zh"]
    assert "{" not in "".join(said.values())


def test_marks_end_where_everything_differs():
    left = sample_trace(MAX_MARKED_STEPS + 40)
    steps = [
        dataclasses.replace(one, rows=dataclasses.replace(one.rows, token_ids=one.rows.token_ids + 1))
        for one in left.steps
    ]
    found = compare(left, Trace(sample_header(), steps))
    assert len(found.differences) == len(left)
    assert len({mark.step for mark in found.left.marks}) == MAX_MARKED_STEPS


def test_another_model_is_said_before_anything_else():
    left, header = sample_trace(2), sample_header()
    other = dataclasses.replace(header, model=dataclasses.replace(header.model, name="smollm2-135m"))
    found = compare(left, Trace(other, left.steps))
    assert found.sentence().startswith(f"Another model (A → B): {header.model.name} → smollm2-135m. The two runs are ")
    assert found.sentence("zh").startswith("模型不同（A → B）：")
    assert "Another model" not in compare(left, left).sentence()


def test_empty_runs_are_the_same():
    assert compare(Trace(sample_header(), []), Trace(sample_header(), [])).is_same


def test_what_is_no_trace_is_said():
    with pytest.raises(ConfigError, match=r"compare takes two Traces, got 'int'; a session has one as \.trace"):
        compare(sample_trace(2), 3)
    for wrong in (sample_trace(2), [sample_trace(2)], None):
        with pytest.raises(ConfigError, match="compare must be two traces, as in show"):
            pair(wrong)
