from types import SimpleNamespace

import pytest
import torch

from engine.device import DeviceSpec, resolve_device
from engine.errors import ConfigError
from engine.inputs.steady import SteadyRows
from engine.probe import Stage
from lab.bench import host
from lab.bench.host import Growth, HostBench, measure

SMALL = HostBench(shapes=("tiny",), batches=(3,), prompt_len=5, steps=8, growth=(Growth.TOGETHER,))
KEYS = ["shape", "device", "batch", "growth", "stage", "full_us", "steady_us", "share", "simulated"]
SUMS = ["preparation and its tests", "preparation", "preparation without a probe", "step"]


def test_every_stage_is_timed_on_both_paths():
    notes = []
    rows = list(measure(SMALL, device="cpu", note=notes.append))
    assert notes[-1] == "measuring 1 of 1: tiny, batch 3, growth together"
    assert [row["stage"] for row in rows] == [*(stage.name.lower() for stage in Stage), *SUMS]
    for row in rows:
        assert list(row) == KEYS
        assert row["simulated"] is True
        assert (row["shape"], row["device"], row["batch"], row["growth"]) == ("tiny", "cpu", 3, "together")
        assert row["full_us"] > 0
        assert row["steady_us"] > 0
    by_stage = {row["stage"]: row for row in rows}
    assert by_stage["preparation"]["full_us"] < by_stage["preparation and its tests"]["full_us"]
    assert by_stage["preparation and its tests"]["full_us"] < by_stage["step"]["full_us"]


def test_tables_grow_in_few_steps_and_never_all_at_once(monkeypatch):
    grown = {}

    class Witness(host.StageClock):
        def emit(self, stage, step, value):
            super().emit(stage, step, value)
            if isinstance(value, SteadyRows):
                grown[growth].append(len(value.changed_rows))

    monkeypatch.setattr(host, "StageClock", Witness)
    for growth in Growth:
        grown[growth] = []
        bench = HostBench(shapes=("tiny",), batches=(16,), prompt_len=13, steps=32, growth=(growth,))
        assert list(measure(bench, device="cpu", note=str))
    for counts in grown.values():
        assert sum(count > 0 for count in counts) <= len(counts) / 3
        assert 0 < max(counts) < 16


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
        (HostBench(batches=(0,)), "batches must be at least 1, got 0"),
        (HostBench(shapes=("gpt-2",)), "a shape is one of tiny"),
        (
            HostBench(prompt_len=1900),
            "prompt_len and steps must fit into 2048 tokens, they need 2076; lower one of them",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(bench, message):
    with pytest.raises(ConfigError, match=message):
        list(measure(bench, device="cpu", note=str))


def test_rows_come_batch_by_batch_and_a_cpu_measures_tiny_alone(monkeypatch):
    monkeypatch.setattr(host, "_stage_rows", lambda found: [{"stage": "step"}])
    measured = []

    def measure_batch(bench, shape, batch, spec, *, is_spread):
        measured.append((shape, batch, is_spread))
        return SimpleNamespace(simulated=False)

    monkeypatch.setattr(host, "_measure_batch", measure_batch)
    rows = measure(HostBench(), device="cpu", note=str)
    assert next(rows) == {"shape": "tiny", "device": "cpu", "batch": 8, "growth": "spread", "stage": "step"}
    assert measured == [("tiny", 8, True)]
    assert len(list(rows)) == 3
    assert measured == [("tiny", batch, is_spread) for batch in (8, 256) for is_spread in (True, False)]


def test_the_legend_says_what_the_columns_and_the_last_rows_mean():
    text = "\n".join(host.legend(HostBench(steps=9), resolve_device("cpu", "float32")))
    assert text.startswith("cpu, torch.float32, ")
    assert "graphs are simulated by the tape" in text
    assert "medians over 16 steps of either path" in text
    for word in ("share: ", "preparation: ", "its tests: ", "without a probe: ", "when spread, ", "when together"):
        assert word in text
    cuda = DeviceSpec(torch.device("cuda"), torch.bfloat16, is_cuda=True)
    assert "simulated" not in "\n".join(host.legend(HostBench(), cuda))
