"""Verify rows through the whole runner: the text is that of one row a step, in fewer steps."""

import random

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.reasons import FallOff
from tests.engine.runners.verify_world import World

PROMPTS = [[5, 9, 33], [7] * 17, [4, 8, 15, 16, 23, 42]]
NEW = (21, 14, 18)
SAMPLED = SamplingParams(temperature=1.1, top_k=30, seed=7)


def config(*, K=3, graphs=True, drafts=True, backend="native", padding=True, modes=("greedy", "full"), **more):
    return EngineConfig(
        device="cpu",
        max_seq_len=40,
        attention_backend=backend,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64, draft_len=K),
        kv_cache=KVCacheConfig(tokens_per_block=4),
        cuda_graph=CudaGraphConfig(
            enabled=graphs,
            batch_sizes=(1, 2, 4),
            enable_padding=padding,
            sample_modes=modes,
            draft_lens=(K,) if graphs and drafts else (),
        ),
        **more,
    )


def serve(world, params, guesses):
    requests = [world.submit(prompt, one, guess) for prompt, one, guess in zip(PROMPTS, params, guesses, strict=True)]
    counts = world.run()
    return [tuple(request.generated) for request in requests], counts


def with_lengths(params):
    return [
        SamplingParams(max_tokens=n, temperature=params.temperature, top_k=params.top_k, seed=params.seed) for n in NEW
    ]


@pytest.fixture(scope="module", params=["greedy", "sampled"])
def workload(request):
    """Params for each prompt, and the text without drafts."""
    params = with_lengths(SamplingParams() if request.param == "greedy" else SAMPLED)
    texts, counts = serve(World(config(drafts=False)), params, [()] * 3)
    assert [len(text) for text in texts] == list(NEW)
    assert counts.accepted == 0
    return params, texts, counts.steps


def guesses_of(kind, texts):
    draw = random.Random(3)
    if kind == "perfect":
        return texts
    if kind == "too long":
        return [(*text, *[draw.randrange(250) for _ in range(40)]) for text in texts]
    if kind == "short":
        return [text[:5] for text in texts]
    if kind == "wrong":
        return [tuple((token + 1) % 250 for token in text) for text in texts]
    if kind == "random":
        return [tuple(draw.randrange(250) if draw.random() < 0.3 else token for token in text) for text in texts]
    return [texts[0], (), texts[2]]  # one request without a guess rides along


KINDS = ("perfect", "too long", "short", "wrong", "random", "partly empty")


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_that_without_drafts_and_right_guesses_save_steps(workload, kind, overlap):
    params, texts, plain_steps = workload
    got, counts = serve(World(config(), overlap=overlap), params, guesses_of(kind, texts))
    assert got == texts
    assert "replay" in counts.paths
    assert (counts.accepted > 0) == (kind != "wrong")
    if kind in ("perfect", "too long"):
        assert counts.steps <= 2 + -(-max(NEW) // 4) + overlap
    if kind == "wrong":
        assert counts.steps <= plain_steps + overlap
    assert (counts.derived > 0) == overlap, "only unread verify rows have to be corrected"


@pytest.mark.parametrize("backend", ["native", "vanilla"])
@pytest.mark.parametrize("path", [(False, False, False), (True, False, True), (True, True, False)])
@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
def test_every_path_verifies_alike(workload, backend, path, overlap):
    (params, texts, _), (graphs, drafts, padding) = workload, path
    settings = config(graphs=graphs, drafts=drafts, padding=padding, backend=backend)
    got, counts = serve(World(settings, overlap=overlap), params, guesses_of("random", texts))
    assert got == texts
    assert counts.accepted > 0
    expected = FallOff.DRAFT_LEN_NOT_CAPTURED if graphs else FallOff.GRAPHS_DISABLED
    assert (expected in counts.reasons) == (not drafts)
    if drafts:
        assert FallOff.NO_EXACT_BUCKET_PADDING_OFF in counts.reasons, "three requests, and no padding"


@pytest.mark.parametrize("K", [1, 5, 9])
def test_every_draft_length_gives_the_text_up_to_the_last_position_of_the_sequence(workload, K):
    params, _texts, _ = workload
    params = [SamplingParams(max_tokens=40 - len(p), temperature=q.temperature, top_k=q.top_k, seed=q.seed)
              for p, q in zip(PROMPTS, params, strict=True)]  # fmt: skip
    whole, _ = serve(World(config(K=K, drafts=False)), params, [()] * 3)
    for overlap, guesses in ((False, whole), (True, [text[:-1] for text in whole])):
        got, counts = serve(World(config(K=K), overlap=overlap), params, guesses)
        assert got == whole
        assert counts.accepted > 0


def test_a_late_stream_changes_nothing(workload):
    params, texts, _ = workload
    for overlap in (False, True):
        world = World(config(), overlap=overlap, stream_lag=40)
        got, counts = serve(world, params, guesses_of("random", texts))
        assert got == texts
        assert counts.accepted > 0


def test_a_request_with_a_penalty_rides_along_and_accepts_nothing():
    params = [
        SamplingParams(max_tokens=12, repetition_penalty=1.3),
        SamplingParams(max_tokens=12),
        SamplingParams(max_tokens=12, temperature=0.8, seed=1),
    ]
    texts, _ = serve(World(config(drafts=False)), params, [()] * 3)
    for overlap in (False, True):
        got, counts = serve(World(config(), overlap=overlap), params, texts)
        assert got == texts
        assert counts.accepted > 0
        alone, counts = serve(World(config(), overlap=overlap), params, [texts[0], (), ()])
        assert alone == texts
        assert counts.accepted == 0


def test_prompts_and_verify_rows_share_a_step(workload):
    params, texts, _ = workload
    world = World(config())
    first = world.submit(PROMPTS[0], params[0], texts[0])
    world.step()
    world.step()
    others = [world.submit(p, q, t) for p, q, t in zip(PROMPTS[1:], params[1:], texts[1:], strict=True)]
    counts = world.run()
    assert [tuple(request.generated) for request in (first, *others)] == texts
    assert FallOff.HAS_CONTEXT_UNPROMOTED in counts.reasons[2:], "prompts came while the first one verified"
    assert counts.accepted > 0
