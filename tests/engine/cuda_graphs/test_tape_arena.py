"""The arena gives memory out as CUDA's allocator does: reused once nobody holds it, never moved, never doubly owned."""

import gc

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.cuda_graphs.tape_arena import ALIGNMENT, GRANULE, TapeArena, poison_value

dtypes = st.sampled_from([torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.uint8, torch.complex64])


class Allocations(RuleBasedStateMachine):
    """Tensors come and go; each keeps its contents, and the spans always tile the chunks."""

    def __init__(self):
        super().__init__()
        self.arena = TapeArena()
        self.held = []

    @rule(size=st.lists(st.integers(0, 40), max_size=3), dtype=dtypes, big=st.integers(0, 9))
    def allocate(self, size, dtype, big):
        size = (300_000, *size[:1]) if big == 0 else tuple(size)
        strides = torch.empty(size, device="meta").stride()
        tensor = self.arena.allocate(size, strides, dtype)
        assert (tensor.shape, tensor.dtype, tensor.stride()) == (torch.Size(size), dtype, strides)
        assert tensor.untyped_storage().data_ptr() % ALIGNMENT == 0
        tensor.fill_(len(self.held) % 2)
        self.held.append((tensor, tensor.clone()))

    @rule(at=st.integers(0, 30))
    def drop(self, at):
        if self.held:
            self.held.pop(at % len(self.held))

    @rule(at=st.integers(0, 30))
    def keep_only_a_view(self, at):
        if self.held:
            at %= len(self.held)
            tensor, contents = self.held[at]
            self.held[at] = (tensor.view(-1), contents.view(-1))

    @invariant()
    def spans_tile_the_chunks(self):
        self.arena.check()

    @invariant()
    def nobody_wrote_over_another(self):
        assert all(torch.equal(tensor, contents) for tensor, contents in self.held)


TestAllocations = Allocations.TestCase
TestAllocations.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)


def test_memory_is_reused_once_the_last_view_is_gone():
    arena = TapeArena()
    first = arena.allocate((10,), (1,), torch.float32)
    address, view = first.data_ptr(), first[2:5]
    del first
    assert arena.allocate((10,), (1,), torch.float32).data_ptr() != address
    del view
    assert arena.allocate((10,), (1,), torch.float32).data_ptr() == address


def test_an_alias_sees_the_same_bytes_and_keeps_nothing():
    arena = TapeArena()
    tensor = arena.allocate((4, 6), (6, 1), torch.float32)
    alias = arena.alias(tensor[1:, ::2])
    tensor.copy_(torch.arange(24.0).view(4, 6))
    assert torch.equal(alias, tensor[1:, ::2])
    address = tensor.data_ptr()
    del tensor
    gc.collect()
    assert arena.allocate((24,), (1,), torch.float32).data_ptr() == address
    outside = torch.zeros(3)
    assert arena.alias(outside) is outside


def test_chunks_are_rounded_up_and_counted():
    arena = TapeArena()
    small = arena.allocate((1,), (1,), torch.float32)
    assert arena.nbytes == GRANULE
    large = arena.allocate((GRANULE + 1,), (1,), torch.uint8)
    assert arena.nbytes == 3 * GRANULE
    assert arena.owns(small)
    assert arena.owns(large[5:])
    assert not arena.owns(torch.zeros(1))


def test_only_what_this_capture_made_and_somebody_holds_is_poisoned():
    arena = TapeArena()
    arena.begin()
    older = arena.allocate((3,), (1,), torch.float32).zero_()
    arena.begin()
    fresh = arena.allocate((3,), (1,), torch.float32).zero_()
    arena.poison_fresh()
    assert older.eq(0).all()
    assert fresh.isnan().all()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(torch.int32, -(2**30)), (torch.int64, -(2**62)), (torch.uint8, 255), (torch.bool, True), (torch.int8, -64)],
)
def test_integer_poison_is_out_of_any_range_and_never_zero(dtype, expected):
    assert torch.zeros(1, dtype=dtype).fill_(poison_value(dtype)).item() == expected
