"""The tape: capture computes nothing, replay is bit-equal to eager, the outputs of other graphs die."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuda_graphs.graph_backend import GraphChain
from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry
from engine.errors import CaptureRefusedError

N, M = 5, 8


class World:
    """A registry with two matrices, a vector of indices and a backend."""

    def __init__(self):
        self.registry = DeviceRegistry()
        self.backend = TapeBackend(self.registry)
        generator = torch.Generator().manual_seed(0)
        self.x = self.put(torch.randn(N, M, generator=generator))
        self.weight = self.put(torch.randn(M, M, generator=generator))
        self.rows = self.put(torch.tensor([3, 0, 4, 1, 2]))

    def put(self, tensor):
        self.registry.register(f"tensor {len(self.registry.names())}", tensor)
        return tensor


# One step of a program: (state, world) -> state; the state is always [N, M] float32.
STEPS = {
    "matmul": lambda h, w: h @ w.weight,
    "softmax": lambda h, w: h.softmax(-1),
    "norm": lambda h, w: h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5),
    "add in place": lambda h, w: h.clone().add_(w.x),
    "write and read": lambda h, w: w.x.copy_(h) + 1,
    "index": lambda h, w: h[w.rows],
    "index_put": lambda h, w: h.clone().index_put_((w.rows,), w.x),
    "transpose": lambda h, w: (h.t() @ h).t()[:N] * h,
    "split": lambda h, w: torch.cat(h.chunk(2, -1)[::-1], -1),
    "sort": lambda h, w: torch.sort(h, -1, descending=True).values,
    "topk": lambda h, w: h.scatter(1, h.topk(3, -1).indices, 0.0),
    "cumsum": lambda h, w: h.cumsum(-1),
    "argmax": lambda h, w: h + h.argmax(-1, keepdim=True),
    "where": lambda h, w: torch.where(h > 0, h, -1.0),
    "arange": lambda h, w: h + torch.arange(M, device=h.device),
    "gather": lambda h, w: h.gather(1, (w.rows[:, None] + torch.zeros(1, M, dtype=torch.int64, device=h.device)) % M),
    "embedding": lambda h, w: torch.nn.functional.embedding(w.rows, w.weight),
    "attention": lambda h, w: torch.nn.functional.scaled_dot_product_attention(h[None], h[None], h[None])[0],
    "fill": lambda h, w: torch.full_like(h, 2.0) * h,
    "empty": lambda h, w: torch.empty_like(h).copy_(h),
    "cast": lambda h, w: h.bfloat16().float(),
    "einsum": lambda h, w: torch.einsum("nm,mk->nk", h, w.weight),
    "layer norm": lambda h, w: torch.nn.functional.layer_norm(h, (M,)),
    "clamp": lambda h, w: h.clamp(-1, 1).nan_to_num(),
}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=8))
def test_any_program_replays_bit_equal_to_eager_and_capture_writes_nothing(program):
    world = World()

    def forward():
        state = world.x
        for step in program:
            state = STEPS[step](state, world)
        return state

    start = world.x.clone()
    graph = world.backend.capture(forward)
    assert torch.equal(world.x, start)
    for _ in range(2):
        world.x.copy_(start)
        right = forward().clone()
        after = world.x.clone()
        world.x.copy_(start)
        graph.replay()
        assert torch.equal(graph.outputs, right)
        assert torch.equal(world.x, after)
    world.backend.check()


@pytest.mark.parametrize("step", STEPS)
def test_each_step_replays_bit_equal_to_eager(step):
    world = World()
    graph = world.backend.capture(lambda: STEPS[step](world.x, world) * 1)
    world.x.mul_(1.5)
    start = world.x.clone()
    right = STEPS[step](world.x, world) * 1
    world.x.copy_(start)
    graph.replay()
    assert torch.equal(graph.outputs, right)


def test_outputs_are_poison_before_the_first_replay():
    world = World()
    graph = world.backend.capture(lambda: (world.x * 2, world.rows + 1, world.x > 0))
    floats, integers, flags = graph.outputs
    assert floats.isnan().all()
    assert integers.eq(-(2**62)).all()
    assert flags.all()


def test_a_replay_kills_the_outputs_of_every_other_graph():
    world = World()
    graphs = [world.backend.capture(lambda k=k: world.x * k) for k in (2, 3, 5)]
    for graph in graphs:
        graph.replay()
        for other in graphs:
            if other is not graph:
                assert not torch.equal(other.outputs, world.x * {0: 2, 1: 3, 2: 5}[graphs.index(other)])
    assert torch.equal(graphs[-1].outputs, world.x * 5)


def test_a_dead_output_that_nobody_reused_is_poison():
    world = World()
    small = world.backend.capture(lambda: world.x[:1] + 1)
    large = world.backend.capture(lambda: (world.x + 1, world.x + 2))
    large.replay()
    small.replay()
    assert large.outputs[1].isnan().all()


def _chain_of_three(world, rows=N):
    """Capture x -> 2 x -> 4 x -> 8 x; each link keeps what the next one reads until that is captured."""
    chain, kept, links = GraphChain(), [world.x[:rows]], []
    for _ in range(3):

        def link():
            kept.append(kept[-1] * 2)
            return kept[-1]

        links.append(world.backend.capture(link, chain=chain))
        del kept[0]
    return links


def test_the_links_of_a_chain_spare_each_other_until_the_first_replays_again():
    world = World()
    links = _chain_of_three(world)
    for at, link in enumerate(links):
        link.replay()
        world.backend.check()
        assert torch.equal(link.outputs, world.x * 2 ** (at + 1))
        assert at == 0 or torch.equal(links[at - 1].outputs, world.x * 2**at), "read between two links"
    links[0].replay()
    assert torch.equal(links[0].outputs, world.x * 2)
    assert links[2].outputs.isnan().all() or torch.equal(links[2].outputs, links[0].outputs), "a new epoch"


@pytest.mark.parametrize("intruder", ["a graph alone", "another chain"])
def test_a_graph_outside_the_chain_ends_its_epoch(intruder):
    world = World()
    links = _chain_of_three(world)
    other = world.backend.capture(lambda: world.x + 1) if intruder == "a graph alone" else _chain_of_three(world, 2)[0]
    links[0].replay()
    links[1].replay()
    other.replay()
    world.backend.check()
    assert not torch.equal(links[1].outputs, world.x * 4)
    links[2].replay()
    assert not torch.equal(links[2].outputs, world.x * 8), "it computed on dead outputs"
    for link in links:
        link.replay()
    assert torch.equal(links[2].outputs, world.x * 8), "from its beginning the chain is whole again"


def test_a_smaller_chain_takes_the_memory_of_the_larger_one():
    world = World()
    large = _chain_of_three(world)
    before = world.backend.pool_bytes
    small = _chain_of_three(world, 2)
    assert world.backend.pool_bytes == before
    places = sorted({link.outputs.data_ptr() for link in large})
    assert len(places) == 2, "a link takes what the last but one left"
    assert all(places[0] <= link.outputs.data_ptr() < places[1] + world.x.nbytes for link in small)


def test_a_graph_may_replay_many_times_without_killing_its_own_outputs():
    world = World()
    graph = world.backend.capture(lambda: world.x * 2)
    graph.replay()
    graph.replay()
    assert torch.equal(graph.outputs, world.x * 2)


def test_the_first_graph_sizes_the_pool_and_smaller_ones_fit_into_it():
    world = World()
    wide = world.put(torch.randn(64, 40_000))
    graphs = [world.backend.capture(lambda n=n: wide[:n].exp().sin().cos()) for n in (64, 32, 1)]
    assert [graph.nbytes > 0 for graph in graphs] == [True, False, False]
    assert world.backend.pool_bytes == graphs[0].nbytes
    assert graphs[0].nbytes < 3 * wide.nbytes, "two results are alive at a time, not three"


def test_an_output_may_be_a_view_or_persistent():
    world = World()
    graph = world.backend.capture(lambda: {"view": (world.x + 1).t()[2:], "same": world.x})
    graph.replay()
    assert torch.equal(graph.outputs["view"], (world.x + 1).t()[2:])
    assert graph.outputs["same"] is world.x


def test_an_error_of_the_forward_comes_through_and_leaves_the_backend_usable():
    world = World()
    with pytest.raises(RuntimeError, match=r"\[5, 8\] X \[5, 8\]"):
        world.backend.capture(lambda: world.x @ world.x)
    with pytest.raises(ZeroDivisionError):
        world.backend.capture(lambda: world.x * (1 // 0))
    graph = world.backend.capture(lambda: world.x * 2)
    graph.replay()
    assert torch.equal(graph.outputs, world.x * 2)
    world.backend.check()


def test_releasing_empties_the_pool():
    world = World()
    world.backend.capture(lambda: world.x * 2)
    assert world.backend.pool_bytes > 0
    world.backend.release()
    assert world.backend.pool_bytes == 0


def test_a_tensor_of_a_capture_may_feed_the_next_one_while_somebody_holds_it():
    world, kept = World(), []
    first = world.backend.capture(lambda: kept.append(world.x * 2))
    second = world.backend.capture(lambda: kept[0] + 1)
    first.replay()
    second.replay()
    assert torch.equal(second.outputs, world.x * 2 + 1)


def test_host_memory_is_refused_with_operation_shape_and_line():
    world, host = World(), torch.ones(M)
    with pytest.raises(CaptureRefusedError) as refusal:
        world.backend.capture(lambda: world.x + host)
    text = str(refusal.value)
    assert text.startswith("aten.add.Tensor at test_tape.py:")
    assert text.endswith(
        "cannot be captured: it uses a float32 tensor of shape (8,) that is not registered as device memory; "
        "make it on the device before capture and register it"
    )


def test_writing_host_memory_is_refused():
    world, host = World(), torch.zeros(N, M)
    with pytest.raises(CaptureRefusedError, match=r"aten\.copy_\.default .* not registered"):
        world.backend.capture(lambda: host.copy_(world.x))
    assert host.eq(0).all()


def test_a_mutating_operation_without_results_is_recorded_and_not_run():
    library = torch.library.Library("tape_test", "FRAGMENT")
    library.define("bump_(Tensor(a!) x, Tensor y) -> ()")
    library.impl("bump_", lambda x, y: (x.add_(y), None)[1], "CPU")
    world, total = World(), torch.zeros(N, M)
    world.put(total)
    graph = world.backend.capture(lambda: torch.ops.tape_test.bump_(total, world.x))
    assert total.eq(0).all()
    graph.replay()
    assert torch.equal(total, world.x)


def test_an_operation_that_writes_and_returns_does_both_at_replay():
    library = torch.library.Library("tape_test", "FRAGMENT")
    library.define("push(Tensor(a!) x, Tensor y) -> Tensor")

    def push(x, y):
        x.add_(y)
        return x * 10

    library.impl("push", push, "CPU")
    library.impl("push", lambda x, y: torch.empty_like(x), "Meta")
    world, total = World(), torch.zeros(N, M)
    world.put(total)
    graph = world.backend.capture(lambda: torch.ops.tape_test.push(total, world.x))
    assert total.eq(0).all()
    graph.replay()
    assert torch.equal(total, world.x)
    assert torch.equal(graph.outputs, world.x * 10)


def test_a_capture_of_plain_operations_leaves_torchs_compiler_unimported():
    code = (
        "import sys, torch\n"
        "from engine.device import DeviceRegistry\n"
        "from engine.cuda_graphs.tape import TapeBackend\n"
        "registry, x = DeviceRegistry(), torch.ones(3, 3)\n"
        "registry.register('x', x)\n"
        "graph = TapeBackend(registry).capture(lambda: (x @ x).add_(1).argmax(-1))\n"
        "graph.replay()\n"
        "sys.exit('torch._dynamo' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
