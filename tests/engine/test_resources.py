import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.errors import NoFreeSlotsError, OutOfBlocksError
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.resources import Claim, Reservation, ResourceManager
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


def prepare(resources, scheduled):
    """Claim, and reserve as if nothing were cached."""
    return resources.reserve(scheduled, resources.claim(scheduled))


def snapshot(resources):
    kv, slots = resources.kv_cache, resources.seq_slots
    tables = {request_id: kv.block_table(request_id) for request_id in kv.live_request_ids}
    return tables, kv.free_block_ids(), {i: slots.slot_of(i) for i in range(20) if slots.has(i)}, slots.num_free


def test_a_first_chunk_gets_a_slot_and_the_blocks_of_its_rows():
    resources = make()
    assert prepare(resources, step(waiting(7, prompt_len=6))) == Reservation(
        credits=(), slots=((7, 0),), new_blocks=((7, (0, 1)),), block_copies=(), num_free_blocks=6
    )
    resources.check()


def test_a_decode_row_inside_its_block_is_granted_nothing_new():
    resources = make()
    prepare(resources, step(waiting(7, prompt_len=6)))
    decoding = running(7, prompt_len=6, generated=1)  # its newest token goes to position 6
    assert prepare(resources, step(generations=[decoding])) == Reservation(num_free_blocks=6)
    decoding = running(7, prompt_len=6, generated=3)
    assert prepare(resources, step(generations=[decoding])).new_blocks == ((7, (2,)),)
    resources.check()


def test_a_step_short_of_blocks_gets_nothing_at_all():
    resources = make(num_blocks=5)
    prepare(resources, step(waiting(1, prompt_len=8)))
    before = snapshot(resources)
    decoding = running(1, prompt_len=8)
    with pytest.raises(
        OutOfBlocksError, match="request 3 needs 2 more KV blocks to hold 8 tokens, and 0 of 5 are free"
    ):
        prepare(resources, step(waiting(2, prompt_len=12), waiting(3, prompt_len=8), generations=[decoding]))
    assert snapshot(resources) == before
    resources.check()


def test_a_step_short_of_slots_gets_nothing_at_all():
    resources = make(num_slots=2)
    prepare(resources, step(waiting(1, prompt_len=4)))
    before = snapshot(resources)
    with pytest.raises(NoFreeSlotsError):
        prepare(resources, step(waiting(2, prompt_len=4), waiting(3, prompt_len=4)))
    assert snapshot(resources) == before
    resources.check()


