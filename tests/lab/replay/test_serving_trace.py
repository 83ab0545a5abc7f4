"""Reading serving traces: what a line means, and what is said of one that cannot be right."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TraceError
from lab.replay.serving_trace import PromptTokens, TracedRequest, prompt_tokens, read_serving_trace

HEADING = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def written(tmp_path):
    def write(text, name="x.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def jsonl(*lines):
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    return "".join(json.dumps(dict(zip(keys, line, strict=True))) + "\n" for line in lines)


def test_a_csv_line_is_a_request_and_its_time_counts_from_the_first(written):
    text = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    trace = read_serving_trace(written(HEADING + text))
    assert [(r.line, r.prompt_len, r.output_len) for r in trace.requests] == [(2, 374, 44), (3, 396, 109)]
    assert [r.arrival_us for r in trace.requests] == pytest.approx([0, 4_314_579], abs=1)
    assert not trace.has_hashes
    assert trace.longest == 505


def test_times_may_have_a_zone_or_be_seconds_and_columns_any_order(written):
    text = (
        "GeneratedTokens, Context Tokens, timestamp\n5,10,2024-05-10 00:00:01+00:00\n6,11,2024-05-10 02:00:00+02:00\n"
    )
    trace = read_serving_trace(written(text))
    assert [(r.arrival_us, r.prompt_len) for r in trace.requests] == [(0.0, 11), (1e6, 10)]
    seconds = read_serving_trace(written(HEADING + "3.5,1,1\n4,1,1\n"))
    assert [r.arrival_us for r in seconds.requests] == [0.0, 5e5]


def test_requests_come_in_order_of_time_and_limit_takes_the_first_lines(written):
    path = written(HEADING + "9,1,1\n3,2,2\n3,3,3\n1,4,4\n")
    assert [r.prompt_len for r in read_serving_trace(path).requests] == [4, 2, 3, 1]
    assert [r.prompt_len for r in read_serving_trace(path, limit=2).requests] == [2, 1]


def test_a_jsonl_line_has_milliseconds_and_an_id_for_each_block_of_512(written):
    path = written(jsonl((27482, 1100, 52, [46, 47, 48]), (30535, 512, 26, [46])), "x.jsonl")
    trace = read_serving_trace(path)
    assert trace.has_hashes
    assert trace.tokens_per_block == 512
    assert [r.hash_ids for r in trace.requests] == [(46, 47, 48), (46,)]
    assert [r.arrival_us for r in trace.requests] == [0.0, 3_053_000.0]


def test_the_id_of_a_last_block_that_is_not_full_may_be_left_out(written):
    path = written(jsonl((0, 1100, 52, [46, 47])), "x.jsonl")
    assert read_serving_trace(path).requests[0].hash_ids == (46, 47)


def test_blocks_may_have_another_size(written):
    path = written(jsonl((0, 40, 5, [1, 2, 3])), "x.jsonl")
    assert read_serving_trace(path, tokens_per_block=16).tokens_per_block == 16


BAD_CSV = {
    "2023-11-16,374": "line 2: a line must have 3 values, as the heading has, got ['2023-11-16', '374']",
    "soon,374,44": "line 2: TIMESTAMP must be a date and time such as 2023-11-16 18:15:46.68, or seconds, got 'soon'",
    "1,-3,44": "line 2: ContextTokens must be an integer from 1 to 8388608, got '-3'",
    "1,3.5,44": "line 2: ContextTokens must be an integer from 1 to 8388608, got '3.5'",
    "1,3,0": "line 2: GeneratedTokens must be an integer from 1 to 8388608, got 0",
    "1,3,": "line 2: GeneratedTokens must be an integer from 1 to 8388608, got ''",
}


@pytest.mark.parametrize("line", BAD_CSV)
def test_a_bad_csv_line_is_named_with_what_was_required_and_got(written, line):
    path = written(HEADING + line + "\n")
    with pytest.raises(TraceError) as caught:
        read_serving_trace(path)
    assert str(caught.value) == f"{path}, {BAD_CSV[line]}"


def test_the_line_number_is_that_of_the_file(written):
    path = written(HEADING + "1,3,4\n\n2,3,4\n3,x,4\n")
    with pytest.raises(TraceError, match="line 5: ContextTokens"):
        read_serving_trace(path)


BAD_JSONL = {
    "{": "a line must be one JSON object",
    "[1]": "a line must be a JSON object with timestamp, input_length, output_length, hash_ids, got [1]",
    '{"timestamp": 1}': "a line must be a JSON object with timestamp",
    jsonl((-1, 5, 5, [1])): "timestamp must be milliseconds, 0 or more, got -1",
    jsonl((True, 5, 5, [1])): "timestamp must be milliseconds, 0 or more, got True",
    jsonl((0, 5.0, 5, [1])): "input_length must be an integer from 1 to 8388608, got 5.0",
    jsonl((0, 5, 0, [1])): "output_length must be an integer from 1 to 8388608, got 0",
    jsonl((0, 5, 5, "ab")): "hash_ids must be a list of integers in [0, 1099511627776), got 'ab'",
    jsonl((0, 5, 5, [-1])): "hash_ids must be a list of integers in [0, 1099511627776), got [-1]",
    jsonl((0, 1100, 5, [1, 2, 3, 4])): "hash_ids must have one id for each 512 tokens of input_length 1100: 3, got 4; "
    "where blocks are of another size, give --tokens-per-block",
}


@pytest.mark.parametrize("line", BAD_JSONL)
def test_a_bad_jsonl_line_is_named_with_what_was_required_and_got(written, line):
    path = written(jsonl((0, 5, 5, [1])) + line, "x.jsonl")
    with pytest.raises(TraceError) as caught:
        read_serving_trace(path)
    assert str(caught.value).startswith(f"{path}, line 2: {BAD_JSONL[line]}")


def test_a_file_that_is_no_trace_says_so(written, tmp_path):
    with pytest.raises(TraceError, match=r"the heading must name the columns .* add ContextTokens, GeneratedTokens"):
        read_serving_trace(written("timestamp,a,b\n1,2,3\n"))
    with pytest.raises(TraceError, match="has no requests"):
        read_serving_trace(written(HEADING))
    with pytest.raises(TraceError, match=r"be read as a serving trace: No such file or directory; give a CSV or"):
        read_serving_trace(tmp_path / "nothing.csv")
    with pytest.raises(TraceError, match=r"as a serving trace: it is a folder; give a CSV or JSONL file$"):
        read_serving_trace(tmp_path)
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="cannot be read as a serving trace"):
        read_serving_trace(tmp_path / "x.csv")


def test_equal_ids_give_equal_tokens_and_nothing_else_does():
    one = PromptTokens(TracedRequest(2, 0, 10, 1, (7, 8)), 4)
    other = PromptTokens(TracedRequest(3, 0, 11, 1, (7, 9, 8)), 4)
    assert one[:4] == other[:4]
    assert not set(one[4:]) & set(other[4:8])
    assert one[4:8] == [*other[8:11], one[7]]
    assert len(set(one)) == 10
    assert not set(one[8:]) & set(other)


@given(st.integers(1, 30), st.data())
def test_a_lazy_prompt_is_the_sequence_that_it_stands_for(length, data):
    ids = tuple(data.draw(st.lists(st.integers(0, 5), min_size=length // 4, max_size=length // 4)))
    lazy = PromptTokens(TracedRequest(5, 0, length, 1, ids), 4)
    whole = [lazy[at] for at in range(length)]
    assert list(lazy) == whole
    cut = data.draw(st.slices(length))
    assert lazy[cut] == whole[cut]
    assert lazy[-1] == whole[-1]
    with pytest.raises(IndexError):
        lazy[length]


def test_a_prompt_of_a_plain_trace_is_a_range_that_no_other_request_has():
    prompts = [prompt_tokens(TracedRequest(line, 0, 124_000, 1), 16) for line in (2, 3)]
    assert all(isinstance(prompt, range) and len(prompt) == 124_000 for prompt in prompts)
    assert prompts[0][-1] < prompts[1][0]


def test_the_blocks_of_a_trace_are_those_of_all_its_requests_without_their_last_tokens(written):
    trace = read_serving_trace(written(HEADING + "1,16,1\n2,16,2\n3,1,1\n"))
    assert trace.num_blocks(16) == 1 + 2 + 1
