"""Two open steps, verify rows and the ledger, as a recorder sees them in real runs."""

import itertools

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.llm import LLM
from lab.ledger import LedgerState
from lab.recorder import Recorder, Sights
from lab.session import attach, make_recorder
from lab.snapshot import ROW_SOURCES, STAGES
from tests.lab.sample_steps import sample_header

PARAMS = SamplingParams(max_tokens=9, ignore_eos=True)
PROMPT = "Hello there, this is a prompt"


def config(**changes):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64, draft_len=3),
        kv_cache=KVCacheConfig(num_blocks=24, tokens_per_block=8, host_blocks=4),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), draft_lens=(3,)),
        **changes,
    )


@pytest.fixture(scope="module")
def overlapped():
    with LLM("tiny", config(overlap=True)) as llm, attach(llm, mode="full") as recorder:
        llm.generate([PROMPT, "abc"], [PARAMS, SamplingParams(max_tokens=5, ignore_eos=True)])
        recorder.check()
        return recorder.trace


@pytest.fixture(scope="module")
def verified():
    """One request whose sixth guess is wrong, beside one without any, in an engine that cached its prompt."""
    with LLM("tiny", config()) as llm:
        guess = list(llm.generate(PROMPT, PARAMS)[0].token_ids)
        guess[5] = (guess[5] + 1) % 256
        with attach(llm, mode="full") as recorder:
            llm.submit(PROMPT, PARAMS, draft_tokens=guess)
            llm.submit("abc", PARAMS, cache_salt="tenant")
            while llm.has_unfinished:
                llm.step()
            return recorder.trace


def test_a_token_that_was_on_the_device_is_filled_in_with_the_step_that_sampled_it(overlapped):
    for before, step in zip(overlapped.steps, overlapped.steps[1:], strict=False):
        flight = step.graph.flight
        assert flight.unread == (before.step,)
        real = int((step.rows.source_slots >= 0).sum())
        assert flight.late == ((0, real, before.step),)
        sampled = dict(before.outcome.tokens)
        for row in range(real):
            assert step.rows.token_ids[row] == sampled[int(step.rows.request_ids[row])]
        assert step.rows.token_ids.tolist() == step.buffer("input_ids").values.tolist()


def test_the_next_step_is_launched_before_the_last_one_is_read(overlapped):
    launch, read = STAGES.index("RAN"), STAGES.index("SAMPLED")
    orders = [step.graph.flight.order for step in overlapped.steps]
    for before, order in itertools.pairwise(orders):
        assert order[launch] == before[read] - 1


def test_without_overlap_each_step_is_read_before_the_next_is_laid_out(full_trace):
    for step in full_trace.steps:
        assert (step.graph.flight.unread, step.graph.flight.late) == ((), ())
        assert list(step.graph.flight.order) == sorted(step.graph.flight.order)


def test_a_request_that_ended_leaves_one_wasted_row_and_no_token(overlapped):
    wasted = [
        (step.step, span.request_id)
        for step in overlapped.steps
        for span in step.schedule.spans
        if span.num_logit_rows and span.request_id not in dict(step.outcome.tokens)
    ]
    assert len(wasted) <= 2
    tokens = [token for step in overlapped.steps for token in step.outcome.tokens]
    assert sum(request_id == 0 for request_id, _ in tokens) == 9


def test_verify_rows_say_their_drafts_and_how_many_were_accepted(verified):
    step = verified.steps[1]
    assert step.schedule.draft_len == 3
    assert [len(span.drafts) for span in step.schedule.spans] == [3, 3]
    assert [ROW_SOURCES[code] for code in step.rows.sources[:4]] == ["host", "draft", "draft", "draft"]
    assert dict(step.outcome.accepted) == {1: 3, 2: 0}
    assert sum(request_id == 1 for request_id, _ in step.outcome.tokens) == 4
    assert [count for one in verified.steps for rid, count in one.outcome.accepted if rid == 1][:2] == [3, 0]


