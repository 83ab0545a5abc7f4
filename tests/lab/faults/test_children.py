import os
import signal
import subprocess
import sys
import time

import pytest

from lab.faults import children
from lab.faults.children import Task, run_in_children


def test_faults_run_in_processes_that_start_warm():
    tasks = [Task("short-input-stale-tail", "on"), Task("short-input-stale-tail", "off")]
    found = dict(run_in_children(tasks, "cpu", at_once=2))
    assert {task.guards: outcome.verdict for task, outcome in found.items()} == {
        "on": "refused(ReplayRefusedError)",
        "off": "wrong(3)",
    }


def hang(_task, _device, _answer):
    time.sleep(600)


def test_a_run_over_its_time_is_ended_and_detects_nothing(monkeypatch):
    monkeypatch.setattr(children, "_work", hang)
    ((task, outcome),) = run_in_children([Task("forgotten-replay", "off")], "cpu", time_limit=0.1)
    assert task.name == "forgotten-replay"
    assert (outcome.error, outcome.detected) == ("no answer within 0 s", False)


def test_a_run_that_fails_says_why():
    ((_, outcome),) = run_in_children([Task("no such fault", "off")], "cpu")
    assert outcome.error.startswith("ConfigError: there is no fault 'no such fault'")
    assert not outcome.detected


def crash(_task, _device, _answer):
    os._exit(7)


def test_a_process_that_dies_is_an_error_and_detects_nothing(monkeypatch):
    monkeypatch.setattr(children, "_work", crash)
    ((_, outcome),) = run_in_children([Task("forgotten-replay", "off")], "cpu")
    assert (outcome.error, outcome.detected) == ("the run's process ended with status 7", False)


def test_a_caller_that_stops_early_leaves_no_process():
    runs = run_in_children([Task("forgotten-replay", "off"), Task("forgotten-replay", "on")], "cpu", at_once=2)
    next(runs)
    runs.close()
    assert not [p for p in children.multiprocessing.active_children() if p.pid != os.getpid()]


@pytest.mark.parametrize("after", ["_server", "_start", "_read"])
def test_ctrl_c_in_every_process_of_the_terminal_says_one_thing(after):
    program = (
        "import sys\nfrom lab.cli.main import main\nfrom lab.faults import children\n"
        f"inner = children.{after}\n"
        "def outer(*arguments):\n    result = inner(*arguments)\n    print('now', flush=True)\n    return result\n"
        f"children.{after} = outer\nsys.exit(main())"
    )
    command = [sys.executable, "-c", program, "faults", "run", "forgotten-replay"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as run:
        assert run.stdout.readline() == "now\n"
        os.killpg(run.pid, signal.SIGINT)
        os.killpg(run.pid, signal.SIGINT)
        _, stderr = run.communicate()
    assert (run.returncode, stderr) == (130, "stepscope: interrupted\n")
