import argparse
import dataclasses

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.errors import StepscopeError
from lab.cli.main import main
from lab.cli.wording import in_options

OPTIONS = ("max_tokens", "max_batch_size", "max_num_tokens", "buckets", "blocks", "speed", "chunking", "draft_lens")


def said(text, *options):
    return in_options(text, argparse.Namespace(**dict.fromkeys(options or OPTIONS)))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "SamplingParams.max_tokens must be an integer of at least 1, got 0",
            "--max-tokens must be an integer of at least 1, got 0",
        ),
        (
            "got max_num_tokens=8 with max_batch_size=16; raise max_num_tokens to 16",
            "got --max-num-tokens 8 with --max-batch-size 16; raise --max-num-tokens to 16",
        ),
        (
            "CudaGraphConfig.batch_sizes must be ascending without duplicates, got (4, 2); use (2, 4)",
            "--buckets must be ascending without duplicates, got 4,2; use 2,4",
        ),
        ("CudaGraphConfig.draft_lens[0] must be at most 64, got 99", "--draft-lens must be at most 64, got 99"),
        ('set SchedulerConfig(chunking="fcfs") or max_num_tokens=40', "set --chunking fcfs or --max-num-tokens 40"),
        (
            "set KVCacheConfig(num_blocks=4) or EngineConfig(max_seq_len=32)",
            "set --blocks 4 or EngineConfig(max_seq_len=32)",
        ),
        ("speed must be a finite number, got 0.0", "--speed must be a finite number, got 0.0"),
        ("two lines,\n  one message", "two lines, one message"),
    ],
)
def test_a_field_becomes_the_option_that_sets_it(message, expected):
    assert said(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        "EngineConfig.max_seq_len must be at most 64, got 65",
        "a shape of (4, 2) does not fit",
        "cannot read '/home/max_tokens/max_num_tokens.json' or max_tokens.gz",
        "llm.max_tokens() is a call",
        "prompt must be text",
    ],
)
def test_what_the_command_cannot_change_keeps_its_name(message):
    assert said(message, *OPTIONS, "prompt") == message


def test_without_options_a_message_stays():
    message = "SamplingParams.max_tokens must be an integer of at least 1, got 0"
    assert said(message, "device") == message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("run hi --model tiny --max-tokens 0", "--max-tokens must be an integer of at least 1, got 0"),
        ("run hi --model tiny --temperature -1", "--temperature must be a finite number in [0, inf), got -1.0"),
        ("run hi --model tiny --seed -1", "--seed must be an integer from 0 to"),
        ("run hi --model tiny --device tpu", "--device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got 'tpu'"),
        ("trace record --prompts a --out x --max-batch-size 0", "--max-batch-size must be an integer of at least 1"),
        ("trace record --prompts a --out x --stagger -1", "--stagger must be an integer of at least 0, got -1"),
        ("doctor --max-batch-size 16 --max-num-tokens 8", "raise --max-num-tokens to 16 or lower --max-batch-size"),
        ("doctor --batch-sizes 4,2", "--batch-sizes must be ascending without duplicates, got 4,2; use 2,4"),
        ("bench cpu --new-tokens 1", "--new-tokens must be at least 2 (the first of each request is not timed), got 1"),
        ("bench cpu --batches 4 0", "--batches must be at least 1, got 4, 0"),
        ("bench watch --steps 0", "--steps must be at least 1, got 0"),
        ("bench overlap --device cpu --shapes tiny --replays 0", "--replays must be at least 1, got 0"),
    ],
)
def test_every_command_names_its_own_options(command, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("stepscope: error: ")
    assert words in error


def test_no_message_of_the_configuration_is_spoilt():
    """Whatever is refused, the numbers that it quotes are still there."""
    for kind in (SamplingParams, SchedulerConfig, KVCacheConfig, CudaGraphConfig, EngineConfig):
        for field in dataclasses.fields(kind):
            with pytest.raises(StepscopeError) as caught:
                kind(**{field.name: -7.25})
            text = in_options(str(caught.value), argparse.Namespace(**{field.name: None}))
            assert "-7.25" in text
            assert text.startswith(f"--{field.name.replace('_', '-')} must be ")
