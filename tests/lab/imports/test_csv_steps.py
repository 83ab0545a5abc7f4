import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TraceError
from lab.imports.csv_steps import COLUMNS, read_csv
from lab.imports.logged import LoggedStep


def read(text, **options):
    return read_csv(io.StringIO(text), "x.csv", **options).steps


def test_rows_alone_are_enough():
    assert read("rows\n3\n5\n") == (LoggedStep(step=0, rows=3), LoggedStep(step=1, rows=5))


def test_columns_come_in_any_order_and_an_empty_value_is_not_known():
    text = "Path, ROWS ,requests,step,host_us\nreplay,3,3,7,12.5\n\n,4,,9,\n"
    assert read(text) == (
        LoggedStep(step=7, rows=3, requests=3, path="replay", host_us=12.5),
        LoggedStep(step=9, rows=4),
    )


def test_only_the_first_steps_are_taken_when_so_asked():
    assert [step.rows for step in read("rows\n3\n5\n8\n", limit=2)] == [3, 5]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the heading must name columns of step, rows,"),
        ("tokens\n3\n", "line 1: the heading must name columns of step, rows,"),
        ("step,requests\n0,3\n", "rows among them, each once, got 'step,requests'"),
        ("rows,rows\n3,3\n", "each once, got 'rows,rows'"),
        ("rows,step\n3\n", "line 2: a line must have 2 values, as the heading has, got ['3']"),
        ("rows,step\n3,0\n\n-4,1\n", "line 4: rows must be an integer from 0 to 16777216, got '-4'"),
        ("rows,step\n3,5\n3,5\n", "line 3: step must be an integer from 6 to"),
        ("rows,requests\n3,4\n", "line 2: requests must be an integer from 0 to 3, got '4'"),
        ("rows,path\n3,graph\n", "path must be one of eager, capture, replay, prefill_replay, got 'graph'"),
        ("rows,path,reason\n3,replay,WARMUP\n", "reason belongs to path eager and must be one of GRAPHS_DISABLED,"),
        ("rows,path,reason\n3,eager,TIRED\n", "got 'TIRED'"),
        ("rows,path,padded_rows\n3,eager,4\n", "padded_rows belongs to a path of replay, prefill_replay, capture"),
        ("rows,path,padded_rows\n3,replay,2\n", "padded_rows must be an integer from 3 to"),
        ("rows,host_us\n3,soon\n", "host_us must be microseconds, 0 or more, got 'soon'"),
        ("step,rows\n1,\n", "rows must be an integer of at least 0, got 'nothing'"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_what_was_required_and_what_was_got(text, words):
    with pytest.raises(TraceError, match=re.escape(words)) as caught:
        read(text)
    assert str(caught.value).startswith("x.csv, line ")


VALUES = st.lists(
    st.tuples(st.integers(0, 99), st.none() | st.floats(0, 1e9).map(lambda us: round(us, 3))), max_size=20
)


@given(VALUES)
def test_what_is_written_is_what_is_read(values):
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS)
    writer.writeheader()
    for rows, host_us in values:
        writer.writerow({"rows": rows, "requests": rows, "host_us": "" if host_us is None else f"{host_us:.3f}"})
    assert read(buffer.getvalue()) == tuple(
        LoggedStep(step=at, rows=rows, requests=rows, host_us=host_us) for at, (rows, host_us) in enumerate(values)
    )
