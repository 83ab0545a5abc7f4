"""Faults of capture and replay: at the wrong time, of the wrong memory, or not at all.

Does not: run them (``runs.py``). Source: each fault names the bug or rule it is modelled on.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np
import torch

from engine.cuda_graphs import tape
from engine.cuda_graphs.key import KeyType
from engine.cuda_graphs.runner import CUDAGraphRunner, GraphInputs
from engine.executor.samples import DeviceSampleSource
from engine.inputs.prepare import attention_step
from engine.inputs.records import PreparedInputs
from engine.llm import LLM
from engine.py_executor import PyExecutor
from lab.faults.fault import FOUR, Fault, Workload, part, small_config, swapped


def _grow_table(llm: LLM) -> None:
    """Move the rotary table to larger memory; the old memory is somebody else's now, who writes zeros into it."""
    model = llm.loaded.model
    old = model.cos_table
    model.cos_table = torch.cat((old, old))
    old.zero_()


@contextlib.contextmanager
def _reading_after_another_replay() -> Generator[None]:
    """Take the host's tokens from a graph's logits after a second graph has replayed."""
    read, follow = part(PyExecutor, "_read_samples"), part(DeviceSampleSource, "follow")

    def keep_outputs(self: Any, scheduled: Any, outputs: Any) -> Any:
        pending = follow(self, scheduled, outputs)
        pending.outputs = outputs
        return pending

    def read_late(self: Any, step: Any) -> np.ndarray:
        tokens, outputs = read(self, step), step.samples.outputs
        if outputs.event.key is None:
            return tokens
        _replay_another(self._engine._runner, self._resources, outputs.event.key)
        self._samples.synchronize()
        late = tokens.copy()
        slots = [request.py_seq_slot for request in step.scheduled.sampled_requests]
        late[0, slots] = outputs.logits.tensor.argmax(1)[: len(slots)].cpu().numpy()
        return late

    with swapped(DeviceSampleSource, "follow", keep_outputs), swapped(PyExecutor, "_read_samples", read_late):
        yield


def _replay_another(runner: Any, resources: Any, key_text: str) -> None:
    """Replay the graph of another batch size on nothing but padding, which is allowed at any time."""
    graphs, dummies = runner._parts.graphs, runner._dummies
    key = next(key for key in sorted(graphs.captured_keys) if f"batch {key.batch_size}," not in key_text)
    batch, metadata = dummies.capture_batch(key.batch_size), graphs.metadata_for(key)
    host = runner._decisions.pack(batch, resources.kv_cache.block_table)
    metadata.prepare(attention_step(host))
    rows, device = key.num_tokens(), graphs.statics.input_ids.device
    prepared = PreparedInputs(
        input_ids=torch.zeros(rows, dtype=torch.int32, device=device),
        position_ids=torch.zeros(1, 1, rows, dtype=torch.int32, device=device),
        gather_ids=torch.arange(rows, device=device),
        seq_slots=torch.tensor(host.seq_slots, device=device),
        attn_metadata=metadata,
        num_tokens=rows,
        writes=(),
    )
    graphs.replay(key, prepared)


def _skipping_first_replay() -> contextlib.AbstractContextManager[None]:
    """Take a graph's outputs for computed because it was captured."""
    replay = part(CUDAGraphRunner, "replay")
    seen: set[KeyType] = set()

    def skip(self: Any, key: KeyType, prepared: PreparedInputs) -> Any:
        if key in seen:
            return replay(self, key, prepared)
        seen.add(key)
        entry = self._entries[key]
        return entry.graph.outputs, entry.check

    return swapped(CUDAGraphRunner, "replay", skip)


@contextlib.contextmanager
def _capturing_on_demand() -> Generator[None]:
    """Leave captures out of warm-up; the first step that wants a graph captures it, over its live requests."""
    capture = part(CUDAGraphRunner, "capture")
    replay = part(CUDAGraphRunner, "replay")
    find = part(CUDAGraphRunner, "metadata_for")
    pending: dict[KeyType, tuple[Any, Any]] = {}

    def postpone(self: Any, key: KeyType, forward_fn: Any, metadata: Any, **options: Any) -> Any:
        if options.get("is_warmup_only"):
            return capture(self, key, forward_fn, metadata, **options)
        pending[key] = (forward_fn, metadata)
        self.captured_keys = self.captured_keys | {key}
        return None

    def capture_and_replay(self: Any, key: KeyType, prepared: PreparedInputs) -> Any:
        if key in pending:
            capture(self, key, *pending.pop(key))
            self.captured_keys = self.captured_keys | set(pending)
        return replay(self, key, prepared)

    def find_pending(self: Any, key: KeyType) -> Any:
        return pending[key][1] if key in pending else find(self, key)

    with (
        swapped(CUDAGraphRunner, "capture", postpone),
        swapped(CUDAGraphRunner, "replay", capture_and_replay),
        swapped(CUDAGraphRunner, "metadata_for", find_pending),
    ):
        yield


