"""Both sampler variants inside a CUDA graph: replays on new contents equal the eager call and the CPU kernel."""

import pytest
import torch

from engine.config import SamplingParams
from engine.device import make_stream, resolve_device
from engine.sampling.sampler import sample
from engine.sampling.state import SamplerState

pytestmark = pytest.mark.gpu

ROWS, VOCAB, SLOTS = 4, 5000, 6
PARAMS = (
    SamplingParams(temperature=0.9, top_p=0.8),
    SamplingParams(temperature=1.0, top_k=7, repetition_penalty=1.4),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=1.3, min_p=0.05),
)


def make_states():
    """One state on each device, set alike."""
    states = []
    for device in ("cuda", "cpu"):
        spec = resolve_device(device, "float32")
        state = SamplerState.allocate(SLOTS, VOCAB, spec)
        for slot in range(SLOTS):
            params = PARAMS[slot % len(PARAMS)]
            state.set_slot(slot, params, seed=slot, prompt_token_ids=range(slot, 900), stream=make_stream(spec))
        states.append(state)
    return states


@pytest.mark.parametrize("mode", ["greedy", "full"])
def test_a_cuda_graph_samples_what_the_cpu_samples_step_after_step(mode):
    on_cuda, on_cpu = make_states()
    logits = torch.zeros(ROWS, VOCAB, device="cuda")
    slots = torch.zeros(ROWS, dtype=torch.int64, device="cuda")
    positions = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.inference_mode():
        sample(on_cuda, logits, slots, positions, mode)  # warm-up, as before any capture
    torch.cuda.synchronize()
    on_cuda.token_seen.copy_(on_cpu.token_seen)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        sample(on_cuda, logits, slots, positions, mode)
    for step in range(20):
        rows = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(step)) * 3
        where = torch.tensor([(step + row) % SLOTS for row in range(ROWS)])
        at = torch.arange(ROWS, dtype=torch.int32) + step
        for target, source in ((logits, rows), (slots, where), (positions, at)):
            target.copy_(source)
        graph.replay()
        sample(on_cpu, rows, where, at, mode)
        assert on_cuda.new_tokens[0, where.cuda(), 0].tolist() == on_cpu.new_tokens[0, where, 0].tolist()
        assert torch.equal(on_cuda.token_seen.cpu(), on_cpu.token_seen)
