# %% [markdown]
# # 10. Capture and replay
#
# **The question.** A function was captured as a graph. Then you change a variable that it uses, and replay. Does the answer change?
#
# It depends on what you changed. **Replay never looks at your Python.** It runs the kernels that were recorded, on the addresses that
# were recorded, and reads what lies there *now*. Change the variable: nothing. Change the memory: everything.
#
# **Simulated here:** the graph is the *tape*, our stand-in for CUDA graphs on a machine without a GPU. Everything on this page holds
# for `torch.cuda.CUDAGraph` too, which the GPU tests check with one table of scenarios for both; speed does not: a tape saves nothing.

# %%
import torch

from engine.cuda_graphs.tape import TapeBackend
from engine.device import DeviceRegistry
from engine.errors import CaptureRefusedError

registry = DeviceRegistry()  # the tape trusts only memory that is registered as the device's
x, w = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([10.0, 10.0, 10.0, 10.0])
registry.register("x", x)
registry.register("w", w)
graphs = TapeBackend(registry)

# %%
mode = "double"


def forward():
    if mode == "double":
        return x * w * 2
    return x * w


graph = graphs.capture(forward)
print("after capture:", graph.outputs)

# %% [markdown]
# **Capture computed nothing.** The output has an address and no contents (the tape poisons it, so that nobody takes it for a result).
#
# ## Predict before you look
#
# Five replays, with something changed before each. What is `graph.outputs[0]`? (`x[0]` is 1, `w[0]` is 10, doubled: 20.)
#
# 1. nothing changed
# 2. `x.copy_([5, 5, 5, 5])`
# 3. `mode = "single"`
# 4. `x = torch.zeros(4)`, so the name `x` is another tensor
# 5. the *old* `x` gets a 7 in its first place

# %%
prediction = {1: "?", 2: "?", 3: "?", 4: "?", 5: "?"}

# %%
captured_x, seen = x, {}
graph.replay()
seen[1] = graph.outputs[0].item()
x.copy_(torch.tensor([5.0, 5.0, 5.0, 5.0]))
graph.replay()
seen[2] = graph.outputs[0].item()
mode = "single"
graph.replay()
seen[3] = graph.outputs[0].item()

# %%
x = torch.zeros(4)
graph.replay()
seen[4] = graph.outputs[0].item()
captured_x[0] = 7
graph.replay()
seen[5] = graph.outputs[0].item()
for number, guess in prediction.items():
    verdict = "no answer yet" if guess == "?" else "right" if guess == seen[number] else "not so"
    print(f"{number}: {seen[number]:5.0f}    you said {guess}: {verdict}")

# %% [markdown]
# * 2 and 5: **contents count**. That is how a step's tokens get in: they are copied to the address.
# * 3: **the branch was taken once**, while recording. A graph has no `if`. Whoever needs the other branch captures a second graph, and
#   the branch goes into the key (walkthrough 11).
# * 4: **a name is nothing**. The graph has the address of the old tensor, which it reads whether anybody still holds it or not.
#
# ## What cannot be recorded at all
#
# Whatever needs the value *now* has no place in a recording. CUDA stops with an error, or worse, records a constant; the tape names the
# operation and the line:

# %%
attempts = {
    "a value read on the host": lambda: captured_x.sum().item(),
    "a shape that depends on data": lambda: captured_x[captured_x > 5],
    "a tensor made on the host": lambda: captured_x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "a random generator": lambda: captured_x * torch.rand(4),
}
for what, attempt in attempts.items():
    try:
        graphs.capture(attempt)
    except CaptureRefusedError as refusal:
        print(f"{what}: {refusal}", end="\n\n")

# %% [markdown]
# The last one is why the sampler here draws its noise from a hash of (seed, position, token id): it is a plain computation, so it
# replays exactly, and the same seed gives the same text in any batch.
#
# ## One pool for all graphs
#
# Graphs share their memory: at most one runs at a time, and each bucket with a pool of its own would cost it again. The price: the
# output of one graph is dead as soon as another replays. On CUDA it *may* be overwritten; the tape makes sure of it:

# %%
other = graphs.capture(lambda: captured_x + 1)
graph.replay()
held = graph.outputs
print("read in time:          ", held.tolist())
other.replay()
print("after another's replay:", held.tolist())

# %% [markdown]
# ## The same in the engine
#
# At warm-up the engine captures a graph for each key, the largest first, so that it sizes the pool. What the graphs read at a step is
# compared before each replay, line by line:

# %%
from pathlib import Path

from engine import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab import Session, Trace, show
from lab.faults.examine import run

# %%
sizes = CudaGraphConfig(batch_sizes=(1, 2, 4), sample_modes=("greedy",))
config = EngineConfig(device="cpu", max_seq_len=64, scheduler=SchedulerConfig(max_batch_size=4), cuda_graph=sizes)
prompts = [[97 + (7 * i + k) % 26 for i in range(4 + k)] for k in range(4)]
session = Session("tiny", prompts=prompts, params=SamplingParams(max_tokens=6, ignore_eos=True), config=config)
traces = {"here": session.run()}
if (h200 := Path("data/h200_decode.trace.json.gz")).exists():
    traces["on an H200"] = Trace.load(h200)

# %%
for where, trace in traces.items():
    print(
        f"{where}: {trace.header.device.graph_backend} graphs, {'simulated' if trace.header.device.simulated else 'real'}"
    )
    print("\n".join(f"    {one.key}: pool +{one.num_bytes} bytes" for one in trace.header.warmup.captures[:4]))
    replay = next(step for step in trace.steps if step.graph.path == "replay")
    print("\n".join(f"    {line.name}: {line.got}" for line in replay.graph.check[:6]))

# %%
show(session.trace, step=2, stage="RAN")

# %% [markdown]
# ## Break it on purpose: take capture for computation
#
# An engine that captures a graph at its first use and takes the outputs at once, without a replay. What lies there is what lay there
# before: the sample of the step before. And an engine that captures in the middle of serving, where the run before the capture
# writes into live KV:

# %%
for name in ("forgotten-replay", "capture-while-serving"):
    outcome = run(name).report.outcomes[0]
    print(f"{name}: {outcome.verdict}, {outcome.num_wrong} wrong rows")
    for right, got in outcome.texts:
        print(f"    {right!r:14} {'as it should be' if right == got else f'came out as {got!r}'}")
print(run("capture-while-serving", guards="on").report.outcomes[0].message)

# %% [markdown]
# ## Where the article has it otherwise
#
# * Its order for *one* graph (warm-up run, workspaces, capture, snapshot) is right. What protects the graphs from each other is missing:
#   the **two passes over all** of them. First every graph's shape runs eagerly, so that every workspace reaches its final size; only
#   then is anything captured. `is_warmup_only` is that first pass, and has nothing to do with piecewise graphs.
# * It says that capture bypasses `torch.compile` because at replay "the model is compiled". A replay runs the recorded kernels; what was
#   not compiled when it was recorded never will be.
# * It says that under a graph the kernels update `seq_lens` in place. `seq_lens` is constant for a key (one row a request); what grows
#   is `kv_lens`, and the positions.
# * The strict address check is opt-in there (walkthrough 4).
#
# You have just seen three files: `engine/cuda_graphs/tape.py` (capture and replay on the CPU), `engine/cuda_graphs/runner.py` (the
# engine's graphs, and the check) and `engine/cuda_graphs/tape_rules.py` (what cannot be recorded).
#
# **Exercises:** `ex24` guard the replay: `stepscope check ex24 --start`.
