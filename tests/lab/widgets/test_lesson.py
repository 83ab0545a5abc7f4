"""What a teacher adds: notes by step and stage from Python and from a file, large type, and one error for the rest."""

import json

import pytest

from engine.errors import ConfigError, TraceError
from lab.trace import Trace
from lab.widgets.lesson import MAX_CHARACTERS, MAX_NOTES, NO_LESSON, make_lesson, read_notes, step_numbers
from tests.lab.sample_steps import sample_trace


@pytest.fixture
def numbers():
    trace = sample_trace(6)
    return step_numbers(Trace(trace.header, trace.steps[2:]))


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        (None, {}),
        ("Look.", {"": "Look."}),
        ({0: "first", -1: " last\n"}, {"2": "first", "5": "last"}),
        ({(1, "PACKED"): "order", (1, 3): "why", (1, None): "both"}, {"3/4": "order", "3/3": "why", "3": "both"}),
        ({None: "all", (None, "run"): "each run"}, {"": "all", "/7": "each run"}),
    ],
)
def test_notes_stand_at_a_step_a_stage_or_everywhere(numbers, notes, found):
    assert make_lesson(numbers, notes=notes).notes == found


@pytest.mark.parametrize(
    "notes",
    [
        "",
        7,
        {0: None},
        {0: " "},
        {"0": "text"},
        {(): "text"},
        {(0, 1, 2): "text"},
        {(0.5, 1): "text"},
        {True: "text"},
        {0: "x" * (MAX_CHARACTERS + 1)},
        {(None, at): "text" for at in range(MAX_NOTES + 1)},
        "half \ud83d a face",
    ],
)
def test_anything_else_is_refused_with_what_notes_are(numbers, notes):
    with pytest.raises(ConfigError, match=r"notes must be a text, or texts by step or \(step, stage\), at most 1000"):
        make_lesson(numbers, notes=notes)


def test_a_step_or_stage_that_is_not_there_is_refused_with_those_that_are(numbers):
    with pytest.raises(ConfigError, match="step must be from -4 to 3 in a trace of 4 steps, got 4"):
        make_lesson(numbers, notes={4: "text"})
    with pytest.raises(
        ConfigError, match=r"stage must be 0 to 12 or one of Schedule .*, got 'packing'; did you mean 'Pack'"
    ):
        make_lesson(numbers, notes={(0, "packing"): "text"})


def test_a_run_that_grows_takes_notes_for_steps_to_come():
    trace = sample_trace(6)
    later = step_numbers(Trace(trace.header, trace.steps[2:4]), grows=True)
    assert make_lesson(later, notes={1: "now", 5: "later"}).notes == {"3": "now", "7": "later"}
    fresh = step_numbers(Trace(trace.header, []), grows=True)
    assert make_lesson(fresh, notes={3: "later"}).notes == {"3": "later"}


@pytest.mark.parametrize("large", [1, "yes", None])
def test_large_is_true_or_false(numbers, large):
    with pytest.raises(ConfigError, match="large must be True or False, got"):
        make_lesson(numbers, large=large)


def test_without_a_teacher_nothing_is_added(numbers):
    assert make_lesson(numbers) == NO_LESSON


def test_a_file_of_notes_names_steps_by_number(tmp_path):
    file = tmp_path / "notes.json"
    file.write_text(json.dumps({"5": "five", "5/packed": "order", "*/3": "each", "*": "all", "-1/0": "x"}), "utf-8")
    found = read_notes(file)
    assert found == {(5, None): "five", (5, "packed"): "order", (None, 3): "each", (None, None): "all", (-1, 0): "x"}
    assert make_lesson(int, notes=found).notes == {"5": "five", "5/4": "order", "/3": "each", "": "all", "-1/0": "x"}
    plain = tmp_path / "notes.txt"
    plain.write_text("Count the rows.\n<b>Why?</b>", encoding="utf-8")
    assert make_lesson(int, notes=read_notes(plain)).notes == {"": "Count the rows.\n<b>Why?</b>"}


def test_a_file_that_is_none_is_said(tmp_path):
    wanted = r"cannot read notes from '.*missing.txt': No such file or directory; name a text file, or a .json file"
    with pytest.raises(ConfigError, match=wanted):
        read_notes(tmp_path / "missing.txt")
    with pytest.raises(ConfigError, match=r"cannot read notes from '\.': Is a directory; name a text file"):
        read_notes("")
    with pytest.raises(ConfigError, match=r"cannot read notes from 'a.*b': embedded null byte"):
        read_notes("a\0b")
    binary = tmp_path / "notes.txt"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match=r"notes must be text in UTF-8, got byte 128 of .*; save the file as UTF-8"):
        read_notes(binary)


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", r"got a file that is no JSON \(Expecting value"),
        ("{", r"got a file that is no JSON \(Expecting property name"),
        ("[" * 100_000, r"got a file that is no JSON \(maximum recursion"),
        ('{"1": ' + "9" * 5000 + "}", r"got a file that is no JSON \(Exceeds the limit"),
        ("[1]", r"got \[1\] in .*; a file of plain text needs another name"),
        ("null", "got None in "),
        ('"Why?"', r"got 'Why\?' in "),
        ('{"five": "x"}', r"got 'five'; a stage is 0 to 12 or one of Schedule \(SCHEDULED\)"),
        ('{"1/lunch": "x"}', "got '1/lunch'; a stage is 0 to 12"),
        ('{"1/packs": "x"}', "got '1/packs'; a stage is 0 to 12 .*; did you mean 'Pack'"),
        ('{"1/13": "x"}', "got '1/13'; a stage is 0 to 12"),
        ('{"' + "9" * 5000 + '": "x"}', "got '9999"),
        ('{"1/' + "9" * 5000 + '": "x"}', "got '1/9999"),
        ('{"1_0": "x"}', "got '1_0'"),
        ('{"1": "x", "1": "y"}', "got a second one at '1'; put both into one text"),
        ('{"1": "x", "01": "y"}', "got a second one at '01'"),
    ],
)
def test_a_json_file_that_holds_no_notes_is_said(tmp_path, text, got):
    file = tmp_path / "notes.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf'a .json file of notes must hold texts by "STEP", .* or "\*", {got}'):
        read_notes(file)


def test_a_mark_before_the_text_is_none_of_it(tmp_path):
    file = tmp_path / "notes.json"
    file.write_text('{"1": "x"}', encoding="utf-8-sig")
    assert read_notes(file) == {(1, None): "x"}


def test_a_value_that_is_no_text_is_refused_like_any_other(tmp_path):
    file = tmp_path / "notes.json"
    file.write_text('{"1": {"a": 1}}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"notes must be a text, .* got \{'a': 1\}"):
        make_lesson(int, notes=read_notes(file))


def test_what_the_caller_s_steps_refuse_goes_through():
    def number_of(step):
        message = f"no step {step}"
        raise TraceError(message)

    with pytest.raises(TraceError, match="no step 9"):
        make_lesson(number_of, notes={9: "text"})
