import dataclasses

from lab.ledger import NO_NODE, LedgerState, LedgerView, NodeView, OwnersView, PlaceView
from lab.ledger_history import ledger_after, with_ledger_before
from tests.lab.sample_steps import decode_step


def step_with(number, reserved, committed):
    step = decode_step(number, batch=1)
    return dataclasses.replace(
        step,
        reservation=dataclasses.replace(step.reservation, ledger=reserved),
        outcome=dataclasses.replace(step.outcome, ledger=committed),
    )


GETS = LedgerView(8, 0, owners=(OwnersView(3, (0,)),))
ENTERS = LedgerView(8, 0, added=(NodeView(0, NO_NODE, (1,), 16),), places=(PlaceView(0, (3,), NO_NODE),))
LEAVES = LedgerView(8, 0, owners=(OwnersView(3, ()),))
STEPS = [step_with(0, GETS, ENTERS), step_with(1, None, LEAVES)]


def test_a_step_stands_between_its_reservation_and_its_commit():
    assert ledger_after(STEPS[:1], at_reservation=True).nodes == {}
    assert list(ledger_after(STEPS[:1]).nodes) == [0]
    assert ledger_after(STEPS, at_reservation=True).owners == {3: (0,)}
    after = ledger_after(STEPS)
    assert (after.owners, after.cached_blocks()) == ({}, {3: 0})
    assert ledger_after([]).num_blocks == 0


def test_a_run_that_is_cut_begins_with_everything_that_stood():
    before = ledger_after(STEPS[:1])
    first = with_ledger_before(STEPS[1], before)
    assert ledger_after([first]).cached_blocks() == {3: 0}
    assert list(before.owners) == [3], "the state that was given is left alone"
    assert with_ledger_before(step_with(0, None, None), LedgerState()).reservation.ledger is None
