import pytest

from engine.errors import TraceError
from lab.imports.logged import LoggedStep, refuse_line


def test_a_step_of_which_only_the_rows_are_known_says_nothing_else():
    step = LoggedStep(step=3, rows=7)
    assert (step.requests, step.path, step.host_us, step.reason) == (None, None, None, None)


def test_a_refusal_names_file_line_what_was_required_and_what_was_got():
    with pytest.raises(TraceError) as caught:
        refuse_line("a.log", 7, "rows must be a number", "many" * 100, "count them")
    text = str(caught.value)
    assert text.startswith("a.log, line 7: rows must be a number, got 'many")
    assert text.endswith("; count them")
    assert len(text) < 200
