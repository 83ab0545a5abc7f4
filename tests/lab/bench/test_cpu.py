import sys

import pytest

from engine.errors import ConfigError, ModelError
from lab.bench import cpu
from lab.bench.cpu import CpuBench, measure

SMALL = CpuBench(model="tiny", batches=(2, 1), prompt_len=6, new_tokens=8, rounds=1)


def test_both_sides_are_measured_on_the_same_weights():
    rows = measure(SMALL)
    assert [row["batch"] for row in rows] == [1, 2]
    for row in rows:
        assert row.keys() == {"batch", "stepscope_tok_s", "transformers_tok_s", "ratio"}
        assert row["ratio"] == pytest.approx(row["stepscope_tok_s"] / row["transformers_tok_s"], rel=0.02)


def test_other_tokens_stop_the_bench(monkeypatch):
    monkeypatch.setattr(cpu, "_generate_rate", lambda reference, prompts, n: (1.0, [[0] * n for _ in prompts]))
    with pytest.raises(ModelError, match="must give the same first 4 tokens"):
        measure(SMALL)


def test_without_transformers_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match=r"pip install 'stepscope\[dev\]'"):
        measure(SMALL)


def test_a_round_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="rounds must be at least 1, got 0"):
        measure(CpuBench(model="tiny", rounds=0))
