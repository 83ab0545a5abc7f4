"""The public door: what it gives, and one clear error for every kind of bad input, with nothing lost."""

import math
import threading

import numpy as np
import pytest
import torch

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig, StepscopeError
from engine.errors import ClosedError, ConfigError, ModelError, ReentryError, RequestError, UnknownRequestError

CONFIG = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=48),
    cuda_graph=CudaGraphConfig(enabled=False),
)


@pytest.fixture(scope="module")
def shared():
    with LLM("tiny", CONFIG) as llm:
        yield llm


@pytest.fixture
def llm(shared):
    yield shared
    while shared.has_unfinished:
        shared.step()
    shared.check()
    assert shared._resources.kv_cache.num_free_blocks == shared._resources.kv_cache.num_blocks


def test_generate_returns_its_own_outputs_in_order(llm):
    outputs = llm.generate(["a much longer prompt", [1, 2, 3], "b"], SamplingParams(max_tokens=5))
    assert [len(out.prompt_token_ids) for out in outputs] == [20, 3, 1]
    assert all(len(out.token_ids) == 5 and out.finish_reason == "length" for out in outputs)
    assert all(out.error is None and out.logprobs is None and out.cached_tokens == 0 for out in outputs)


def test_a_single_text_is_a_list_of_one(llm):
    assert llm.generate("abc")[0].token_ids == llm.generate(["abc"])[0].token_ids


def test_each_prompt_may_have_its_own_params(llm):
    outputs = llm.generate(["a", "b"], [SamplingParams(max_tokens=2), SamplingParams(max_tokens=7)])
    assert [len(out.token_ids) for out in outputs] == [2, 7]


def test_text_is_the_decoded_tokens(llm):
    (output,) = llm.generate("hello", SamplingParams(max_tokens=20, ignore_eos=True))
    assert output.text == llm.tokenizer.decode(output.token_ids)


def test_a_stop_string_leaves_the_text_but_not_the_token_ids(llm):
    plain = llm.generate("hello", SamplingParams(max_tokens=20))[0]
    stop = plain.text[5:7]
    stopped = llm.generate("hello", SamplingParams(max_tokens=20, stop=(stop,)))[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == plain.text[: plain.text.index(stop)]
    assert stopped.token_ids == plain.token_ids[: len(stopped.token_ids)]
    assert llm.tokenizer.decode(stopped.token_ids).endswith(stop)


def test_a_stop_id_ends_the_request(llm):
    plain = llm.generate("hello", SamplingParams(max_tokens=20))[0]
    stopped = llm.generate("hello", SamplingParams(max_tokens=20, stop_token_ids=(plain.token_ids[3],)))[0]
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == plain.token_ids[: plain.token_ids.index(plain.token_ids[3]) + 1]


def test_generation_ends_at_max_seq_len(llm):
    (output,) = llm.generate([[1] * 40], SamplingParams(max_tokens=1000, ignore_eos=True))
    assert len(output.token_ids) == 24
    assert output.finish_reason == "length"


def test_logprobs_hold_the_chosen_token_and_the_most_likely_ones(llm):
    (output,) = llm.generate("hello", SamplingParams(max_tokens=4, logprobs=3))
    assert len(output.logprobs) == 4
    for token_id, row in zip(output.token_ids, output.logprobs, strict=True):
        assert len(row) == 3
        assert row[token_id] == max(row.values())
        assert all(value <= 0.0 and math.isfinite(value) for value in row.values())


def test_stream_gives_the_text_piece_by_piece(llm):
    expected = llm.generate("hello", SamplingParams(max_tokens=12))[0].text
    pieces = list(llm.stream("hello", SamplingParams(max_tokens=12)))
    assert "".join(pieces) == expected
    assert len(pieces) > 3


def test_closing_a_stream_aborts_its_request(llm):
    stream = llm.stream("hello", SamplingParams(max_tokens=30))
    next(stream)
    stream.close()
    assert not llm.has_unfinished


def test_requests_join_and_leave_between_steps_without_changing_each_other(llm):
    alone = [llm.generate(p, SamplingParams(max_tokens=9))[0].token_ids for p in ("first", "second one", "third")]
    ids = [llm.submit("first", SamplingParams(max_tokens=9))]
    outputs = llm.step()
    ids.append(llm.submit("second one", SamplingParams(max_tokens=9)))
    outputs += llm.step()
    ids.append(llm.submit("third", SamplingParams(max_tokens=9)))
    while llm.has_unfinished:
        outputs += llm.step()
    by_id = {out.request_id: out.token_ids for out in outputs}
    assert [by_id[i] for i in ids] == alone


def test_other_peoples_outputs_wait_for_the_next_step(llm):
    early = llm.submit("x", SamplingParams(max_tokens=2))
    llm.generate("y", SamplingParams(max_tokens=6))
    assert llm.has_unfinished
    assert [out.request_id for out in llm.step()] == [early]


def test_more_requests_than_the_batch_all_finish(llm):
    outputs = llm.generate([[i + 1] * 10 for i in range(11)], SamplingParams(max_tokens=6))
    assert len(outputs) == 11
    assert all(out.finish_reason == "length" for out in outputs)


def test_the_same_seed_gives_the_same_text_in_any_company(llm):
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=7)
    alone = llm.generate("hello", params)[0].token_ids
    crowd = llm.generate(["zz", "hello", "q"], [SamplingParams(temperature=0.5), params, SamplingParams()])
    assert crowd[1].token_ids == alone


