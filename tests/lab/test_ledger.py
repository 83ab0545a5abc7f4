"""Changes of a ledger add up: applied one by one, as one, and cut anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv_cache.copies import CopyKind
from lab.ledger import (
    COPY_KINDS,
    NO_NODE,
    LedgerState,
    LedgerView,
    NodeView,
    OwnersView,
    PlaceView,
    compose,
    join,
    without_text,
)


def view(**changes):
    return LedgerView(8, 2, **changes)


ENTERS = view(
    owners=(OwnersView(3, (0,)), OwnersView(4, (0, 1))),
    added=(NodeView(0, NO_NODE, (7, 8), 16), NodeView(1, 0, (9,), 16)),
    places=(PlaceView(0, (4,), NO_NODE), PlaceView(1, (5,), NO_NODE)),
)
LEAVES = view(owners=(OwnersView(3, ()), OwnersView(4, (1,))), places=(PlaceView(1, (), 0),))
EVICTED = view(removed=(1,))


def standing(state):
    return state.owners, state.nodes, state.places


def test_a_state_says_who_holds_a_block_what_is_cached_and_what_is_on_the_host():
    state = LedgerState()
    state.apply(ENTERS)
    state.check()
    assert state.owners == {3: (0,), 4: (0, 1)}
    assert state.cached_blocks() == {5: 1}
    assert state.num_free == 6
    state.apply(LEAVES)
    state.check()
    assert state.owners == {4: (1,)}
    assert (state.cached_blocks(), state.host_blocks()) == ({}, {0: 1})
    state.apply(EVICTED)
    state.check()
    assert (list(state.nodes), state.host_blocks()) == ([0], {})
    state.apply(None)
    assert list(state.nodes) == [0]


def test_a_ledger_that_nobody_looked_at_is_none():
    assert join([None, None]) is None
    assert compose(None, None) is None
    assert compose(ENTERS, None) is ENTERS
    assert compose(None, ENTERS) is ENTERS


def test_a_node_that_came_and_went_is_in_no_joined_change():
    joined = compose(ENTERS, EVICTED)
    assert [node.node for node in joined.added] == [0]
    assert join([ENTERS, EVICTED]).added == (NodeView(0, NO_NODE, (7, 8), 16),)


def test_without_text_nothing_is_left_of_the_prompts():
    bare = without_text(view(added=(NodeView(0, NO_NODE, (7, 8), 16, "salt"),)))
    assert bare.added == (NodeView(0, NO_NODE, (), 16, ""),)
    assert without_text(None) is None


def test_a_node_on_no_tier_is_found():
    state = LedgerState()
    state.apply(view(added=(NodeView(0, NO_NODE, (), 16),), places=(PlaceView(0, (), NO_NODE),)))
    with pytest.raises(AssertionError, match="node 0 lies on no tier, or both"):
        state.check()


@st.composite
def histories(draw):
    """Return changes as an engine makes them: node numbers are never used twice."""
    views, alive, number = [], [], 0
    for _ in range(draw(st.integers(1, 6))):
        removed = draw(st.lists(st.sampled_from(alive), unique=True, max_size=2)) if alive else []
        alive = [node for node in alive if node not in removed]
        fresh = list(range(number, number + draw(st.integers(0, 3))))
        number += len(fresh)
        alive += fresh
        moved = draw(st.lists(st.sampled_from(alive), unique=True)) if alive else []
        owners = draw(st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 3), unique=True, max_size=2)))
        views.append(
            view(
                owners=tuple(OwnersView(block, tuple(sorted(ids))) for block, ids in owners.items()),
                added=tuple(NodeView(node, NO_NODE, (node,), 16) for node in fresh),
                places=tuple(PlaceView(node, (draw(st.integers(0, 7)),), NO_NODE) for node in {*fresh, *moved}),
                removed=tuple(removed),
            )
        )
    return views


@given(histories(), st.data())
def test_changes_joined_anywhere_give_the_same_ledger(views, data):
    whole, cut = LedgerState(), LedgerState()
    for one in views:
        whole.apply(one)
    at = data.draw(st.integers(0, len(views)))
    cut.apply(join(views[:at]))
    rest = None
    for one in views[at:]:
        rest = compose(rest, one)
    cut.apply(rest)
    assert standing(cut) == standing(whole)


def test_the_copy_kinds_of_a_trace_are_those_of_the_engine():
    assert {*COPY_KINDS} == {kind.value for kind in CopyKind}
