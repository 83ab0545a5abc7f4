# %% [markdown]
# # 4. Buffers that never move
#
# **The question.** Every step has other tokens, another number of rows, other requests. So where does `input_ids` lie, in step 0, and
# in step 100?
#
# A captured graph is a list of kernels with *addresses*. It will read these addresses at every replay, whatever any Python name
# means by then. So an engine with graphs may change contents and never addresses: it allocates each input once, at the largest
# size a step can have, and afterwards only writes into it.
#
# **Simulated here:** the graphs are a tape on the CPU. The addresses are those of real memory, and the tape bakes them in as a CUDA
# graph would. The *late device* at the end is a queue that runs copies late, on purpose and every time.

# %%
import torch

from engine import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab import Session, show
from lab.faults.examine import run

config = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=96),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), sample_modes=("greedy",)),
)

# %% [markdown]
# ## Predict before you look
#
# 24 requests of five prompt lengths come and go over about a hundred steps; batches have 1 to 4 requests, steps 1 to 24 rows. There
# are graphs for 1, 2 and 4 requests. At how many different addresses will each of these have been?

# %%
prediction = {"persistent input_ids": "?", "static input_ids": "?", "metadata kv_lens": "?"}

# %%
workload = [
    (3 * i, [97 + (7 * i + j) % 26 for j in range(5 + 4 * (i % 5))], SamplingParams(max_tokens=8 + 5 * (i % 4)))
    for i in range(24)
]
session = Session("tiny", prompts=workload, config=config)
steps = session.run().steps
seen = {f"{view.layer} {view.name}": set() for view in steps[0].buffers}
for step in steps:
    for view in step.buffers:
        seen[f"{view.layer} {view.name}"].add(view.address)

# %%
print(f"{len(steps)} steps, {min(s.num_rows for s in steps)} to {max(s.num_rows for s in steps)} rows")
for name, guess in prediction.items():
    count = len(seen[name])
    verdict = "no answer yet" if guess == "?" else "right" if guess == count else "not so"
    print(f"{name:22} addresses: {count}    you said {guess}: {verdict}")

# %% [markdown]
# One address each for the engine's life, and **four for the metadata**: a graph's metadata is one *object per graph*, three here, and
# eager steps have one of their own. Which object a step takes depends on the graph that it takes; none of them ever moves.
#
# ## Three layers, and what each is for
#
# | layer | owner | size | written by | baked into graphs? |
# |---|---|---|---|---|
# | persistent | `DecoderInputBuffers` | the row budget, or the batch | host copies, gathers, in place | no |
# | static | `CUDAGraphRunner` | the largest graph; each reads a prefix | a device copy before each replay | **yes** |
# | metadata | one object per graph | lengths and block tables | its `prepare` | **yes** |
#
# Capacity is paid once, and most steps use little of it. That is the bargain: memory for addresses.

# %%
used = dict.fromkeys(seen, 0)
for view in (view for step in steps for view in step.buffers):
    used[f"{view.layer} {view.name}"] = max(used[f"{view.layer} {view.name}"], view.live_rows)
for view in (view for view in steps[0].buffers if view.layer != "metadata"):
    rows = used[f"{view.layer} {view.name}"]
    print(f"{view.layer:10} {view.name:22} {view.dtype:6} {view.capacity:3} rows allocated, at most {rows:2} used")

# %% [markdown]
# ## One trip for each list, not one for each request
#
# Who writes in a step? With four requests there are still only five host copies into the persistent layer, one a list: the lists are
# filled on the host, in pinned memory, and each goes over in one asynchronous copy. A gather on the device fetches what was sampled
# there. And when the same requests go on (*steady*, walkthrough 9) there is no host copy at all:

# %%
mixed = next(step for step in steps if step.path.num_requests == 4 and step.graph.path == "eager")
steady = next(step for step in steps if step.path.num_requests == 4 and not step.graph.steady)
for step in (mixed, steady):
    print(f"step {step.step} ({step.graph.path}):")
    for view in step.buffers:
        if view.writes and view.layer == "persistent":
            print(f"    {view.name:22}", ", ".join(f"rows {w.start}-{w.end - 1} {w.writer}" for w in view.writes))

# %% [markdown]
# ## Break it on purpose: assign where you should write
#
# In Python these look alike:

# %%
lengths = torch.tensor([3, 5, 8])
before = lengths.data_ptr()
lengths.add_(1)
print("lengths.add_(1)         same address:", lengths.data_ptr() == before)
lengths = lengths + 1
print("lengths = lengths + 1   same address:", lengths.data_ptr() == before)

# %% [markdown]
# The lab keeps a collection of broken engines (`stepscope faults list`). *rebound-buffer* puts the KV lengths into a new tensor at
# each step. The attribute is right and every observer sees right numbers; the graph reads the old memory. With the engine's guards
# on, the check before the replay compares addresses and refuses; with the guards off, every request goes wrong:

# %%
for guards in ("on", "off"):
    fault = run("rebound-buffer", guards=guards)
    outcome = fault.report.outcomes[0]
    print(f"guards {guards}: {outcome.verdict} {outcome.message or ''}")
for right, got in outcome.texts:
    print(f"    {right!r:14} came out as {got!r}")

# %%
show(fault.broken, step=outcome.wrong_step, stage="COPIED")

# %% [markdown]
# ## The other end: the source must hold still too
#
# `copy_(..., non_blocking=True)` returns before anything was read. Until the device has come to it, the pinned list belongs to that
# copy. Here the device is late, and all lists of a step go through the same pinned memory:

# %%
late = run("pinned-source-rewritten", guards="off").report.outcomes[0]
for right, got in late.texts:
    print(f"{right!r:14} came out as {got!r}")

# %% [markdown]
# The engine gives every list two pinned mirrors, each with an event: a mirror is written again only after the copy out of it has run.
#
# ## Where the article has it otherwise
#
# * It shows **one layer**, `InputBuffers`, and says that graphs hold its addresses. In TensorRT-LLM graphs hold those of the graph
#   runner's own static tensors; the runner's buffers have to be stable because steps are derived from them in place.
# * It lists `previous_batch_indices` under beam search. It is for every decoder: the slot of each request's previous sample.
# * It connects the pinned-memory hazard (nvbug 6293536) with the position counters. The public fix, TensorRT-LLM PR 15546, is about
#   pinned *KV block offsets* that were used again: the same hazard, another buffer.
# * It presents the address check as always on. In TensorRT-LLM it is opt-in (`TLLM_CUDA_GRAPH_STRICT_BUFFERS=1`); always compared are
#   identity, counts and shapes. Here it is on unless you set `CudaGraphConfig(strict_buffers=False)`.
#
# You have just seen three files: `engine/inputs/input_buffers.py` (allocated once), `engine/inputs/prepare.py` (the only writer) and
# `lab/faults/buffers.py` (six ways to get it wrong).
#
# **Exercises:** `ex05` size every buffer, `ex06` write in place, `ex07` one trip, not N, `ex08` when may I reuse the source:
# `stepscope check ex05 --start`.
