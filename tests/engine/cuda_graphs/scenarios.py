"""The table of what may and may not be done with a graph, with the verdict on the tape and on CUDA.

The tape may be stricter, never laxer; where the two differ, the row says why.
"""

import pytest
import torch

from engine.cuda_graphs.graph_backend import GraphChain
from engine.cuda_graphs.key import SampleMode
from engine.errors import CaptureRefusedError
from tests.engine.cuda_graphs import forbidden_steps
from tests.engine.cuda_graphs.graph_parts import Metadata, key_of
from tests.engine.cuda_graphs.verdicts import SENTINEL, Machine, Scenario


def layers(machine: Machine):
    weight, x = machine.rows(8, 8, seed=1), machine.rows()

    def forward():
        hidden = x
        for _ in range(3):
            hidden = torch.softmax(hidden @ weight, -1) + hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True))
        return hidden

    graph = machine.capture(forward)
    x.mul_(3)
    return machine.replay(graph), forward()


def sampling(machine: Machine):
    logits, counts = machine.rows(4, 16), machine.persistent(torch.zeros(4, 16))
    tokens = machine.persistent(torch.zeros(4, dtype=torch.int64))

    def forward():
        values, order = torch.sort(logits - 0.1 * counts, dim=-1, descending=True)
        kept = torch.where(torch.cumsum(values.softmax(-1), -1) < 0.9, values, float("-inf"))
        bits = (torch.arange(16, device=logits.device) * 2654435761 + tokens[:, None]) % 65536
        noise = -torch.log(-torch.log((bits.float() + 0.5) / 65536))
        chosen = order.gather(1, (kept + noise).argmax(-1, keepdim=True))
        tokens.copy_(chosen[:, 0])
        counts.scatter_add_(1, chosen, torch.ones_like(counts[:, :1]))

    graph = machine.capture(forward)
    counts.zero_(), tokens.zero_()
    for _ in range(5):
        forward()
    right = torch.cat([tokens[:, None].float(), counts], 1)
    counts.zero_(), tokens.zero_()
    for _ in range(5):
        machine.replay(graph)
    return torch.cat([tokens[:, None].float(), counts], 1), right


def capture_writes_nothing(machine: Machine):
    cache, x = machine.persistent(torch.zeros(4, 8)), machine.rows()
    with machine.world.stream.capturing():
        machine.backend.capture(lambda: cache.index_copy_(0, torch.arange(4, device=x.device), x))
    return cache, torch.zeros_like(cache)


def replays_accumulate(machine: Machine):
    total, x = machine.persistent(torch.zeros(4, 8)), machine.rows()
    graph = machine.capture(lambda: total.add_(x))
    for _ in range(2):
        machine.replay(graph)
    return total, 3 * x


def persistent_output_survives(machine: Machine):
    tokens, x = machine.persistent(torch.zeros(4, 8)), machine.rows()
    first = machine.capture(lambda: tokens.copy_(x * 2))
    second = machine.capture(lambda: x * 5)
    machine.replay(first)
    machine.replay(second)
    return first.outputs, x * 2


def interleaved_sizes(machine: Machine):
    x, weight = machine.rows(8), machine.rows(8, 8, seed=2)
    graphs = {size: machine.capture(lambda size=size: torch.relu(x[:size] @ weight) + 1) for size in (8, 4, 2)}
    got, right = [], []
    for number, size in enumerate((4, 8, 2, 8, 4)):
        x.copy_(machine.rows(8, seed=number + 10))
        got.append(machine.replay(graphs[size]).clone())
        right.append(torch.relu(x[:size] @ weight) + 1)
    return torch.cat(got), torch.cat(right)


def leaked_intermediate(machine: Machine):
    x, kept = machine.rows(), []

    def forward():
        kept[:] = [x * 2]
        return (kept[0] + 1).relu()

    machine.replay(machine.capture(forward))
    return kept[0], x * 2


def view_as_output(machine: Machine):
    x = machine.rows()
    return machine.replay(machine.capture(lambda: (x + 1)[1:, ::2])), (x + 1)[1:, ::2]


def output_after_another_replay(machine: Machine):
    x = machine.rows()
    first, second = machine.capture(lambda: x * 2), machine.capture(lambda: x * 7)
    machine.replay(first)
    machine.replay(second)
    return first.outputs, x * 2


