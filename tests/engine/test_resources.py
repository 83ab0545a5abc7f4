import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.errors import NoFreeSlotsError, OutOfBlocksError
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.resources import Reservation, ResourceManager
from engine.scheduled import BudgetUse, ScheduledRequests, context_span, generation_span
from tests.engine.live_requests import World, running, waiting


def make(num_blocks=8, num_slots=4):
    kv = KVCacheManager(num_blocks=num_blocks, tokens_per_block=4, max_seq_len=64)
    return ResourceManager(kv, SeqSlotManager(num_slots))


def step(*contexts, generations=()):
    """A step in which each context runs its whole remaining prompt."""
    spans = tuple(context_span(request, request.context_remaining_length) for request in contexts)
    decodes = tuple(generation_span(request) for request in generations)
    return ScheduledRequests(spans, decodes, (), (), BudgetUse(0, 64, 0, 8))


def snapshot(resources):
    kv, slots = resources.kv_cache, resources.seq_slots
    tables = {request_id: kv.block_table(request_id) for request_id in kv.live_request_ids}
    return tables, kv._pool.free_ids(), {i: slots.slot_of(i) for i in range(20) if slots.has(i)}, slots.num_free


def test_a_first_chunk_gets_a_slot_and_the_blocks_of_its_rows():
    resources = make()
    assert resources.prepare(step(waiting(7, prompt_len=6))) == Reservation(
        credits=(), slots=((7, 0),), new_blocks=((7, (0, 1)),), block_copies=(), num_free_blocks=6
    )
    resources.check()


def test_a_decode_row_inside_its_block_is_granted_nothing_new():
    resources = make()
    resources.prepare(step(waiting(7, prompt_len=6)))
    decoding = running(7, prompt_len=6, generated=1)  # its newest token goes to position 6
    assert resources.prepare(step(generations=[decoding])) == Reservation(num_free_blocks=6)
    decoding = running(7, prompt_len=6, generated=3)
    assert resources.prepare(step(generations=[decoding])).new_blocks == ((7, (2,)),)
    resources.check()


def test_a_step_short_of_blocks_gets_nothing_at_all():
    resources = make(num_blocks=5)
    resources.prepare(step(waiting(1, prompt_len=8)))
    before = snapshot(resources)
    decoding = running(1, prompt_len=8)
    with pytest.raises(
        OutOfBlocksError, match="request 3 needs 2 more KV blocks to hold 8 tokens, and 0 of 5 are free"
    ):
        resources.prepare(step(waiting(2, prompt_len=12), waiting(3, prompt_len=8), generations=[decoding]))
    assert snapshot(resources) == before
    resources.check()


def test_a_step_short_of_slots_gets_nothing_at_all():
    resources = make(num_slots=2)
    resources.prepare(step(waiting(1, prompt_len=4)))
    before = snapshot(resources)
    with pytest.raises(NoFreeSlotsError):
        resources.prepare(step(waiting(2, prompt_len=4), waiting(3, prompt_len=4)))
    assert snapshot(resources) == before
    resources.check()


def test_an_interrupt_while_reserving_gives_everything_back(monkeypatch):
    resources = make()
    reserve = resources.kv_cache.reserve

    def interrupted(request_id, num_tokens, extra=0):
        if request_id == 2:
            raise KeyboardInterrupt
        return reserve(request_id, num_tokens, extra)

    monkeypatch.setattr(resources.kv_cache, "reserve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        resources.prepare(step(waiting(1, prompt_len=4), waiting(2, prompt_len=4)))
    assert snapshot(resources) == ({}, frozenset(range(8)), {}, 4)
    resources.check()


def test_rollback_returns_to_the_moment_before_prepare():
    resources = make()
    resources.prepare(step(waiting(1, prompt_len=8)))
    before = snapshot(resources)
    reservation = resources.prepare(step(waiting(2, prompt_len=5), generations=[running(1, prompt_len=8)]))
    assert snapshot(resources) != before
    resources.rollback(reservation)
    assert snapshot(resources) == before
    resources.check()


def test_freeing_gives_back_blocks_and_slot_and_forgives_strangers():
    resources = make()
    resources.prepare(step(waiting(1, prompt_len=8)))
    resources.free(1)
    resources.free(1)
    resources.free(99)
    assert snapshot(resources) == ({}, frozenset(range(8)), {}, 4)
    resources.check()


class ServingMachine(RuleBasedStateMachine):
    """Arrivals, steps, rolled back steps and aborts in any order leak nothing and never run out."""

    def __init__(self):
        super().__init__()
        self.world = World(num_blocks=12, max_batch_size=3, max_num_tokens=9)
        self.arrived = 0

    @rule(prompt_len=st.integers(1, 30), max_tokens=st.integers(1, 12))
    def arrive(self, prompt_len, max_tokens):
        self.world.active.append(waiting(self.arrived, prompt_len=prompt_len, max_tokens=max_tokens))
        self.arrived += 1

    @precondition(lambda self: self.world.active)
    @rule()
    def run(self):
        assert self.world.step().spans, "live requests, and nothing ran"

    @rule()
    def fail(self):
        before = snapshot(self.world.resources)
        scheduled = self.world.schedule()
        self.world.resources.rollback(self.world.resources.prepare(scheduled))
        assert snapshot(self.world.resources) == before
        assert self.world.schedule() == scheduled

    @precondition(lambda self: self.world.active)
    @rule(which=st.integers(0, 100))
    def abort(self, which):
        self.world.finish(self.world.active[which % len(self.world.active)])

    @invariant()
    def only_live_requests_hold_anything(self):
        self.world.check()
        live = {request.request_id for request in self.world.active}
        assert self.world.kv.live_request_ids <= live
        holders = {i for i in range(self.arrived) if self.world.resources.seq_slots.has(i)}
        assert holders == self.world.kv.live_request_ids


TestServingMachine = ServingMachine.TestCase
TestServingMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
