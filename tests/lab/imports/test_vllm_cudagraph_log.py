import re

import pytest

from engine.errors import TraceError
from lab.imports import vllm_cudagraph_log
from lab.imports.vllm_cudagraph_log import read_cudagraph_log

HEADING = "| Unpadded Tokens | Padded Tokens | Num Paddings | Runtime Mode | Count |"
RULE = "|-----------------|---------------|--------------|--------------|-------|"
SIZES = "- Capture sizes: [1, 2, 4, 8]"
PREFIX = "(APIServer pid=7) INFO 11-30 09:10:00 [cuda_graph.py:117] "


def read(*lines, **options):
    return read_cudagraph_log(lines, "vllm.log", **options)


def brief(steps):
    return [(step.step, step.rows, step.padded, step.path, step.requests, step.reason) for step in steps]


def test_a_row_is_as_many_steps_as_it_counts():
    log = read(
        SIZES,
        "",
        "**CUDAGraph Stats:**",
        "",
        HEADING,
        RULE,
        "| 3 | 4 | 1 | FULL | 2 |",
        "| 6 | 8 | 2 | PIECEWISE | 1 |",
    )
    assert log.buckets == (1, 2, 4, 8)
    assert brief(log.steps) == [
        (0, 3, 4, "replay", 3, None),
        (1, 3, 4, "replay", 3, None),
        (2, 6, 8, "prefill_replay", None, None),
    ]


def test_the_logger_s_prefix_and_other_lines_are_passed_over():
    lines = ["| a | table | of | somebody | else |", SIZES, HEADING, RULE, "| 3 | 4 | 1 | CUDAGraphMode.FULL | 1 |"]
    assert brief(read(*[PREFIX + one for one in lines]).steps) == [(0, 3, 4, "replay", 3, None)]


def test_a_later_table_comes_later():
    log = read(
        HEADING,
        RULE,
        "| 3 | 4 | 1 | FULL | 1 |",
        "Engine 000: Running: 3 reqs",
        HEADING,
        RULE,
        "| 1 | 1 | 0 | FULL | 1 |",
    )
    assert [step.rows for step in log.steps] == [3, 1]


def test_why_a_step_was_eager_is_known_only_above_the_largest_capture_size():
    rows = ["| 9 | 9 | 0 | NONE | 1 |", "| 8 | 8 | 0 | NONE | 1 |"]
    assert [step.reason for step in read(SIZES, HEADING, *rows).steps] == ["ABOVE_LARGEST_PREFILL_BUCKET", None]
    assert [step.reason for step in read(HEADING, *rows).steps] == [None, None]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("| 3 | 4 | 1 | FULL |", "a row must have Unpadded Tokens, Padded Tokens, Num Paddings, Runtime Mode, Count"),
        ("| 3 | 4 | 1 | SOMETIMES | 1 |", "and a mode of FULL, PIECEWISE, NONE, got '3 | 4 | 1 | SOMETIMES | 1'"),
        ("| 3 | x | 1 | FULL | 1 |", "numbers, and a mode of"),
        ("| 3 | 4 | 2 | FULL | 1 |", "Padded Tokens must be Unpadded Tokens (at least 1) and Num Paddings together"),
        ("| 0 | 0 | 0 | FULL | 1 |", "got ('0', '0', '0')"),
    ],
)
def test_a_bad_row_is_refused_with_its_number_what_was_required_and_what_was_got(row, words):
    with pytest.raises(TraceError, match=re.escape(words)) as caught:
        read(HEADING, RULE, row)
    assert str(caught.value).startswith("vllm.log, line 3: ")


def test_a_count_that_nobody_could_step_through_is_refused_or_cut(monkeypatch):
    monkeypatch.setattr(vllm_cudagraph_log, "MOST_STEPS", 10)
    row = "| 3 | 4 | 1 | FULL | 11 |"
    with pytest.raises(TraceError, match="a file may count 10 steps in all, got 11; give --limit"):
        read(HEADING, RULE, row, limit=10)
    assert len(read(HEADING, RULE, row, limit=5).steps) == 5
