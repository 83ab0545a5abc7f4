"""Both sampler variants on the CPU graph: nothing is refused, and a replay on new contents equals the eager call."""

import pytest
import torch

from engine.config import SamplingParams
from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry
from engine.sampling.choice import choose_rows_reference
from engine.sampling.sampler import sample
from engine.sampling.state import SamplerState
from tests.engine.sampling.sampling_rows import SPEC, make_state, random_logits, set_slot

ROWS, VOCAB, SLOTS = 3, 200, 5
PARAMS = (
    SamplingParams(temperature=0.9, top_p=0.8),
    SamplingParams(temperature=1.0, top_k=7, repetition_penalty=1.4),
    SamplingParams(temperature=0.0),
)


class OnTape:
    """Static inputs, a registered state and the graph that samples from them."""

    def __init__(self, mode):
        registry = DeviceRegistry()
        self.state = SamplerState.allocate(SLOTS, VOCAB, SPEC, registry)
        self.logits = torch.zeros(ROWS, VOCAB)
        self.slots = torch.zeros(ROWS, dtype=torch.int64)
        self.positions = torch.zeros(ROWS, dtype=torch.int32)
        for name in ("logits", "slots", "positions"):
            registry.register(name, getattr(self, name))
        self.backend = TapeBackend(registry)
        self.graph = self.backend.capture(lambda: self.run(mode))

    def run(self, mode):
        if mode == "reference":
            tables = {name: getattr(self.state, name) for name in ("reals", "integers", "token_seen", "vocab_ids")}
            return choose_rows_reference(self.logits, self.slots, self.positions, **tables)
        return sample(self.state, self.logits, self.slots, self.positions, mode)

    def load(self, step):
        self.logits.copy_(random_logits(ROWS, VOCAB, step))
        self.slots.copy_(torch.tensor([(step + 2 * row) % SLOTS for row in range(ROWS)]))
        self.positions.copy_(torch.arange(ROWS) + step)


def set_up(state):
    for slot in range(SLOTS):
        set_slot(state, slot, PARAMS[slot % 3], seed=slot, seen=range(slot, 60))


def test_capture_samples_nothing():
    for mode in ("greedy", "full"):
        on_tape = OnTape(mode)
        assert not on_tape.state.new_tokens.any()
        assert not on_tape.state.token_seen.any()


@pytest.mark.parametrize("mode", ["greedy", "full"])
def test_a_replay_equals_the_eager_call_step_after_step(mode):
    on_tape, eager = OnTape(mode), make_state(SLOTS, VOCAB)
    set_up(on_tape.state)
    set_up(eager)
    for step in range(6):
        on_tape.load(step)
        on_tape.graph.replay()
        sample(eager, on_tape.logits, on_tape.slots, on_tape.positions, mode)
        assert torch.equal(on_tape.state.new_tokens, eager.new_tokens)
        assert torch.equal(on_tape.state.token_seen, eager.token_seen)


def test_the_fixed_shape_reference_records_as_plain_operations_and_replays_exactly():
    on_tape = OnTape("reference")
    set_up(on_tape.state)
    for step in range(6):
        on_tape.load(step)
        on_tape.graph.replay()
        assert torch.equal(on_tape.graph.outputs, on_tape.run("reference"))


def test_a_slot_set_after_capture_is_seen_by_the_next_replay():
    on_tape = OnTape("full")
    on_tape.load(0)
    on_tape.graph.replay()
    slot = int(on_tape.slots[0])
    greedy = int(on_tape.state.new_tokens[0, slot, 0])
    assert greedy == int(on_tape.logits[0].argmax())
    drawn = set()
    for seed in range(20):
        set_slot(on_tape.state, slot, SamplingParams(temperature=50.0), seed=seed)
        on_tape.graph.replay()
        drawn.add(int(on_tape.state.new_tokens[0, slot, 0]))
    assert len(drawn) > 10