def test_abort_of_a_running_and_of_a_waiting_request_comes_with_the_next_step(llm):
    running = [llm.submit([1, 2, i + 1], SamplingParams(max_tokens=30)) for i in range(4)]
    waiting = llm.submit("later", SamplingParams(max_tokens=30))
    llm.step()
    llm.step()
    llm.abort(running[1])
    llm.abort(waiting)
    aborted = {out.request_id: out for out in llm.step()}
    assert set(aborted) == {running[1], waiting}
    assert aborted[running[1]].finish_reason == "abort"
    assert len(aborted[running[1]].token_ids) == 2
    assert aborted[waiting].token_ids == ()
    for request_id in (running[0], running[2], running[3]):
        llm.abort(request_id)


def test_abort_of_an_unknown_request_names_the_live_ones(llm):
    request_id = llm.submit("hello")
    with pytest.raises(
        UnknownRequestError, match=rf"request 99999 is not waiting or running \(ids of live requests: {request_id}\)"
    ):
        llm.abort(99999)


BAD_PROMPTS = [
    ("", "at least one token, got an empty one"),
    ([], "at least one token, got an empty one"),
    ([1, 260, 3], r"prompt token 1 must be an integer in \[0, "),
    ([1, -1], r"prompt token 1 must be an integer in \[0, \d+\), got -1"),
    ([1.5], "got 1.5"),
    (["a"], "got 'a'"),
    ([True], "got True"),
    ([None], "got None"),
    (np.array([[1, 2], [3, 4]]), r"prompt token 0 must be an integer in .* got \[1, 2\]"),
    (np.array(3), "a prompt must be text or a list of token ids"),
    (np.array([1.0]), "got 1.0"),
    (torch.tensor([1.5]), "got 1.5"),
    (torch.tensor([True]), "got True"),
    (b"abc", "a prompt must be text or a list of token ids, got b'abc'"),
    (17, "a prompt must be text or a list of token ids, got 17"),
    (None, "a prompt must be text or a list of token ids, got None"),
    ([1] * 64, "at most max_seq_len - 1 = 63 tokens .* got 64; .*max_seq_len=65"),
    ([1] * 50, "without chunking a prompt must fit one step, max_num_tokens=48, got 50 tokens"),
]


@pytest.mark.parametrize(("prompt", "message"), BAD_PROMPTS, ids=[m[:24] for _p, m in BAD_PROMPTS])
def test_a_bad_prompt_is_refused_and_the_others_go_on(llm, prompt, message):
    if isinstance(prompt, list) and prompt == [1, 260, 3]:
        prompt = [1, llm.loaded.config.vocab_size, 3]
    good = llm.submit("good", SamplingParams(max_tokens=3))
    with pytest.raises(RequestError, match=message) as caught:
        llm.submit(prompt)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, StepscopeError)
    with pytest.raises(RequestError, match=message):
        llm.generate(["fine", prompt])
    with pytest.raises(RequestError, match=message):
        llm.stream(prompt)
    outputs = []
    while llm.has_unfinished:
        outputs += llm.step()
    assert [out.request_id for out in outputs] == [good], "nothing of the refused calls was enqueued"


def test_params_of_another_length_are_refused(llm):
    with pytest.raises(RequestError, match="as many as there are prompts, 2, got 3"):
        llm.generate(["a", "b"], [SamplingParams()] * 3)
    with pytest.raises(RequestError, match="params must be a SamplingParams, got"):
        llm.generate(["a"], [{"max_tokens": 3}])
    with pytest.raises(RequestError, match="prompts must be"):
        llm.generate(17)
    with pytest.raises(RequestError, match="params must be"):
        llm.generate(["a"], 3)


