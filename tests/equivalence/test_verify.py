"""Drafts never change the text: whatever the caller guesses, every combination gives the tokens of the plainest path.

The guesses only decide how many steps it takes; that they do is asserted too.
"""

import collections
import dataclasses
import random

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.cuda_graphs.select import Selection
from engine.executor.records import SampledTokens
from engine.inputs.host_inputs import HostInputs
from engine.probe import Stage
from engine.scheduled import ScheduledRequests
from tests.equivalence.margin import first_difference, reference_cases
from tests.equivalence.table import PLAINEST, tiny_cases

K = 4


@dataclasses.dataclass(frozen=True)
class Row:
    """One combination. budget: max_num_tokens with chunking on. captured: whether verify steps have graphs."""

    graphs: bool = True
    backend: str = "native"
    padding: bool = True
    overlap: bool = False
    captured: bool = True
    budget: int | None = None
    num_blocks: int | None = None
    tokens_per_block: int = 16
    policy: str = "guaranteed_no_evict"

    def config(self, device: str = "cpu") -> EngineConfig:
        return EngineConfig(
            device=device,
            dtype="float32",
            max_seq_len=128,
            attention_backend=self.backend,
            overlap=self.overlap,
            scheduler=SchedulerConfig(
                max_batch_size=8,
                max_num_tokens=self.budget or 512,
                chunking=None if self.budget is None else "fcfs",
                draft_len=K,
                capacity_policy=self.policy,
            ),
            kv_cache=KVCacheConfig(num_blocks=self.num_blocks, tokens_per_block=self.tokens_per_block),
            cuda_graph=CudaGraphConfig(
                enabled=self.graphs,
                enable_padding=self.padding,
                batch_sizes=(1, 2, 4, 8),
                draft_lens=(K,) if self.captured else (),
            ),
        )


class Watch:
    """Counts what the steps were."""

    def __init__(self) -> None:
        self.steps = self.verify_steps = self.accepted = 0
        self.reasons = collections.Counter()
        self.draft_graphs = self.derived = 0
        self.paused = 0

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if isinstance(value, ScheduledRequests):
            self.steps += 1
            self.verify_steps += value.draft_len > 0
            self.paused += len(value.paused_requests)
        elif isinstance(value, HostInputs):
            self.derived += value.drafts is not None and any(value.drafts.previous_draft_lens)
        elif isinstance(value, Selection):
            self.reasons[value.reason] += 1
            self.draft_graphs += value.key is not None and value.key.draft_len > 0
        elif isinstance(value, SampledTokens):
            self.accepted += sum(count for _, count in value.num_accepted)