def output_cloned_in_time(machine: Machine):
    x = machine.rows()
    first, second = machine.capture(lambda: x * 2), machine.capture(lambda: x * 7)
    kept = machine.replay(first).clone()
    machine.replay(second)
    return kept, x * 2


def forgotten_replay(machine: Machine):
    x = machine.rows()
    return machine.capture(lambda: (x * 2).relu() + 1).outputs, (x * 2).relu() + 1


def python_number_changed(machine: Machine):
    x, scale = machine.rows(), [2.0]
    graph = machine.capture(lambda: x * scale[0])
    scale[0] = 3.0
    return machine.replay(graph), x * 3.0


def rebound_weight(machine: Machine):
    x, layer = machine.rows(), {"weight": machine.rows(8, 8, seed=1)}
    graph = machine.capture(lambda: x @ layer["weight"])
    old, layer["weight"] = layer["weight"], machine.rows(8, 8, seed=2)
    old.fill_(SENTINEL)
    return machine.replay(graph), x @ layer["weight"]


def workspace_grew(machine: Machine):
    x, space = machine.rows(), {"scratch": machine.persistent(torch.zeros(4, 8))}

    def forward():
        space["scratch"][:4].copy_(x + 1)

    graph = machine.capture(forward)
    space["scratch"] = machine.persistent(torch.full((9, 8), SENTINEL))
    machine.replay(graph)
    return space["scratch"][:4], x + 1


def stale_tail(machine: Machine):
    key = machine.world.capture(4)
    graph, inputs = machine.runner._entries[key].graph, machine.world.inputs(key, [1, 2, 3, 4])
    machine.runner.replay(key, inputs)
    machine.runner.statics.input_ids[:3].copy_(inputs.input_ids[:3] + 10)  # three rows, and no check in between
    return machine.replay(graph), torch.tensor([110.0, 122, 134, 6], device=machine.device)


def rebound_metadata(machine: Machine, *, strict: bool):
    machine.runner._is_strict = strict
    key = machine.world.capture(3)
    metadata = machine.runner.metadata_for(key)
    old, metadata.kv_lens = metadata.kv_lens, torch.full_like(metadata.kv_lens, 5)
    old.fill_(int(SENTINEL))
    outputs, _check = machine.runner.replay(key, machine.world.inputs(key, [1, 2, 3]))
    return outputs, torch.tensor([15.0, 27, 39], device=machine.device)


def checked_replay(machine: Machine, *, tokens=(1, 2, 3), change=lambda inputs: inputs):
    key = machine.world.capture(3)
    outputs, _check = machine.runner.replay(key, change(machine.world.inputs(key, list(tokens))))
    return outputs, torch.tensor([10.0, 22, 34], device=machine.device)


def other_metadata(machine: Machine):
    key = machine.world.capture(3)
    other = Metadata(3, machine.device)
    outputs, _check = machine.runner.replay(key, machine.world.inputs(key, [1, 2, 3], metadata=other))
    return outputs, outputs


def capture_while_serving(machine: Machine):
    machine.runner.capture(key_of(2), machine.world.forward, Metadata(2, machine.device))
    return torch.zeros(1), torch.zeros(1)


def ascending_capture(machine: Machine):
    machine.world.capture(2)
    machine.world.capture(4)
    return torch.zeros(1), torch.zeros(1)


def wrong_sampler_graph(machine: Machine):
    metadata = Metadata(2, machine.device)
    with machine.runner.allow_capture():
        for mode, factor in ((SampleMode.FULL, 3), (SampleMode.GREEDY, 1)):
            machine.runner.capture(key_of(2, mode), lambda i, f=factor: (i.input_ids * f).float(), metadata)
    key = key_of(2, SampleMode.GREEDY)
    outputs, _check = machine.runner.replay(key, machine.world.inputs(key, [4, 5], metadata=metadata))
    return outputs, torch.tensor([12.0, 15], device=machine.device)


def capture_after_a_failed_one(machine: Machine):
    x = machine.rows()
    with pytest.raises(CaptureRefusedError, match=r"at scenarios.py:\d+ cannot be captured"):
        machine.capture(lambda: x * int(x.sum().item()))
    return machine.replay(machine.capture(lambda: x * 2)), x * 2