def _reading_a_length() -> contextlib.AbstractContextManager[None]:
    """Cut the positions to a length that the host reads inside the captured region."""
    capture = part(CUDAGraphRunner, "capture")

    def limited(inputs: GraphInputs) -> GraphInputs:
        length = int(inputs.attn_metadata.kv_lens[0].item())
        return dataclasses.replace(inputs, position_ids=inputs.position_ids.clamp(max=length))

    def capture_limited(
        self: Any, key: KeyType, forward_fn: Callable[[GraphInputs], Any], metadata: Any, **options: Any
    ) -> Any:
        def forward_limited(inputs: GraphInputs) -> Any:
            return forward_fn(limited(inputs))

        return capture(self, key, forward_limited, metadata, **options)

    return swapped(CUDAGraphRunner, "capture", capture_limited)


@contextlib.contextmanager
def _reads_allowed() -> Generator[None]:
    """Let the tape answer host reads with what lies there at capture. CUDA's refusal cannot be lifted."""
    recorder = part(tape, "_Recorder")
    dispatch = part(recorder, "__torch_dispatch__")

    def answer(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return func(*args)
        return dispatch(self, func, types, args, kwargs)

    with swapped(recorder, "__torch_dispatch__", answer), swapped(tape, "HostReadGuard", contextlib.nullcontext):
        yield


CAPTURE_FAULTS: Final = (
    Fault(
        name="workspace-grows-after-capture",
        explanation=(
            "After warm-up a table that all steps share (here the rotary angles) moves to larger memory. Eager steps "
            "read the new one; the graphs still read the old memory, which somebody else writes to."
        ),
        rule="Bring every workspace to its final size before the first capture, and freeze it then.",
        source="NVIDIA/TensorRT-LLM PRs 16319 and 18022: workspaces grew or were allocated after capture",
        workload=Workload(FOUR, small_config()),
        start=_grow_table,
    ),
    Fault(
        name="output-read-after-another-replay",
        explanation=(
            "The logits of one graph are read after another graph has replayed. All graphs share one pool, so the "
            "second one may have computed over them."
        ),
        rule="A graph's outputs are borrowed until the next replay: use or copy them before.",
        source="NVIDIA/TransformerEngine PR 2937: buffers that a graph had returned were overwritten by later replays",
        workload=Workload(FOUR, small_config(batch_sizes=(2, 4))),
        patch=_reading_after_another_replay,
    ),
    Fault(
        name="forgotten-replay",
        explanation=(
            "The first step on each graph takes its outputs as they are, as if capture had computed them. Capture "
            "computes nothing: the sample that lies there is the one of the step before."
        ),
        rule="Capture records and computes nothing; every step on a graph replays it, the first one too.",
        source="kekzl/imp PR 1417: without the replay that follows a capture, a step took the logits of the one before",
        workload=Workload(FOUR, small_config()),
        patch=_skipping_first_replay,
    ),
    Fault(
        name="capture-while-serving",
        explanation=(
            "A graph is captured when a step first wants it. The eager run that precedes every capture works on "
            "made-up inputs, but over the tables of live requests, and writes into their first KV token."
        ),
        rule="Capture belongs into warm-up, where nothing live can be overwritten; serving only replays.",
        source="a rule of NVIDIA/TensorRT-LLM and vllm-project/vllm: both refuse to capture outside warm-up",
        workload=Workload(FOUR, small_config()),
        patch=_capturing_on_demand,
    ),
    Fault(
        name="host-read-inside-capture",
        explanation=(
            "The captured region reads a length on the host. The read happens once, at capture, with the dummy's "
            "length, and this number is part of the graph for ever."
        ),
        rule="No host reads inside a captured region: lengths stay on the device, where a replay finds them.",
        source="huggingface/transformers PR 45323: a length that the host knew was baked into captured graphs",
        workload=Workload(FOUR, small_config()),
        patch=_reading_a_length,
        lift=_reads_allowed,
    ),
)
