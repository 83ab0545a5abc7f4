"""The overlap benchmark, rehearsed on the tape."""

import json

import pytest

from engine.errors import ConfigError
from lab.bench.overlap import OverlapBench, measure
from lab.cli.main import main

SMALL = OverlapBench(shapes=("tiny",), batches=(2, 1), prompt_len=4, new_tokens=12, rounds=1, replays=2, profile=True)
KEYS = ["shape", "batch", "replay_tok_s", "overlap_tok_s", "sync_tok_s", "of_replays", "host_us", "simulated"]


def test_a_rehearsal_has_every_key_says_that_it_is_simulated_and_lists_functions():
    notes = []
    rows = list(measure(SMALL, device="cpu", note=notes.append))
    assert [(row["shape"], row["batch"]) for row in rows] == [("tiny", 1), ("tiny", 2)]
    for row in rows:
        assert list(row) == KEYS
        assert row["simulated"] is True
        assert min(row["replay_tok_s"], row["overlap_tok_s"], row["sync_tok_s"]) > 0
        stages = row["host_us"]
        assert stages["host"] == pytest.approx(
            sum(us for name, us in stages.items() if name not in {"host", "sampled"}), abs=1
        )
        assert stages["ran"] > 0
    assert any("tottime" in note and ".py:" in note for note in notes), "the profile names functions"


def test_counts_too_small_are_refused_with_what_is_needed():
    with pytest.raises(ConfigError, match="new_tokens must be at least 8"):
        next(measure(OverlapBench(shapes=("tiny",), new_tokens=7), device="cpu"))


def test_the_command_prints_json(capsys):
    arguments = "--device cpu --shapes tiny --batches 1 --prompt-len 4 --new-tokens 8 --rounds 1 --replays 1 --json"
    assert main(["bench", "overlap", *arguments.split()]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert list(row) == KEYS
