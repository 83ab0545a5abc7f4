import importlib.metadata
import os
import subprocess
import sys

import pytest
import torch

from engine.errors import ModelError
from lab.cli import main as entry


def run_cli(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "lab.cli.main", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "command",
    [[], ["run"], ["models"], ["models", "pull"], ["trace", "record"], ["trace", "show"], ["lab"], ["bench", "cpu"],
     ["bench", "gpu"], ["bench", "host"], ["bench", "watch"], ["doctor"]],
)  # fmt: skip
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as ended:
        entry.main([*command, "--help"])
    assert ended.value.code == 0
    assert "usage: stepscope" in capsys.readouterr().out


def test_help_loads_no_torch_and_no_numpy():
    code = (
        "import sys\nfrom lab.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "sys.exit(bool({'torch', 'numpy', 'lab.trace'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_that_of_the_installed_package(capsys):
    with pytest.raises(SystemExit) as ended:
        entry.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"stepscope {importlib.metadata.version('stepscope')}\n"


def test_no_command_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as ended:
        entry.main([])
    assert ended.value.code == 2
    assert "usage: stepscope" in capsys.readouterr().err


def test_an_error_of_ours_is_one_line_and_status_two(monkeypatch, capsys):
    def refuse(arguments):
        message = "no model 'x';\ndid you mean 'y'?"
        raise ModelError(message)

    monkeypatch.setattr("lab.cli.doctor.run", refuse)
    assert entry.main(["doctor"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "stepscope: error: no model 'x'; did you mean 'y'?\n"
    assert captured.out == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize(
    "command",
    [["run", "hi", "--model", "tiny"], ["trace", "record", "--out", "x.gz", "--prompts", "hi"],
     ["faults", "run", "forgotten-replay"], ["bench", "host"]],
)  # fmt: skip
def test_a_missing_gpu_is_answered_with_the_option_that_helps(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert entry.main([*command, "--device", "cuda"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("stepscope: error: device 'cuda' needs a CUDA GPU, but ")
    assert error.endswith("; use --device cpu or --device auto")


def test_a_hint_of_another_call_is_written_as_an_option(full_trace, tmp_path, capsys):
    path = str(full_trace.save(tmp_path / "x.gz"))
    redacted = str(full_trace.save(tmp_path / "y.gz", redact=True))
    for arguments, words in (
        ([path, "--model", "nosuch"], "no model 'nosuch'"),
        ([path, "--model", ""], "no model ''"),
        ([redacted], "it is redacted: its prompts are gone; record it without --redact"),
    ):
        assert entry.main(["trace", "check", *arguments, "--prove"]) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.endswith(("; --model names a model\n", "without --redact\n"))
        assert "counterfactual(" not in error


def test_ctrl_c_is_status_130_without_a_traceback(monkeypatch, capsys):
    def interrupt(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("lab.cli.doctor.run", interrupt)
    assert entry.main(["doctor"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error():
    code = f"{sys.executable} -m lab.cli.main doctor --json | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", code], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr


def without_reader(code, reader="| true"):
    """Run a program that knows ``main`` before a reader that goes away at once; return its exit status and stderr."""
    program = f"import sys, time\nfrom lab.cli.main import main\nfrom lab.cli import doctor, faults, trace\n{code}"
    line = f"'{sys.executable}' -c \"$0\" {reader}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line, program], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


DOCTOR = "doctor.judge = lambda report: [doctor.Finding('x', '{}', '{}')]\nsys.exit(main(['doctor']))"
FAULTS = (
    "from lab.faults.examine import Outcome\n"
    "outcome = Outcome('on', raised='{}' or None, message='{}')\n"
    "faults._outcomes = lambda names, guards, device: {{(names[0], 'on'): outcome}}\n"
    "sys.exit(main(['faults', 'run', 'forgotten-replay', '--guards', 'on', '--json']))"
)
CHECK = (
    "trace.find_fall_offs = lambda of: [{{'x': '{1}'}}]\n"
    "sys.exit(main(['trace', 'check', 'x.gz', '--json', '--min-graph-share', '{0}']))"
)


@pytest.mark.parametrize(
    ("command", "verdict", "status"),
    [
        (DOCTOR, "broken", 1),
        (DOCTOR, "ok", 0),
        (FAULTS, "", 1),
        (FAULTS, "XError", 0),
        (CHECK, "1", 1),
        (CHECK, "0", 0),
    ],
)
def test_a_reader_that_goes_away_does_not_change_the_verdict(command, verdict, status, full_trace, tmp_path):
    path = full_trace.save(tmp_path / "x.gz")
    for output in ("y", "y" * 100_000):  # it fails in the last flush, and in the middle of a print
        assert without_reader(command.format(verdict, output).replace("x.gz", str(path))) == (status, "")


def test_help_and_errors_without_a_reader_keep_their_status():
    for call, reader, status in (
        ("time.sleep(0.3); main(['--help'])", "| true", 0),
        ("time.sleep(0.3); sys.exit(main(['trace', 'show', 'no such file']))", "2>&1 | true", 2),
    ):
        assert without_reader(call, reader) == (status, "")


def test_a_broken_pipe_of_the_command_itself_is_no_success(monkeypatch):
    def fail(arguments):
        raise BrokenPipeError

    monkeypatch.setattr("lab.cli.doctor.run", fail)
    with pytest.raises(BrokenPipeError):
        entry.main(["doctor"])


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch):
    def fail(arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("lab.cli.doctor.run", fail)
    with pytest.raises(ZeroDivisionError):
        entry.main(["doctor"])


def test_output_that_the_caller_closed_is_no_error():
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        code = f"{sys.executable} -m lab.cli.main models {closed}"
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert ("tiny" in done.stdout) == (closed == "2>&-")


def test_a_full_disk_is_one_line_and_status_two():
    code = f"{sys.executable} -m lab.cli.main models > /dev/full"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "stepscope: error: cannot write the output: No space left on device\n"


def test_text_that_the_terminal_cannot_show_is_escaped():
    code = "from lab.cli import main; main._settle_streams(); print('\\N{GRINNING FACE}\\udce9')"
    for encoding, shown in (("ascii", "\\U0001f600\\udce9"), ("utf-8", "\N{GRINNING FACE}\\udce9")):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
        assert done.stdout.decode("utf-8") == shown + "\n", done.stderr