def test_an_interrupt_while_reserving_gives_everything_back(monkeypatch):
    resources = make()
    reserve = resources.kv_cache.reserve

    def interrupted(request_id, num_tokens, **options):
        if request_id == 2:
            raise KeyboardInterrupt
        return reserve(request_id, num_tokens, **options)

    monkeypatch.setattr(resources.kv_cache, "reserve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepare(resources, step(waiting(1, prompt_len=4), waiting(2, prompt_len=4)))
    assert snapshot(resources) == ({}, frozenset(range(8)), {}, 4)
    resources.check()


def test_rollback_returns_to_the_moment_before_the_claim():
    resources = make()
    prepare(resources, step(waiting(1, prompt_len=8)))
    before = snapshot(resources)
    reservation = prepare(resources, step(waiting(2, prompt_len=5), generations=[running(1, prompt_len=8)]))
    assert snapshot(resources) != before
    resources.rollback(reservation)
    assert snapshot(resources) == before
    resources.check()


def test_freeing_gives_back_blocks_and_slot_and_forgives_strangers():
    resources = make()
    prepare(resources, step(waiting(1, prompt_len=8)))
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
        self.world.resources.rollback(prepare(self.world.resources, scheduled))
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


def finished(resources, request_id, prompt_len):
    """Run a whole prompt and end the request; its full blocks stay matchable."""
    scheduled = step(waiting(request_id, prompt_len=prompt_len))
    resources.reserve(scheduled, resources.claim(scheduled))
    resources.commit(request_id, prompt_len)
    resources.free(request_id)


def test_a_claim_gives_a_newcomer_its_slot_and_what_the_cache_holds():
    resources = make()
    finished(resources, 1, prompt_len=9)
    newcomer = waiting(2, prompt_len=10)
    claim = resources.claim(step(newcomer))
    assert claim == Claim(credits=((2, 8),), slots=((2, 0),), block_copies=())
    newcomer.context_current_position = 8
    granted = resources.reserve(step(newcomer), claim)
    assert granted == Reservation(
        credits=((2, 8),), slots=((2, 0),), new_blocks=((2, (2,)),), block_copies=(), num_free_blocks=5
    )
    resources.check()


def test_a_context_that_goes_on_and_a_generation_claim_nothing():
    resources = make()
    finished(resources, 1, prompt_len=8)
    goes_on = waiting(2, prompt_len=8, position=4)
    resources.seq_slots.assign(2)
    resources.kv_cache.reserve(2, 4)
    assert resources.claim(step(goes_on)) == Claim()
    assert resources.claim(step(generations=[running(3)])) == Claim()
    resources.check()


def test_a_claim_leaves_the_blocks_that_generations_of_the_step_need():
    resources = make(num_blocks=4)
    finished(resources, 1, prompt_len=12)
    decoding = running(2, prompt_len=4)
    resources.seq_slots.assign(2)
    resources.kv_cache.reserve(2, 4)
    scheduled = step(waiting(3, prompt_len=10), generations=[decoding])
    contexts = (context_span(scheduled.context_requests[0].request, 4),)
    scheduled = dataclasses.replace(scheduled, context_requests=contexts)
    claim = resources.claim(scheduled)
    assert claim.credits == ((3, 4),), "of three free blocks one is left for each row that needs one"
    resources.reserve(scheduled, claim)
    resources.check()


def test_an_undone_claim_leaves_the_cache_as_it_was():
    resources = make()
    finished(resources, 1, prompt_len=9)
    before, cached = snapshot(resources), resources.kv_cache.num_cached_blocks
    newcomer = waiting(2, prompt_len=10)
    resources.rollback(resources.claim(step(newcomer)))
    assert (snapshot(resources), resources.kv_cache.num_cached_blocks) == (before, cached)
    claim = resources.claim(step(newcomer))
    newcomer.context_current_position = 8
    resources.rollback(resources.reserve(step(newcomer), claim))
    assert (snapshot(resources), resources.kv_cache.num_cached_blocks) == (before, cached)
    resources.check()


def test_a_reservation_that_fails_undoes_the_claim_too():
    resources = make(num_blocks=4)
    finished(resources, 1, prompt_len=9)
    newcomer = waiting(2, prompt_len=40)
    before = snapshot(resources)
    claim = resources.claim(step(newcomer))
    with pytest.raises(OutOfBlocksError):
        resources.reserve(step(newcomer), claim)
    assert snapshot(resources) == before
    resources.check()


def test_a_forked_request_that_gets_its_slot_late_keeps_its_blocks_through_a_rollback():
    resources = make()
    prepare(resources, step(waiting(1, prompt_len=8)))
    resources.kv_cache.fork(1, 2, 8)
    child = waiting(2, prompt_len=9, position=8)
    resources.rollback(resources.reserve(step(child), resources.claim(step(child))))
    assert resources.kv_cache.block_table(2) == resources.kv_cache.block_table(1)
    resources.check()


def test_a_rewind_says_how_many_tokens_are_held():
    resources = make()
    prepare(resources, step(waiting(1, prompt_len=8)))
    resources.kv_cache.fork(1, 2, 8)
    assert resources.rewind(1, 8) == 8
    assert resources.rewind(1, 6) == 4, "the second block is also the other request's"
    assert resources.rewind(2, 6) == 6
    resources.check()


def test_a_decode_step_within_its_blocks_asks_nothing():
    resources = make()
    prepare(resources, step(waiting(1, prompt_len=5)))
    decoding = running(1, prompt_len=5, generated=2)
    version = resources.kv_cache.table_version
    assert resources.kv_cache.num_reserved_tokens(1) == 8
    scheduled = step(generations=[decoding])
    assert resources.reserve(scheduled, resources.claim(scheduled)) == Reservation(num_free_blocks=6)
    resources.commit(1, 6)
    assert resources.kv_cache.table_version == version


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["grow", "free", "rewind", "come", "look"]), st.integers(0, 5)), max_size=50))
def test_the_room_of_every_slot_follows_the_tables(actions):
    resources, lengths = make(num_blocks=60, num_slots=6), {}
    for action, request_id in actions:
        if action == "come" and request_id not in lengths:
            prepare(resources, step(waiting(request_id, prompt_len=3)))
            lengths[request_id] = 3
        elif action == "grow" and request_id in lengths:
            lengths[request_id] += 3
            resources.kv_cache.reserve(request_id, min(lengths[request_id], 40))
        elif action == "free" and lengths.pop(request_id, None):
            resources.free(request_id)
        elif action == "rewind" and request_id in lengths:
            resources.rewind(request_id, 2)
        elif action == "look":
            reserved = resources.reserved_tokens()
            held = {i: int(reserved[resources.seq_slots.slot_of(i)]) for i in lengths}
            assert held == {i: resources.kv_cache.num_reserved_tokens(i) for i in lengths}
    resources.check()
