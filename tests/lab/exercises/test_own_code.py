"""A walkthrough runs on a learner's own code."""

import sys
from pathlib import Path

import nbformat
import pytest

from engine import SamplingParams
from engine.decisions import Decisions
from engine.errors import ExerciseError
from lab.exercises import catalogue, on_own_code, own_code
from lab.exercises.own_code import walkthrough_path, walkthrough_with
from tests.exercises.answers import answers

ROOT = Path(__file__).resolve().parents[3]
ADAPTED = [name for name in catalogue.exercise_names() if catalogue.load(name).has_adapter]
TWO = SamplingParams(max_tokens=3, ignore_eos=True)


def _right(sizes, batch):
    return min((s for s in sizes if s >= batch), default=None)


def _source(name, rule, kind="solution", number=0):
    exercise = catalogue.load(name)
    return answers(exercise, kind)[number].as_submission(exercise.meta.entry, rule)


def test_engines_and_sessions_ask_the_function_but_for_one_with_decisions_of_its_own():
    own = on_own_code("ex16", _right)
    assert str(own) == "your bucket_for was asked 0 times"
    with own.LLM("tiny") as llm:
        llm.generate([[1, 2], [3, 4], [5, 6]], TWO)
    first = own.num_calls
    assert first > 0
    with own.Session("tiny", prompts=[[1, 2]], params=TWO) as session:
        session.run()
    assert own.num_calls > first
    asked = own.num_calls
    with own.LLM("tiny", decisions=Decisions()) as llm, own.Session(llm, prompts=[[1, 2]], params=TWO) as session:
        session.run()
        assert llm.generate([[1, 2]], TWO)
    assert own.num_calls == asked


def test_a_session_closes_the_engine_that_it_made():
    own = on_own_code("ex16", _right)
    with own.Session("tiny", prompts=[[1, 2]], params=TWO) as session:
        llm = session.llm
    with pytest.raises(Exception, match="closed"):
        llm.generate([[1, 2]], TWO)


def test_the_copy_has_the_answer_between_the_imports_and_the_first_engine():
    notebook = walkthrough_with(catalogue.load("ex16"), "def bucket_for(sizes, batch):\n    return 8\n", rule="b")
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    at = code.index(
        'from lab.exercises import on_own_code\n\nown = on_own_code("ex16", bucket_for, rule="b")\n'
        "LLM, Session = own.LLM, own.Session"
    )
    assert code[at - 1].startswith("def bucket_for(sizes, batch):")
    assert "from lab import Session" in code[at - 2]
    assert not any("import LLM" in cell or "import Session" in cell for cell in code[at:])
    assert code[-1] == "print(own)"
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbformat.validate(notebook)


@pytest.mark.parametrize("function", [5, None, "bucket_for"])
def test_what_is_no_function_is_refused_before_an_engine_asks_it(function):
    with pytest.raises(ExerciseError, match=r"ex16 runs on your bucket_for, a function, got .*; run the cell that"):
        on_own_code("ex16", function)


def test_what_has_no_walkthrough_here_or_no_adapter_is_said(monkeypatch, tmp_path):
    with pytest.raises(ExerciseError, match="ex02 cannot be plugged into the engine"):
        walkthrough_with(catalogue.load("ex02"), "")
    monkeypatch.setattr(own_code, "_PLACES", (tmp_path,))
    with pytest.raises(ExerciseError, match="call this in the folder of the checkout"):
        walkthrough_path(catalogue.load("ex16"))


def test_every_exercise_that_decides_has_a_walkthrough_which_makes_an_engine():
    for name in ADAPTED:
        text = walkthrough_path(catalogue.load(name)).read_text(encoding="utf-8")
        assert "Session(" in text or "LLM(" in text


@pytest.mark.notebooks
@pytest.mark.parametrize("name", ADAPTED)
def test_the_walkthrough_keeps_its_claims_on_a_learners_right_answer(name):
    sys.path.insert(0, str(ROOT / "walkthroughs"))
    try:
        import build
    finally:
        sys.path.pop(0)
    exercise = catalogue.load(name)
    rule = exercise.meta.rules[0].id
    notebook = walkthrough_with(exercise, _source(name, rule), rule=rule)
    stem = walkthrough_path(exercise).stem
    claims = (ROOT / f"tests/walkthroughs/claims/{stem}.py").read_text(encoding="utf-8")
    notebook.cells.append(nbformat.v4.new_code_cell(claims, id="claims"))
    notebook.cells.append(nbformat.v4.new_code_cell("assert own.num_calls > 0", id="asked"))
    build.execute(notebook)
