import json
import re

import pytest

from engine.llm import LLM
from lab.cli.main import main


def test_text_is_streamed_and_ends_with_a_line_break(capsys, monkeypatch):
    assert main(["run", "hello", "--model", "tiny", "--max-tokens", "6"]) == 0
    streamed = capsys.readouterr().out
    assert main(["run", "hello", "--model", "tiny", "--max-tokens", "6", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert streamed == report["text"] + "\n"


READY = r"loading tiny \.\.\. ready in \d+\.\d s, 2 graphs captured \(simulated\)\n"


@pytest.mark.parametrize("how", [[], ["--json"], ["--chat"]])
def test_one_line_on_stderr_says_when_the_model_is_ready(how, capsys):
    assert main(["run", "hello", "--model", "tiny", "--device", "cpu", "--max-tokens", "1", *how]) == 0
    captured = capsys.readouterr()
    assert re.fullmatch(READY, captured.err)
    assert "loading" not in captured.out


def test_json_gives_ids_text_reason_and_steps_by_path(capsys):
    assert main(["run", "hello", "--model", "tiny", "--device", "cpu", "--max-tokens", "5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["prompt_token_ids"] == list(b"hello")
    assert report["finish_reason"] == "length"
    assert len(report["token_ids"]) == 5
    assert report["steps"] == {"eager": 1, "capture": 0, "replay": 4}
    assert report["error"] is None
    assert report["simulated"] is True


def test_a_prompt_longer_than_a_step_is_cut_into_chunks(capsys):
    assert main(["run", "ab " * 300, "--model", "tiny", "--max-tokens", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["prompt_token_ids"]) == 900
    assert report["steps"]["eager"] == 2


def test_chat_puts_the_prompt_into_the_models_template(capsys):
    assert main(["run", "hi", "--model", "tiny", "--chat", "--max-tokens", "1", "--json"]) == 0
    prompt = json.loads(capsys.readouterr().out)["prompt_token_ids"]
    assert len(prompt) > len("hi")
    assert bytes(token for token in prompt if token < 256).count(b"hi") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hi", "--model", "tinny"], "did you mean 'tiny'"),
        (["hi", "--model", "tiny", "--max-tokens", "0"], "--max-tokens must be an integer of at least 1, got 0"),
        (["hi", "--model", "tiny", "--temperature", "nan"], "temperature"),
        (["", "--model", "tiny"], "at least one token"),
        (["caf\udce9", "--model", "tiny"], "the prompt must be UTF-8 text, got the byte 0xe9 at character 3"),
        (["hi", "--model", "tiny", "--seed", "-1"], "--seed must be an integer from 0 to"),
        (["hi", "--model", "tiny", "--device", "tpu"], "tpu"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments, message, capsys):
    assert main(["run", *arguments]) == 2
    captured = capsys.readouterr()
    [*before, error] = captured.err.splitlines()
    assert error.startswith("stepscope: error: ")
    assert message in error
    assert all(line.startswith("loading ") for line in before)
    assert len(before) <= 1
    assert captured.out == ""


def test_a_model_that_does_not_load_ends_the_line_that_announced_it(capsys):
    assert main(["run", "hi", "--model", "tinny"]) == 2
    assert capsys.readouterr().err.startswith("loading tinny ... stopped\nstepscope: error: ")


def interrupted_at(call):
    """Make the engine's n-th executor step raise Ctrl-C instead of running."""
    calls = []
    real = LLM._advance, LLM.step

    def count():
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt

    def advance(self, *arguments):
        count()
        return real[0](self, *arguments)

    def step(self):
        count()
        return real[1](self)

    return advance, step


def test_ctrl_c_keeps_the_text_that_came(capsys, monkeypatch):
    assert main(["run", "hello", "--model", "tiny", "--max-tokens", "12"]) == 0
    whole = capsys.readouterr().out
    advance, _ = interrupted_at(4)
    monkeypatch.setattr(LLM, "_advance", advance)
    assert main(["run", "hello", "--model", "tiny", "--max-tokens", "12"]) == 130
    captured = capsys.readouterr()
    came = captured.out.removesuffix("\n")
    assert 0 < len(came) < len(whole) - 1
    assert whole.startswith(came)
    assert captured.err.count("\n") == 1  # the loading line, and no traceback


def test_ctrl_c_reports_what_came_as_json(capsys, monkeypatch):
    _, step = interrupted_at(4)
    monkeypatch.setattr(LLM, "step", step)
    assert main(["run", "hello", "--model", "tiny", "--max-tokens", "12", "--json"]) == 130
    report = json.loads(capsys.readouterr().out)
    assert report["finish_reason"] == "abort"
    assert len(report["token_ids"]) == 3
