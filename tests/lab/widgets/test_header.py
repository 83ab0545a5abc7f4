"""The stepper's header: what it takes from a real trace, and what is wrong with its bucket list."""

import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from engine.cuda_graphs.buckets import FindingKind
from lab.widgets.header import FINDING_WORDS, encode_header, find_bucket_problems
from lab.widgets.strings import translate
from tests.lab.sample_steps import sample_header, sample_trace


def header_of(scheduler, graphs):
    config = EngineConfig(scheduler=SchedulerConfig(**scheduler), cuda_graph=CudaGraphConfig(**graphs))
    return sample_header(config=dataclasses.asdict(config))


def test_a_real_trace_gives_its_model_limits_buckets_and_stages(light_trace):
    header = encode_header(light_trace)
    assert (header["model"], header["buckets"], header["simulated"]) == ("tiny", [1, 2, 4], True)
    assert header["limits"] == {"blocks": 33, "tokens_per_block": 16, "host": 0}
    assert [capture["batch"] for capture in header["warmup"]] == [4, 4, 2, 2, 1, 1]
    assert {capture["drafts"] for capture in header["warmup"]} == {0}
    assert len(header["stages"]) == 13
    assert (header["prefill"], header["findings"]) == ([], [])


def test_every_kind_of_finding_has_words_in_both_languages():
    assert set(FINDING_WORDS) == {f"finding.{kind.value}" for kind in FindingKind}


def test_findings_travel_with_their_sizes():
    found = find_bucket_problems(
        header_of({"max_batch_size": 8}, {"batch_sizes": (1, 4), "enable_padding": False}),
    )
    assert found == [
        ("finding.SIZE_BETWEEN_BUCKETS", {"sizes": "2 to 3"}),
        ("finding.SIZE_ABOVE_LARGEST_BUCKET", {"sizes": "5 to 7"}),
        ("finding.MAXIMUM_IS_NO_BUCKET", {"sizes": "8"}),
    ]
    assert translate(*found[2]) == "The largest batch that a step can hold, 8, is no bucket: add it to batch_sizes."


@pytest.mark.parametrize("config", [{}, {"cuda_graph": 3}, {"cuda_graph": {"later": 1}}, {"scheduler": None}])
def test_a_configuration_that_is_not_ours_has_no_findings(config):
    assert find_bucket_problems(sample_header(config=config)) == []


def test_a_trace_without_steps_or_configuration_has_a_header():
    trace = sample_trace(1, config={})
    empty = dataclasses.replace(trace, steps=())
    header = encode_header(empty)
    assert header["limits"] == {"blocks": 0, "tokens_per_block": 0, "host": 0}
