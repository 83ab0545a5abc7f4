import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.errors import NoFreeSlotsError
from engine.kv_cache.seq_slots import SeqSlotManager


def test_the_lowest_free_slot_is_given_and_kept():
    slots = SeqSlotManager(4)
    assert [slots.assign(request_id) for request_id in (10, 11, 12)] == [0, 1, 2]
    slots.release(11)
    slots.release(10)
    assert slots.assign(13) == 0
    assert slots.slot_of(12) == 2
    assert slots.assign(14) == 1
    assert slots.num_free == 1
    slots.check()


def test_has_tells_holders_from_others():
    slots = SeqSlotManager(2)
    slots.assign(5)
    assert slots.has(5)
    assert not slots.has(6)
    assert slots.holders == {5}
    slots.release(5)
    assert not slots.has(5)
    slots.check()


def test_releasing_a_request_that_holds_nothing_is_fine():
    slots = SeqSlotManager(1)
    slots.release(99)
    slots.assign(1)
    slots.release(1)
    slots.release(1)
    assert slots.num_free == 1
    slots.check()


def test_a_full_house_names_the_holders():
    slots = SeqSlotManager(2)
    slots.assign(8)
    slots.assign(3)
    with pytest.raises(NoFreeSlotsError) as caught:
        slots.assign(9)
    assert str(caught.value) == (
        "request 9 needs a sequence slot and all 2 are taken by the requests [3, 8]; "
        "wait for one to finish, or raise SchedulerConfig.max_batch_size"
    )
    assert not slots.has(9)
    slots.check()


def test_a_second_slot_for_one_request_is_caught():
    slots = SeqSlotManager(2)
    slots.assign(1)
    with pytest.raises(AssertionError, match="holds slot 0 already"):
        slots.assign(1)


def test_check_notices_a_lost_slot():
    slots = SeqSlotManager(3)
    slots.assign(1)
    slots._slots.clear()
    with pytest.raises(AssertionError):
        slots.check()


class SlotMachine(RuleBasedStateMachine):
    """Slots are stable, unique and lowest first through any order of arrivals and ends."""

    def __init__(self):
        super().__init__()
        self.slots = SeqSlotManager(3)
        self.held: dict[int, int] = {}

    @rule(request_id=st.integers(0, 5))
    def arrive(self, request_id):
        if request_id in self.held:
            return
        free = sorted(set(range(3)) - set(self.held.values()))
        if not free:
            with pytest.raises(NoFreeSlotsError):
                self.slots.assign(request_id)
            return
        self.held[request_id] = self.slots.assign(request_id)
        assert self.held[request_id] == free[0]

    @rule(request_id=st.integers(0, 5))
    def end(self, request_id):
        self.slots.release(request_id)
        self.held.pop(request_id, None)

    @invariant()
    def slots_are_stable(self):
        self.slots.check()
        assert self.slots.num_free == 3 - len(self.held)
        assert {request_id: self.slots.slot_of(request_id) for request_id in self.held} == self.held
        assert [i for i in range(6) if self.slots.has(i)] == sorted(self.held)


TestSlotMachine = SlotMachine.TestCase
TestSlotMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
