"""With the next step laid out before this one's samples are read, tokens are the same; none is lost or shown twice."""

import pytest

from engine import LLM, SamplingParams
from engine.probe import Stage
from tests.equivalence.margin import PathCounter, assert_equal_by_margin
from tests.equivalence.table import Row, tiny_cases

ROW = Row(graphs=True, backend="native", padding=True, budget=64, overlap=True)
PROMPTS = [[5, 6, 7], [1] * 20, [200, 3]]


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


@pytest.mark.parametrize("depth", [0, 1, 3, 10_000])
@pytest.mark.parametrize("graphs", [False, True])
def test_unwatched_on_a_device_that_lags(cases, depth, graphs):
    row = Row(graphs=graphs, backend="native", padding=False, budget=64, overlap=True)
    with LLM("tiny", row.config("cpu"), stream_lag=depth) as llm:
        compared = assert_equal_by_margin(llm, cases, together=True)
        llm.check()
    assert compared >= 0.9 * sum(len(case.greedy_ids) for case in cases)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=20, temperature=0.9, seed=3, top_p=0.9),
        SamplingParams(max_tokens=20, temperature=0.7, seed=1, repetition_penalty=1.3),
        SamplingParams(max_tokens=20, logprobs=2, ignore_eos=True),
        SamplingParams(max_tokens=1),
        SamplingParams(max_tokens=40),
    ],
)
@pytest.mark.parametrize("watched", [False, True])
def test_every_kind_of_sampling_gives_what_the_plain_loop_gives(params, watched):
    outputs = {}
    for overlap in (False, True):
        row = Row(graphs=True, backend="native", padding=True, budget=64, overlap=overlap)
        with LLM("tiny", row.config("cpu")) as llm:
            llm.set_probe(PathCounter() if watched else None)
            found = llm.generate(PROMPTS, params)
            outputs[overlap] = [(out.token_ids, out.text, out.finish_reason, out.logprobs) for out in found]
            llm.check()
    assert outputs[True] == outputs[False]


def test_a_request_that_ends_wastes_one_row_and_shows_no_token_of_it():
    with LLM("tiny", Row(graphs=False, backend="native", padding=False, budget=None).config("cpu")) as llm:
        (free,) = llm.generate([PROMPTS[0]], SamplingParams(max_tokens=30, ignore_eos=True))
    stop = free.token_ids[9]
    end = free.token_ids.index(stop) + 1
    params = SamplingParams(max_tokens=30, stop_token_ids=(stop,), ignore_eos=True)
    seen = []

    class Watcher:
        def emit(self, stage, step, value):
            if stage is Stage.SCHEDULED:
                seen.append(value.num_requests)
            elif stage is Stage.SAMPLED:
                assert all(len(pair) == 2 for pair in value.token_ids)
                tokens.extend(token for _, token in value.token_ids)

    for overlap in (False, True):
        tokens: list[int] = []
        seen.clear()
        with LLM(
            "tiny", Row(graphs=True, backend="native", padding=True, budget=64, overlap=overlap).config("cpu")
        ) as llm:
            llm.set_probe(Watcher())
            (output,) = llm.generate([PROMPTS[0]], params)
            llm.check()
            assert output.token_ids == free.token_ids[:end]
            assert tokens == list(output.token_ids)
            assert len(seen) == end + overlap, "one row more was launched"


def test_a_request_is_aborted_with_every_token_that_was_on_its_way():
    with LLM("tiny", ROW.config("cpu")) as llm:
        request_id = llm.submit(PROMPTS[0], SamplingParams(max_tokens=30, ignore_eos=True))
        for _ in range(4):
            llm.step()
        llm.abort(request_id)
        (output,) = llm.step()
        llm.check()
        assert (output.finish_reason, len(output.token_ids)) == ("abort", 4)
        assert not llm.has_unfinished


def test_slots_and_blocks_of_a_full_engine_pass_on_without_a_gap():
    params = [SamplingParams(max_tokens=2 + i % 7, ignore_eos=True) for i in range(40)]
    prompts = [[1 + i % 200] * (1 + i % 9) for i in range(40)]
    with LLM("tiny", Row(graphs=True, backend="native", padding=True, budget=64).config("cpu")) as llm:
        expected = [out.token_ids for out in llm.generate(prompts, params)]
    with LLM("tiny", ROW.config("cpu")) as llm:
        got = [out.token_ids for out in llm.generate(prompts, params)]
        llm.check()
    assert got == expected
