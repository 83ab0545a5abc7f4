"""stepscope check."""

import json
from types import SimpleNamespace

import pytest

from lab.cli import check as command
from lab.cli.main import main
from lab.exercises.catalogue import load, problem_sets
from tests.exercises.classes import cell_of, course, notebook

RIGHT = "def bucket_for(sizes, batch):\n    return min((s for s in sizes if s >= batch), default=None)\n"
WRONG = "def bucket_for(sizes, batch):\n    return max(sizes)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_learner_starts_fails_and_passes(folder, capsys):
    assert main(["check", "ex16", "--start", "--rule", "b"]) == 0
    path = folder / "ex16_choose_the_bucket.py"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# stepscope: ex16 rule b\n")
    assert load("ex16").rule("b").text in text
    assert main(["check", "ex16"]) == 1
    assert "raised NotImplementedError" in capsys.readouterr().out
    path.write_text(text.replace("    raise NotImplementedError", RIGHT.split("\n")[1]), encoding="utf-8")
    assert main(["check", "ex16"]) == 0
    assert "All visible checks pass." in capsys.readouterr().out


def test_the_json_report_names_check_case_and_misconception(folder, capsys):
    (folder / "mine.py").write_text(WRONG, encoding="utf-8")
    assert main(["check", "ex16", "mine.py", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["exercise"], report["rule"], report["passed"]) == ("ex16", "a", False)
    assert report["checks"][0]["problem"] == "the answer is 4"
    assert report["hidden"] == list(load("ex16").meta.hidden)


def test_a_notebook_is_checked_by_the_rule_of_its_check_cell(folder):
    raw = notebook(course("ada"), "ps3", {"ex16": RIGHT})
    cell_of(raw, "ex16-check")["source"] = 'check("ex16", bucket_for, rule="b")'
    (folder / "ps3.ipynb").write_text(json.dumps(raw), encoding="utf-8")
    assert main(["check", "ex16", "ps3.ipynb"]) == 0
    assert main(["check", "ex16", "ps3.ipynb", "--rule", "a"]) == 1


def test_task_hint_and_list_are_printed(capsys):
    assert main(["check", "ex16", "--spec"]) == 0
    assert main(["check", "16", "--hint", "2"]) == 0
    assert main(["check"]) == 0
    out = capsys.readouterr().out
    assert "Write `bucket_for(sizes, batch)`." in out
    assert "ex16, hint 2 of 3" in out
    assert "ex16  Choose the bucket" in out


@pytest.mark.parametrize("name", problem_sets())
@pytest.mark.parametrize("place", ["{}.ipynb", "{0}/{0}.ipynb", "{0}/ada/{0}.ipynb"])
def test_the_list_begins_with_the_first_exercise_of_the_set_whose_folder_it_is(folder, capsys, name, place):
    notebook_path = folder / place.format(name)
    notebook_path.parent.mkdir(parents=True, exist_ok=True)
    notebook_path.write_text("{}", encoding="utf-8")
    assert main(["check"]) == 0
    first = problem_sets()[name]["exercises"][0]
    assert capsys.readouterr().out.splitlines()[-1] == f"Begin with: stepscope check {first} --start"


def test_a_folder_named_for_a_set_is_its_folder_and_any_other_begins_at_the_beginning(folder, monkeypatch, capsys):
    assert main(["check"]) == 0
    assert "Begin with: stepscope check ex01 --start" in capsys.readouterr().out
    (folder / "ps3").mkdir()
    assert command.set_of_folder(folder) is None, "an empty folder in it says nothing of this one"
    monkeypatch.chdir(folder / "ps3")
    assert main(["check"]) == 0
    assert "Begin with: stepscope check ex16 --start" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["check", "ex99"], "there is no exercise 'ex99'"),
        (
            ["check", "ex16"],
            "there is no file named ex16* in this folder; write one with `stepscope check ex16 --start`",
        ),
        (["check", "ex16", "gone.py"], "cannot read gone.py: No such file or directory\n"),
        (["check", "ex16", "gone.py", "--watch"], "there is no file gone.py"),
    ],
)
def test_what_cannot_be_checked_is_one_line_on_stderr(folder, capsys, argv, words):
    assert main(argv) == 2
    assert words in capsys.readouterr().err


def test_a_file_is_never_overwritten_nor_guessed_between_two(folder, capsys):
    for name in ("ex16_a.py", "ex16_b.py"):
        (folder / name).write_text(RIGHT, encoding="utf-8")
    assert main(["check", "ex16"]) == 2
    assert main(["check", "ex16", "ex16_a.py", "--start"]) == 2
    error = capsys.readouterr().err
    assert "there are 2 files named ex16*" in error
    assert "ex16_a.py exists; go on there, or name another file" in error


def test_watching_checks_again_at_every_save_until_all_holds(folder, monkeypatch, capsys):
    path = folder / "ex16.py"
    path.write_text(WRONG, encoding="utf-8")
    saves = iter([WRONG + "\n", RIGHT])
    clock = SimpleNamespace(sleep=lambda _: path.write_text(next(saves), encoding="utf-8"))
    monkeypatch.setattr(command, "time", clock)
    assert main(["check", "ex16", "--watch", "--rule", "b"]) == 0
    out = capsys.readouterr().out
    assert out.count("watching ex16.py; Ctrl-C ends") in (2, 3)  # a clock may be too coarse for two saves at once
    assert "All visible checks pass." in out


@pytest.mark.parametrize("name", ["nope.py", ".", "a" * 5000, "a\0b"])
def test_a_file_that_cannot_be_read_is_said(name, capsys):
    assert main(["check", "ex16", name, "--walkthrough"]) == 2
    assert capsys.readouterr().err.startswith("stepscope: error: cannot read ")
