"""Verification equals a plain loop over the rows, in both modes, on the tape and eagerly."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry, make_stream
from engine.sampling.sampler import sample
from engine.sampling.state import SamplerState
from engine.sampling.verify import verify
from tests.engine.sampling.sampling_rows import SPEC, random_logits

VOCAB, SLOTS, MOST = 9, 6, 4
PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=0.9, seed=3),
    SamplingParams(temperature=1.0, top_k=4, top_p=0.9),
    SamplingParams(repetition_penalty=1.8),
)


def make_state(guesses=(), registry=None):
    """Every slot with params by its number; slots in ``guesses`` come with drafts."""
    state = SamplerState.allocate(SLOTS, VOCAB, SPEC, registry, max_draft_len=MOST, guess_len=20)
    for slot in range(SLOTS):
        set_slot(state, slot, guess=(1, 2) if slot in guesses else ())
    return state


def set_slot(state, slot, *, guess=(), stream=None):
    state.set_slot(
        slot,
        PARAMS[slot % 4],
        seed=slot,
        prompt_token_ids=(slot,),
        stream=stream or make_stream(SPEC),
        draft_tokens=guess,
        prompt_len=3,
    )


def one_row_at_a_time(state, logits, slots, positions):
    """What each row would choose alone, as a step without drafts has it."""
    chosen = []
    for row, slot in enumerate(slots):
        sample(state, logits[row : row + 1], torch.tensor([slot]), torch.tensor([positions[row]]), "full")
        chosen.append(int(state.new_tokens[0, slot, 0]))
    return chosen


def accepted(drafts, targets, *, allowed):
    count = 0
    while allowed and count < len(drafts) and drafts[count] == targets[count]:
        count += 1
    return count


@st.composite
def verify_steps(draw):
    slots = draw(st.permutations(range(SLOTS)).map(lambda order: order[: 1 + order[0]]))
    draft_len = draw(st.integers(1, MOST))
    hits = [draw(st.integers(0, draft_len)) for _ in slots]  # drafts that are right at first
    guesses = frozenset(draw(st.sets(st.sampled_from(range(SLOTS)))))
    return slots, draft_len, hits, guesses, draw(st.integers(0, 10**6)), draw(st.sampled_from(("greedy", "full")))


@settings(deadline=None, max_examples=150)
@given(verify_steps())
def test_it_samples_each_row_as_if_alone_and_counts_the_leading_hits(step):
    slots, draft_len, hits, guesses, seed, mode = step
    if mode == "greedy":
        slots = [slot for slot in slots if slot % 4 == 0] or [0]
    rows = 1 + draft_len
    logits = random_logits(len(slots) * rows, VOCAB, seed)
    positions = [7 * at + k for at in range(len(slots)) for k in range(rows)]
    by_row = [slot for slot in slots for _ in range(rows)]
    targets = one_row_at_a_time(make_state(), logits, by_row, positions)
    tokens = []
    for at, hit in zip(range(len(slots)), hits, strict=False):
        own = targets[at * rows : at * rows + draft_len]
        tokens += [0, *own[:hit], *[(token + 1) % VOCAB for token in own[hit:]]]
    state = make_state(guesses)
    before = state.token_seen.clone()
    verify(
        state, logits, torch.tensor(by_row), torch.tensor(positions), mode,
        row_tokens=torch.tensor(tokens, dtype=torch.int32), draft_len=draft_len,
    )  # fmt: skip
    state.check()
    for at, slot in enumerate(slots):
        drafts, own = tokens[at * rows + 1 : (at + 1) * rows], targets[at * rows : (at + 1) * rows]
        may = slot in guesses and PARAMS[slot % 4].repetition_penalty == 1.0
        count = accepted(drafts, own, allowed=may)
        assert int(state.num_accepted[slot]) == count == (min(hits[at], draft_len) if may else 0)
        if PARAMS[slot % 4].repetition_penalty == 1.0:
            assert state.new_tokens[:rows, slot, 0].tolist() == own
        else:
            assert int(state.new_tokens[0, slot, 0]) == own[0], "what a penalty sees behind a draft is not used"
        marked = (state.token_seen[slot] & ~before[slot]).nonzero()[:, 0].tolist()
        assert set(marked) <= {own[0]}, "a draft that was not accepted counts as seen by nobody"
    untouched = [slot for slot in range(SLOTS) if slot not in slots]
    assert not state.num_accepted[untouched].any()
    assert not state.new_tokens[:, untouched].any()


def test_a_tape_replays_the_verification_of_other_contents():
    registry = DeviceRegistry()
    state, eager = make_state({0, 1, 2}, registry), make_state({0, 1, 2})
    inputs = {
        "logits": torch.zeros(9, VOCAB), "slots": torch.zeros(9, dtype=torch.int64),
        "positions": torch.zeros(9, dtype=torch.int32), "tokens": torch.zeros(9, dtype=torch.int32),
    }  # fmt: skip
    for name, tensor in inputs.items():
        registry.register(name, tensor)

    def run(into):
        verify(
            into, inputs["logits"], inputs["slots"], inputs["positions"], "full",
            row_tokens=inputs["tokens"], draft_len=2,
        )  # fmt: skip

    graph = TapeBackend(registry).capture(lambda: run(state))
    assert not state.new_tokens.any(), "a capture samples nothing"
    counts = set()
    for step in range(12):
        inputs["logits"].copy_(random_logits(9, VOCAB, step))
        inputs["slots"].copy_(torch.tensor([0, 1, 2]).roll(step).repeat_interleave(3))
        inputs["tokens"].copy_(inputs["logits"].argmax(1).roll(1))  # right for greedy rows
        graph.replay()
        run(eager)
        assert torch.equal(state.new_tokens, eager.new_tokens)
        assert torch.equal(state.num_accepted, eager.num_accepted)
        counts.update(state.num_accepted.tolist())
    assert counts >= {0, 2}


def test_more_rows_than_there_is_room_for_samples_is_a_bug_of_the_caller():
    state, rows = make_state(), torch.zeros(6, dtype=torch.int64)
    with pytest.raises(AssertionError, match="5 drafts, and samples for 4"):
        verify(state, torch.zeros(6, VOCAB), rows, rows, "greedy", row_tokens=rows, draft_len=5)


def test_a_slots_guess_goes_with_its_request_even_through_a_late_stream():
    stream, state = make_stream(SPEC, lag=100), make_state()
    set_slot(state, 0, guess=(5, 6, 7), stream=stream)
    set_slot(state, 1, guess=tuple(range(8)) * 4, stream=stream)
    set_slot(state, 3, guess=(5,), stream=stream)
    assert not state.drafts_allowed.any()
    stream.synchronize()
    state.check()
    assert state.drafts_allowed.tolist() == [1, 1, 0, 0, 0, 0], "slot 3 has a penalty"
    assert state.guesses[0].tolist() == [5, 6, 7] + [0] * 17
    assert state.guesses[1].tolist() == (list(range(8)) * 4)[:20], "cut to the room"
    assert state.guess_starts[:2].tolist() == [3, 3]
    set_slot(state, 0)
    assert state.drafts_allowed[0] == 0
    state.check()