def test_a_credit_and_a_copied_block_are_in_the_step_that_used_them(verified):
    first = verified.steps[0]
    [(request_id, tokens)] = first.reservation.credits
    assert (request_id, tokens) == (1, 28)
    assert [(copy.kind, copy.num_tokens) for copy in first.reservation.copies] == [("DEVICE", 4)]


def test_the_header_has_what_a_request_guessed(verified):
    guessed, salted = verified.header.requests
    assert len(guessed.draft_tokens) == 9
    assert (salted.draft_tokens, salted.cache_salt) == ((), "tenant")
    hidden = verified.redact()
    assert [request.draft_tokens for request in hidden.header.requests] == [None, ()]
    assert hidden.header.requests[1].cache_salt is None
    assert {draft for one in hidden.steps for span in one.schedule.spans for draft in span.drafts} == {-1}
    ledgers = [one.reservation.ledger for one in hidden.steps] + [one.outcome.ledger for one in hidden.steps]
    assert all(node.tokens == () and node.label == "" for ledger in ledgers for node in ledger.added)


def test_the_changes_add_up_to_the_engines_own_ledger():
    with LLM("tiny", config()) as llm, attach(llm) as recorder:
        for at in range(3):
            llm.submit(PROMPT + "!" * at, PARAMS)
        while llm.has_unfinished:
            llm.step()
            state = recorder.trace.ledger(-1)
            state.check()
            assert state.num_free == llm.kv_cache.num_free_blocks
            held = {block: ids for block, ids in state.owners.items() if max(ids) >= 0}
            tables = {i: llm.kv_cache.block_table(i) for i in llm.kv_cache.live_request_ids if i < 1 << 62}
            wanted = {}
            for request_id in sorted(tables):
                for block in tables[request_id]:
                    wanted[block] = (*wanted.get(block, ()), request_id)
            assert held == wanted
        assert len(state.nodes) == sum(1 for _ in llm.kv_cache.ledger.tree.nodes())


def test_a_ring_that_let_steps_go_still_shows_the_whole_ledger():
    with LLM("tiny", config()) as llm:
        short, whole = make_recorder(llm, limit=2), None
        llm.set_probe(short)
        llm.generate([PROMPT, "abc"], PARAMS)
        llm.set_probe(None)
        whole = make_recorder(llm)
        state = short.trace.ledger(-1)
        state.check()
        assert short.num_dropped
        fresh = LedgerState()
        fresh.apply(whole._ledger_changes())
        assert state.owners == fresh.owners
        assert len(state.nodes) == len(fresh.nodes)


def test_changes_of_a_step_that_was_undone_belong_to_the_next():
    class Stumbles:
        def __init__(self, recorder):
            self.recorder, self.is_done = recorder, False

        def emit(self, stage, step, value):
            self.recorder.emit(stage, step, value)
            if stage.name == "RAN" and step == 1 and not self.is_done:
                self.is_done = True
                message = "stumbled"
                raise RuntimeError(message)

    with LLM("tiny", config()) as llm:
        recorder = make_recorder(llm)
        llm.set_probe(Stumbles(recorder))
        llm.submit(PROMPT, PARAMS)
        llm.step()
        with pytest.raises(RuntimeError, match="stumbled"):
            llm.step()
        while llm.has_unfinished:
            llm.step()
        state = recorder.trace.ledger(-1)
        state.check()
        assert state.num_free == llm.kv_cache.num_free_blocks


class Clock:
    """A clock whose marks are a tenth of a second apart."""

    def __init__(self):
        self.count = 0

    def mark(self):
        self.count += 1
        return self.count

    def microseconds(self, begin, end):
        return 100_000 * (end - begin)


def test_device_times_come_from_the_marks_around_each_forward(tiny_llm):
    recorder = Recorder(lambda _: sample_header(), sights=Sights(clock=Clock()))
    tiny_llm.set_probe(recorder)
    tiny_llm.generate("abc", SamplingParams(max_tokens=3, ignore_eos=True))
    tiny_llm.set_probe(None)
    spans = [step.graph.flight.device_us for step in recorder.steps]
    assert spans == [(0, 100_000), (200_000, 300_000), (400_000, 500_000)]
    assert all(step.reservation.ledger is None for step in recorder.steps)