def test_more_logprobs_than_the_vocabulary_are_refused(llm):
    with pytest.raises(RequestError, match="logprobs must be at most the vocabulary size"):
        llm.submit("a", SamplingParams(logprobs=10**6))


def test_a_list_of_ids_in_place_of_a_list_of_prompts_is_explained(llm):
    with pytest.raises(RequestError, match=r"got the token ids \[1, 2, 3\]; write \[\[\.\.\.\]\] for one"):
        llm.generate([1, 2, 3])


def test_an_unknown_model_or_device_is_refused():
    with pytest.raises(ModelError, match="tiny"):
        LLM("tinny", CONFIG)
    with pytest.raises(ConfigError, match="device"):
        LLM("tiny", EngineConfig(device="tpu"))
    for config in ({"device": "cpu"}, {}, 0, ""):
        with pytest.raises(ConfigError, match="config must be an EngineConfig"):
            LLM("tiny", config)
    with pytest.raises(ConfigError, match="decisions must be a Decisions record"):
        LLM("tiny", CONFIG, decisions={})
    with pytest.raises(ConfigError, match="stream_lag must be an integer of at least 0, got 'x'"):
        LLM("tiny", CONFIG, stream_lag="x")


def test_a_prompt_of_millions_is_refused_by_its_length_alone(llm):
    with pytest.raises(
        RequestError, match=r"at most max_seq_len - 1 = \d+ tokens \(one is generated\), got 10000000; "
    ):
        llm.submit(range(10**7))
    for model in (None, 5, b"tiny"):
        with pytest.raises(ModelError, match="a model is named by text or by a path, got"):
            LLM(model, CONFIG)
    for model in ("x" * 5000, "~nobody-at-all/x", "a\0b", ""):
        with pytest.raises(ModelError, match="A model is a name"):
            LLM(model, CONFIG)


def test_a_pool_that_cannot_hold_one_sequence_is_refused_with_both_fixes():
    config = EngineConfig(device="cpu", max_seq_len=64, kv_cache=KVCacheConfig(num_blocks=3))
    with pytest.raises(ConfigError, match=r"needs 4 blocks of 16 tokens, got 3; .*num_blocks=4.*max_seq_len=48"):
        LLM("tiny", config)


def test_a_closed_engine_says_so():
    llm = LLM("tiny", CONFIG)
    llm.close()
    llm.close()
    assert not llm.has_unfinished
    for call in (
        lambda: llm.generate([]),
        lambda: llm.generate("a"),
        lambda: llm.submit("a"),
        llm.step,
        lambda: llm.abort(0),
        llm.__enter__,
    ):
        with pytest.raises(ClosedError, match="was closed"):
            call()


def test_the_smallest_pool_still_finishes_everyone():
    config = EngineConfig(
        device="cpu",
        max_seq_len=32,
        kv_cache=KVCacheConfig(num_blocks=2),
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
    )
    with LLM("tiny", config) as llm:
        outputs = llm.generate([[i + 1] * 5 for i in range(6)], SamplingParams(max_tokens=20))
        assert all(len(out.token_ids) == 20 for out in outputs)
        llm.check()


def test_of_two_threads_each_is_served_or_refused_and_the_engine_stays_whole(llm):
    outcomes = []

    def work():
        try:
            outcomes.append([len(out.token_ids) for out in llm.generate(["a"] * 3, SamplingParams(max_tokens=40))])
        except Exception as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 3
    assert all(outcome in ([40, 40, 40], ReentryError) for outcome in outcomes)
    assert [40, 40, 40] in outcomes
    llm.check()
    assert not llm.has_unfinished


def test_an_id_that_cannot_be_aborted_is_quoted_in_short(llm):
    with pytest.raises(UnknownRequestError) as refused:
        llm.abort("x" * 10**6)
    assert str(refused.value).endswith("xxx' is not waiting or running (no live requests)")
    assert len(str(refused.value)) < 150


def test_released_graphs_leave_an_engine_that_serves_the_same_tokens_eagerly():
    config = EngineConfig(device="cpu", max_seq_len=32, cuda_graph=CudaGraphConfig(batch_sizes=(1, 2)))
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    with LLM("tiny", config) as llm:
        before = llm.generate([[1, 2], [3]], params)
        assert llm.graphs.captured_keys
        llm.release_graphs()
        llm.release_graphs()
        assert not llm.graphs.captured_keys
        after = llm.generate([[1, 2], [3]], params)
        llm.check()
    assert [out.token_ids for out in before] == [out.token_ids for out in after]
    with pytest.raises(ClosedError):
        llm.release_graphs()
