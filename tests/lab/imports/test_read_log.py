import re
from pathlib import Path

import pytest

from engine.errors import ConfigError, TraceError
from lab.imports import read_log
from lab.imports.outline_steps import Limits
from lab.imports.read_log import FORMATS, ImportSettings, import_log
from lab.snapshot import equal
from lab.trace import Trace, graph_share

SAMPLES = Path(read_log.__file__).parent / "samples"
BUCKETS = ImportSettings(limits=Limits(buckets=(1, 2, 4, 8)))


def sample(form):
    name = {"csv": "steps.csv", "trtllm-iter-log": "trtllm_iter.log", "vllm-cudagraph-log": "vllm_cudagraph.log"}[form]
    return SAMPLES / name


@pytest.mark.parametrize(
    ("form", "paths", "share"),
    [
        ("csv", {"replay": 6, "eager": 4}, 0.6),
        ("trtllm-iter-log", {"replay": 6, "eager": 3, "idle": 1}, 6 / 9),
        ("vllm-cudagraph-log", {"replay": 41, "prefill_replay": 3, "eager": 1}, 44 / 45),
    ],
)
def test_the_sample_of_each_format_becomes_a_trace_that_is_saved_and_read_again(form, paths, share, tmp_path):
    trace = import_log(sample(form), form, BUCKETS)
    again = Trace.load(trace.save(tmp_path / "x.trace.json.gz"))
    assert trace.summary().paths == again.summary().paths == paths
    assert graph_share(again.steps) == pytest.approx(share)
    assert all(equal(one, other) for one, other in zip(trace.steps, again.steps, strict=True))
    assert (again.header.mode, dict(again.header.versions)) == ("imported", {"imported from": form})
    assert again.header.model.name == sample(form).name
    assert not again.header.device.simulated


def test_every_format_has_a_sample():
    assert sorted(sample(form).name for form in FORMATS) == sorted(path.name for path in SAMPLES.iterdir())


def test_a_vllm_log_brings_its_own_buckets_and_a_given_list_wins():
    path = sample("vllm-cudagraph-log")
    assert import_log(path, "vllm-cudagraph-log").header.buckets == (1, 2, 4, 8, 16, 24, 32, 512)
    assert import_log(path, "vllm-cudagraph-log", BUCKETS).header.buckets == (1, 2, 4, 8)


def test_a_file_without_a_step_says_what_was_looked_for(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("nothing to see\n", encoding="utf-8")
    with pytest.raises(TraceError, match=re.escape("serve with print_iter_log: true")):
        import_log(path, "trtllm-iter-log", BUCKETS)
    with pytest.raises(TraceError, match=re.escape("serve with --cudagraph-metrics")):
        import_log(path, "vllm-cudagraph-log")


def test_an_unknown_format_and_a_missing_file_are_refused_in_words(tmp_path):
    with pytest.raises(
        ConfigError, match="the format must be one of csv, trtllm-iter-log, vllm-cudagraph-log, got 'xml'"
    ):
        import_log(tmp_path / "x", "xml")
    with pytest.raises(TraceError, match="x cannot be read: No such file"):
        import_log(tmp_path / "x", "csv")


def test_more_steps_than_a_trace_should_hold_need_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "x.csv"
    path.write_text("rows,path\n" + "3,replay\n" * 9, encoding="utf-8")
    monkeypatch.setattr(read_log, "MOST_STEPS", 8)
    with pytest.raises(TraceError, match="holds 8 steps or more; say with --limit N how many to take"):
        import_log(path, "csv")
    assert len(import_log(path, "csv", ImportSettings(limit=4))) == 4
