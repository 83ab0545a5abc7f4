"""What a watch says changed adds up to what the manager holds, whatever happened in between."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.cuda_graphs.dummies import PADDING_DUMMY_ID
from engine.kv_cache.manager import KVCacheManager
from engine.llm_request import LlmRequest, RequestSpec
from lab.ledger import LedgerState
from lab.ledger_watch import LedgerWatch, short_id

SIZE = 4


def manager(**options):
    return KVCacheManager(num_blocks=12, tokens_per_block=SIZE, max_seq_len=64, **options)


def request(request_id, prompt, **options):
    return LlmRequest(RequestSpec(request_id, tuple(prompt), SamplingParams(), **options))


def claim(kv, made, copies):
    kv.claim([(made, 1)], copies)
    kv.reserve(made.request_id, made.py_prompt_len, copies=copies)


def test_dummy_ids_fold_below_every_real_id():
    assert [short_id(i) for i in (7, PADDING_DUMMY_ID, PADDING_DUMMY_ID - 1)] == [7, -2, -3]


def test_a_shared_prefix_a_cached_block_and_the_host_are_told_apart():
    kv, copies = manager(host_blocks=2), []
    watch, state = LedgerWatch(kv), LedgerState()
    first = request(0, range(9))
    claim(kv, first, copies)
    kv.commit(0, 8)
    second = request(1, [*range(8), 50])
    claim(kv, second, copies)
    state.apply(watch.changes())
    state.check()
    shared = [block for block, ids in state.owners.items() if ids == (0, 1)]
    assert len(shared) == 2
    assert [(node.parent, node.tokens) for node in state.nodes.values()] == [(-1, (0, 1, 2, 3)), (0, (4, 5, 6, 7))]
    kv.free(0)
    kv.free(1)
    change = watch.changes()
    assert change.added == ()
    assert {one.block for one in change.owners} >= set(shared)
    state.apply(change)
    assert sorted(state.cached_blocks()) == sorted(shared)
    kv.reserve(2, 48, copies=copies)
    state.apply(watch.changes())
    state.check()
    assert state.host_blocks()
    assert state.cached_blocks() == {}


def test_a_given_key_and_a_salt_are_labels():
    kv = manager()
    keyed, salted = request(0, range(4), block_keys=("page 17",)), request(1, range(4), cache_salt="tenant")
    for made in (keyed, salted):
        claim(kv, made, [])
        kv.commit(made.request_id, 4)
    added = LedgerWatch(kv).changes().added
    assert [(node.tokens, node.label) for node in added] == [((), "page 17"), ((0, 1, 2, 3), "tenant")]


def test_looking_leaves_the_manager_as_it_is():
    kv = manager()
    claim(kv, request(0, range(9)), [])
    watch = LedgerWatch(kv)
    watch.changes()
    kv.free(0)
    watch.changes()
    assert kv.live_request_ids == frozenset()
    kv.check()
    assert watch.changes() == LedgerWatch(manager()).changes(), "nothing changed since"


names = st.sampled_from(["come", "commit", "leave", "look"])
prompts = st.lists(st.integers(0, 1), min_size=1, max_size=16)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["come", "commit", "leave", "look"]), st.integers(0, 3), prompts), max_size=30)
)
def test_all_changes_together_are_what_the_manager_holds(operations):
    kv = manager(host_blocks=3)
    watch, state, live, number = LedgerWatch(kv), LedgerState(), {}, 0
    for name, place, prompt in operations:
        if name == "come" and kv.blocks_for(len(prompt)) <= kv.num_free_blocks:
            made = live[number] = request(number, prompt)
            copies = []
            claim(kv, made, copies)
            number += 1
        elif name == "commit" and live:
            made = live[sorted(live)[place % len(live)]]
            kv.commit(made.request_id, made.py_prompt_len)
        elif name == "leave" and live:
            gone = sorted(live)[place % len(live)]
            kv.free(gone)
            del live[gone]
        elif name == "look":
            state.apply(watch.changes())
            state.check()
    state.apply(watch.changes())
    state.check()
    watch.check()
    fresh = LedgerState()
    fresh.apply(LedgerWatch(kv).changes())
    assert state.owners == fresh.owners
    places = sorted((place.blocks, place.host_block) for place in state.places.values())
    assert places == sorted((place.blocks, place.host_block) for place in fresh.places.values())
    assert state.num_free == kv.num_free_blocks


def test_a_watch_that_did_not_look_is_not_up_to_date():
    kv = manager()
    watch = LedgerWatch(kv)
    claim(kv, request(0, range(9)), [])
    with pytest.raises(AssertionError):
        watch.check()
