"""The stripped engine really is the engine without its probe sites, and both give the same tokens."""

from pathlib import Path

import pytest

import engine.py_executor
import engine.runners.decoder
from engine import LLM, EngineConfig, SamplingParams
from engine.errors import ConfigError
from lab.bench.watch import WatchBench, _stripped_llm, measure, strip_probe_sites


@pytest.mark.parametrize(
    ("module", "num_sites"), [(engine.py_executor, 4), (engine.runners.decoder, 9)], ids=["executor", "runner"]
)
def test_stripping_finds_every_site_and_leaves_no_emit(module, num_sites):
    stripped, found = strip_probe_sites(Path(module.__file__).read_text(encoding="utf-8"))
    assert found == num_sites
    assert ".emit(" not in stripped
    compile(stripped, "stripped", "exec")


def test_a_stripped_engine_gives_the_same_tokens_and_shows_nothing():
    class Witness:
        def emit(self, stage, step, value):
            message = "a stripped engine has no probe sites"
            raise AssertionError(message)

    config, params = EngineConfig(device="cpu", max_seq_len=64), SamplingParams(max_tokens=8)
    with LLM("tiny", config) as plain, _stripped_llm("tiny", config) as stripped:
        stripped.set_probe(Witness())
        assert stripped.generate("hello", params)[0].token_ids == plain.generate("hello", params)[0].token_ids


def test_three_rows_compare_in_turns():
    rows = measure(WatchBench(batch=2, steps=3, rounds=2))
    assert [row["what"] for row in rows] == ["probe sites stripped", "no probe", "light recorder"]
    assert rows[0]["ratio"] == 1.0
    assert all(row["step_us"] > 0 for row in rows)


def test_a_count_below_one_is_refused():
    with pytest.raises(ConfigError, match="rounds must be at least 1, got 0"):
        measure(WatchBench(rounds=0))
