import pytest

from engine import LLM, EngineConfig
from engine.config import CudaGraphConfig, SamplingParams, SchedulerConfig
from engine.errors import ConfigError
from lab.bench import replay
from lab.bench.decode import prompt_ids
from lab.bench.replay import generate_rates, median_rates, replay_seconds

CONFIG = EngineConfig(
    device="cpu",
    max_seq_len=32,
    scheduler=SchedulerConfig(max_batch_size=3, max_num_tokens=32),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 3)),
)
PROMPTS = prompt_ids(3, 6, 256)


@pytest.fixture(scope="module")
def llm():
    with LLM("tiny", CONFIG) as engine:
        yield engine


def test_a_replay_computes_the_middle_step_again(llm, monkeypatch):
    lengths = []

    def run(fn, device, *, rounds, calls):
        graph = fn.__self__
        for _ in range(rounds * calls):
            fn()
        lengths.extend(llm.graphs.metadata_for(_key(llm, 3)).kv_lens[:3].tolist())
        first = graph.outputs.clone()
        fn()
        assert graph.outputs.equal(first)
        return 0.25

    def _key(llm, batch):
        return next(key for key in llm.graphs.captured_keys if key.batch_size == batch and key.sample_mode == "greedy")

    monkeypatch.setattr(replay, "median_of", run)
    assert replay_seconds(llm, PROMPTS, num_decodes=4, rounds=2, replays=2) == 0.25
    assert lengths == [6 + 4] * 3
    assert not llm.has_unfinished
    assert llm.probe is None


def test_a_batch_without_a_graph_is_refused():
    eager = EngineConfig(device="cpu", max_seq_len=32, cuda_graph=CudaGraphConfig(enabled=False))
    message = "of 3 requests must replay a graph to be timed, it ran eager"
    with LLM("tiny", eager) as plain, pytest.raises(ConfigError, match=message):
        replay_seconds(plain, PROMPTS, num_decodes=2, rounds=1, replays=1)


def test_generate_is_timed_and_its_decode_unobserved(llm):
    rates, tokens = generate_rates(llm, PROMPTS, 5, rounds=2)
    assert rates.decode > 0
    assert rates.whole > 0
    assert llm.probe is None
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    assert tokens == [list(output.token_ids) for output in llm.generate(PROMPTS, params)]


def test_decode_leaves_the_first_tokens_and_the_prefill_out(llm, monkeypatch):
    warm_up, counted = (0.0, 1.0, 2.0), (100.0, 106.0, 108.0)  # the call, the first commit, the return
    now = iter([*warm_up, *counted])
    monkeypatch.setattr(replay.time, "perf_counter", lambda: next(now))
    rates, _ = generate_rates(llm, PROMPTS, 5, rounds=1)
    assert (rates.decode, rates.whole) == (3 * 4 / 2.0, 3 * 5 / 8.0)


def test_the_median_round_counts():
    rates = median_rates([(8.0, 2.0), (16.0, 4.0), (4.0, 1.0)], batch=2, new_tokens=5)
    assert (rates.decode, rates.whole) == (2 * 4 / 2.0, 2 * 5 / 8.0)
