"""Tables of a replay, from columns made by hand."""

import numpy as np
import pytest

from lab.replay.outcome import bucket_rows, path_rows, size_rows
from lab.replay.serve import replay
from lab.replay.settings import ReplaySettings
from lab.replay.step_log import COLUMNS, EAGER, GRAPH, NO_REASON, PREFILL, REASONS
from tests.lab.replay.traces import plain

STEPS = [
    # path, reason, requests, contexts, rows, computed, cost in us
    (EAGER, 3, 2, 2, 100, 100, 9_000),
    (GRAPH, NO_REASON, 3, 0, 3, 4, 1_000),
    (GRAPH, NO_REASON, 4, 0, 4, 4, 1_000),
    (GRAPH, NO_REASON, 3, 0, 3, 4, 2_000),
    (PREFILL, NO_REASON, 5, 1, 24, 32, 4_000),
    (EAGER, 5, 4, 0, 4, 4, 9_000),
]


@pytest.fixture
def columns():
    names = ("path", "reason", "requests", "contexts", "rows", "computed_rows", "cost_us")
    found = {name: np.zeros(len(STEPS), dtype=np.int64) for name in COLUMNS}
    return found | {name: np.array(values) for name, values in zip(names, zip(*STEPS, strict=True), strict=True)}


def test_each_path_and_reason_has_a_row_with_its_share_and_waste(columns):
    rows = {(row["path"], row["reason"]): row for row in path_rows(columns)}
    assert set(rows) == {
        ("graph", None),
        ("prefill graph", None),
        ("eager", REASONS[3].value),
        ("eager", REASONS[5].value),
    }
    assert rows["graph", None] == {
        "path": "graph", "reason": None, "steps": 3, "share_pct": 50.0, "virtual_s": 0.0, "rows": 12,
        "waste_pct": 16.67,
    }  # fmt: skip
    assert rows["prefill graph", None]["waste_pct"] == 25.0
    assert sum(row["steps"] for row in rows.values()) == len(STEPS)


def test_each_used_bucket_has_a_row(columns):
    assert bucket_rows(columns, (1, 2, 4, 8)) == [{"bucket": 4, "steps": 3, "mean_requests": 3.33, "waste_pct": 16.67}]


def test_each_batch_size_has_a_row_with_the_share_on_a_graph(columns):
    rows = {row["requests"]: row for row in size_rows(columns)}
    assert [rows[size]["steps"] for size in (2, 3, 4, 5)] == [1, 2, 2, 1]
    assert [rows[size]["on_graph_pct"] for size in (2, 3, 4, 5)] == [0.0, 100.0, 50.0, 100.0]


def test_the_summary_has_the_ten_keys_and_nothing_else():
    trace = plain((0, 16, 3), (0, 20, 2))
    settings = ReplaySettings()
    summary = replay(trace, settings.config(trace), settings.costs).summary()
    wall_s = summary.pop("wall_s")
    assert wall_s > 0
    assert summary == {
        "requests": 2, "finished": 2, "prompt_tokens": 36, "computed_prompt_tokens": 36, "generated_tokens": 5,
        "steps": 3, "paused": 0, "max_wait_steps": 0, "blocks_leaked": 0,
    }  # fmt: skip