def captured_chain(machine: Machine, x):
    """Capture two graphs of which the second reads what the first leaves in the pool."""
    chain, left = GraphChain(), []

    def begin():
        left[:] = [x * 2]
        return left[0]

    first = machine.capture(begin, chain=chain)
    second = machine.capture(lambda: left[0] + 1, chain=chain)
    left.clear()
    return first, second


def chain_in_order(machine: Machine):
    x = machine.rows()
    first, second = captured_chain(machine, x)
    x.mul_(3)
    machine.replay(first)
    return machine.replay(second), x * 2 + 1


def chain_with_a_replay_between(machine: Machine):
    x = machine.rows()
    first, second = captured_chain(machine, x)
    between = machine.capture(lambda: x * 7)
    machine.replay(first)
    machine.replay(between)
    return machine.replay(second), x * 2 + 1


def chain_between_two_others(machine: Machine):
    x = machine.rows()
    first, second = captured_chain(machine, x)
    other = machine.capture(lambda: x * 7)
    machine.replay(other)
    machine.replay(first)
    right = machine.replay(second).clone()
    machine.replay(other)
    return right, x * 2 + 1


REFUSED_CAPTURE, REFUSED_REPLAY = "refused(CaptureRefusedError)", "refused(ReplayRefusedError)"

SCENARIOS: dict[str, Scenario] = {
    "layers": Scenario(layers, "ok", "ok"),
    "sampling": Scenario(sampling, "ok", "ok"),
    "capture writes nothing": Scenario(capture_writes_nothing, "ok", "ok"),
    "replays accumulate": Scenario(replays_accumulate, "ok", "ok"),
    "a persistent output survives": Scenario(persistent_output_survives, "ok", "ok"),
    "interleaved sizes": Scenario(interleaved_sizes, "ok", "ok"),
    "a leaked intermediate": Scenario(leaked_intermediate, "ok", "ok"),
    "a view as output": Scenario(view_as_output, "ok", "ok"),
    "an output cloned in time": Scenario(output_cloned_in_time, "ok", "ok"),
    "an output read after another replay": Scenario(output_after_another_replay, "wrong(0)", "wrong(0)"),
    "a forgotten replay": Scenario(forgotten_replay, "wrong(0)", "wrong(0)"),
    "a Python number that changed": Scenario(python_number_changed, "wrong(0)", "wrong(0)"),
    "a rebound weight": Scenario(rebound_weight, "wrong(0)", "wrong(0)"),
    "a workspace that grew": Scenario(workspace_grew, "wrong(0)", "wrong(0)"),
    "a stale tail": Scenario(stale_tail, "wrong(3)", "wrong(3)"),
    "the other sampler's graph": Scenario(wrong_sampler_graph, "wrong(0)", "wrong(0)"),
    "rebound metadata, strict": Scenario(lambda m: rebound_metadata(m, strict=True), REFUSED_REPLAY, REFUSED_REPLAY),
    "rebound metadata, not strict": Scenario(lambda m: rebound_metadata(m, strict=False), "wrong(0)", "wrong(0)"),
    "a checked replay": Scenario(checked_replay, "ok", "ok"),
    "too few rows": Scenario(lambda m: checked_replay(m, tokens=(1, 2)), REFUSED_REPLAY, REFUSED_REPLAY),
    "positions that broadcast": Scenario(
        lambda m: checked_replay(m, change=forbidden_steps.flatten_positions), REFUSED_REPLAY, REFUSED_REPLAY
    ),
    "another metadata object": Scenario(other_metadata, REFUSED_REPLAY, REFUSED_REPLAY),
    "capture while serving": Scenario(capture_while_serving, REFUSED_CAPTURE, REFUSED_CAPTURE),
    "ascending capture": Scenario(ascending_capture, REFUSED_CAPTURE, REFUSED_CAPTURE),
    "a chain in order": Scenario(chain_in_order, "ok", "ok"),
    "a chain between two other replays": Scenario(chain_between_two_others, "ok", "ok"),
    "a chain with a replay between": Scenario(chain_with_a_replay_between, "wrong(0)", "wrong(0)"),
    "capture after a failed one": Scenario(capture_after_a_failed_one, "ok", "ok"),
    **{name: Scenario(*row) for name, row in forbidden_steps.TABLE.items()},
}