def guess_of(kind: str, ids: tuple[int, ...], seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    if kind == "perfect":
        return ids
    if kind == "too long":
        return (*ids, *[draw.randrange(1, 250) for _ in range(200)])
    if kind == "wrong":
        return tuple((token + 1) % 250 for token in ids)
    if kind == "random":
        return tuple(draw.randrange(1, 250) if draw.random() < 0.25 else token for token in ids)
    return ()


def serve(llm: LLM, cases, kind: str, watch: Watch) -> list:
    """Serve every case in one continuous batch that a request joins at every step."""
    llm.set_probe(watch)
    ids, outputs = [], []
    for seed, case in enumerate(cases):
        params = SamplingParams(max_tokens=len(case.greedy_ids), ignore_eos=True)
        guess = guess_of(kind, case.greedy_ids, seed)
        ids.append(llm.submit(list(case.prompt_ids), params, draft_tokens=guess))
        outputs += llm.step()
    while llm.has_unfinished:
        outputs += llm.step()
        llm.check()
    by_id = {output.request_id: output for output in outputs}
    return [by_id[request_id] for request_id in ids]


def assert_same_text(cases, outputs) -> None:
    compared = 0
    for case, output in zip(cases, outputs, strict=True):
        assert output.finish_reason == "length", output.error
        assert len(output.token_ids) == len(case.greedy_ids)
        tie = first_difference(case, 0, output.token_ids)
        compared += len(case.greedy_ids) if tie is None else tie
    assert compared >= 0.8 * sum(len(case.greedy_ids) for case in cases)


@pytest.fixture(scope="module")
def cases():
    return tiny_cases("cpu")


@pytest.fixture(scope="module")
def plain_steps(cases):
    """Steps without drafts."""
    watch = Watch()
    with LLM("tiny", Row().config()) as llm:
        assert_same_text(cases, serve(llm, cases, "empty", watch))
    assert (watch.verify_steps, watch.accepted) == (0, 0)
    return watch.steps


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
@pytest.mark.parametrize("kind", ["perfect", "too long", "wrong", "random"])
def test_every_guess_gives_the_same_text_and_a_right_one_fewer_steps(cases, plain_steps, kind, overlap):
    watch = Watch()
    with LLM("tiny", Row(overlap=overlap).config()) as llm:
        assert_same_text(cases, serve(llm, cases, kind, watch))
    assert watch.verify_steps > 0
    assert watch.draft_graphs > 0
    assert bool(watch.derived) == overlap, "verify rows behind verify rows that nobody has read"
    if kind == "wrong":
        assert watch.accepted == 0
    else:
        assert watch.accepted > 20
        assert watch.steps < plain_steps - 5
    if kind in ("perfect", "too long"):
        assert watch.steps <= plain_steps / 2


ROWS = [
    Row(graphs=False, backend="vanilla"),
    Row(graphs=False, overlap=True),
    Row(backend="vanilla"),
    Row(backend="vanilla", overlap=True, padding=False),
    Row(padding=False),
    Row(captured=False),
    Row(captured=False, overlap=True),
    Row(budget=48),
    Row(budget=24, overlap=True),
    Row(budget=24, backend="vanilla"),
    Row(num_blocks=8),
    Row(num_blocks=8, overlap=True),
]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_combination_verifies_to_the_tokens_of_the_plainest_path(cases, row):
    watch = Watch()
    with LLM("tiny", row.config()) as llm:
        assert_same_text(cases, serve(llm, cases, "random", watch))
    assert watch.accepted > 0
    assert bool(watch.draft_graphs) == (row.graphs and row.captured)
    if row.graphs:
        assert bool(watch.reasons["DRAFT_LEN_NOT_CAPTURED"]) == (not row.captured)


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
def test_a_request_that_is_paused_among_its_drafts_goes_on_with_the_same_guess(overlap):
    prompts = [[3 + at, 40 + at, 7] for at in range(6)]
    with LLM("tiny", PLAINEST.config("cpu")) as llm:
        cases = reference_cases(llm, prompts, [60] * 6)
    row = Row(overlap=overlap, num_blocks=32, tokens_per_block=4, policy="max_utilization")
    watch = Watch()
    with LLM("tiny", row.config()) as llm:
        assert_same_text(cases, serve(llm, cases, "random", watch))
    assert watch.paused > 0
    assert watch.accepted > 60


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlap"])
def test_a_sampled_text_is_that_without_drafts(overlap):
    prompts = [[5, 9, 33], [7] * 17, [4, 8, 15, 16, 23, 42]]
    params = [SamplingParams(max_tokens=20, temperature=1.0, top_k=40, seed=seed) for seed in (1, 2, 3)]
    with LLM("tiny", Row(overlap=overlap).config()) as llm:
        plain = [output.token_ids for output in llm.generate(prompts, params)]
        watch = Watch()
        llm.set_probe(watch)
        ids = [llm.submit(p, q, draft_tokens=guess) for p, q, guess in zip(prompts, params, plain, strict=True)]
        outputs = {}
        while llm.has_unfinished:
            outputs |= {output.request_id: output for output in llm.step()}
    assert [outputs[request_id].token_ids for request_id in ids] == plain
    assert watch.accepted > 30


def test_a_text_that_ends_inside_the_drafts_ends_there(cases):
    case = max(cases, key=lambda one: len(one.greedy_ids))
    stop = case.greedy_ids[6]
    params = SamplingParams(max_tokens=30, stop_token_ids=(stop,), ignore_eos=True)
    with LLM("tiny", Row().config()) as llm:
        (plain,) = llm.generate([list(case.prompt_ids)], params)
        watch = Watch()
        llm.set_probe(watch)
        llm.submit(list(case.prompt_ids), params, draft_tokens=case.greedy_ids)
        outputs = []
        while llm.has_unfinished:
            outputs += llm.step()
        llm.check()
    assert outputs[0].token_ids == plain.token_ids
    assert outputs[0].finish_reason == plain.finish_reason == "stop"
    assert watch.accepted > 0
