import pytest

from engine.errors import ConfigError
from engine.inputs.steady import SteadyRows
from engine.probe import Stage
from lab.bench import host
from lab.bench.host import Growth, HostBench, measure

SMALL = HostBench(shapes=("tiny",), batches=(3,), prompt_len=5, steps=8, growth=(Growth.TOGETHER,))
SUMS = ["preparation and its tests", "preparation", "preparation without a probe", "step"]


def test_every_stage_is_timed_on_both_paths():
    rows = measure(SMALL, device="cpu")
    assert [row["stage"] for row in rows] == [*(stage.name.lower() for stage in Stage), *SUMS]
    for row in rows:
        assert list(row) == ["shape", "device", "batch", "growth", "stage", "full_us", "steady_us", "share"]
        assert (row["shape"], row["device"], row["batch"], row["growth"]) == ("tiny", "cpu", 3, "together")
        assert row["full_us"] > 0
        assert row["steady_us"] > 0
    by_stage = {row["stage"]: row for row in rows}
    assert by_stage["preparation"]["full_us"] < by_stage["preparation and its tests"]["full_us"]
    assert by_stage["preparation and its tests"]["full_us"] < by_stage["step"]["full_us"]


def test_tables_grow_all_over_or_together(monkeypatch):
    grown = {}

    class Witness(host._StageClock):
        def emit(self, stage, step, value):
            super().emit(stage, step, value)
            if isinstance(value, SteadyRows):
                grown[growth].append(len(value.changed_rows))

    monkeypatch.setattr(host, "_StageClock", Witness)
    for growth in Growth:
        grown[growth] = []
        measure(HostBench(shapes=("tiny",), batches=(16,), prompt_len=13, steps=32, growth=(growth,)), device="cpu")
    assert set(grown[Growth.SPREAD]) == {1}
    assert set(grown[Growth.TOGETHER]) == {0, 16}


def test_a_sum_is_taken_step_by_step_before_the_median():
    steps = [{Stage.PACKED: 1000, Stage.COPIED: 9000}, {Stage.PACKED: 8000, Stage.COPIED: 1000}, {Stage.PACKED: 3000}]
    assert host._median(steps, (Stage.PACKED, Stage.COPIED)) == 9.0
    assert host._median(steps, (Stage.PACKED,)) == 3.0
    assert host._median(steps, (Stage.RAN,)) is None


def test_a_path_without_a_stage_has_no_time_and_no_share():
    assert host._stage_row("packed", 2.0, None) == {"stage": "packed", "full_us": 2.0, "steady_us": None, "share": None}
    assert host._stage_row("packed", 2.0, 0.5)["share"] == 0.25


@pytest.mark.parametrize(
    ("bench", "message"),
    [
        (HostBench(steps=0), "steps must be at least 1, got 0"),
        (HostBench(batches=(0,)), "batch 0 must be at least 1, got 0"),
        (HostBench(shapes=("gpt-2",)), "a shape is one of tiny"),
        (
            HostBench(prompt_len=1900),
            "prompt_len and steps must fit into 2048 tokens, they need 2076; lower one of them",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(bench, message):
    with pytest.raises(ConfigError, match=message):
        measure(bench, device="cpu")
