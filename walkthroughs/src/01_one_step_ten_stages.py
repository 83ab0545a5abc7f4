# %% [markdown]
# # 1. One step, ten stages
#
# **The question.** `llm.step()` takes whatever the scheduler decided, a list of requests that differs at every step, and runs it
# as one forward pass of a fixed shape. What happens in between?
#
# Ten stages, always in this order. Each hands one frozen record to the next, and each can be looked at:
#
# | | stage | answers |
# |---|---|---|
# | 1 | Schedule | who gets rows in this step, and why somebody else does not |
# | 2 | Reserve | which blocks and slots they hold, all or none |
# | 3 | Pad | how many dummy requests fill the bucket |
# | 4 | Choose graph | which captured graph fits, or the first condition that fails |
# | 5 | Pack | which token stands in which row |
# | 6 | Copy | who writes which span of which buffer, in place |
# | 7 | Metadata | lengths and block tables for attention |
# | 8 | Run | eager, or the replay of a graph |
# | 9 | Sample | the tokens, read by the host |
# | 10 | Commit | who finished, what was freed |
#
# **Simulated here:** without a GPU the graphs are a *tape* on the CPU: keys, addresses and contents are real, speed and stream
# order are not.

# %%
import textwrap
from dataclasses import replace

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.models.catalog import PUBLISHED
from lab import Session, counterfactual, show

MODEL = "smollm2-135m" if PUBLISHED["smollm2-135m"].is_pulled else "tiny"
if MODEL == "tiny":
    print("smollm2-135m is not here (stepscope models pull smollm2-135m): going on with tiny, whose text is noise")
print("model:", MODEL)

# %% [markdown]
# ## Start an engine: six graphs are captured before the first request
#
# Three buckets, for batches of 1, 2 and 4 requests, times two samplers, a plain one (greedy) and a full one, since sampling is part
# of the graph: six graphs. Warm-up captures the largest first, so that the others fit into its memory: watch how little the pool grows after it.
# After that, capture is forbidden: a step either finds its graph or runs eagerly.

# %%
config = EngineConfig(
    device="cpu",
    max_seq_len=256,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=256),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), enable_padding=True),
)
workload = [
    (0, "The capital of France is", SamplingParams(max_tokens=14, ignore_eos=True)),
    (2, "Once upon a time, in a small house by the sea,", SamplingParams(max_tokens=18, ignore_eos=True)),
    (4, "Water boils at", SamplingParams(max_tokens=12, ignore_eos=True)),
    (7, "Three fruits that are red when they are ripe:", SamplingParams(max_tokens=12, ignore_eos=True)),
]

# %%
config = replace(config, dtype="bfloat16")  # half the memory of float32, so that it also fits into a Binder
session = Session(MODEL, prompts=workload, config=config)
for graph in session.trace.header.warmup.captures:
    print(f"capture {graph.key}: {graph.seconds:.2f} s, pool +{graph.num_bytes / 1e6:.1f} MB (simulated)")

# %% [markdown]
# ## Predict before you look
#
# Four requests of different lengths join at steps 0, 2, 4 and 7, and stay. For each step from 0 to 9, say:
#
# * does it run **eagerly**, or does it **replay** a graph, and of which bucket?
# * at which steps does a **dummy request** take part?
#
# Write your ten answers down (or into the list below: `"eager"`, `1`, `2` or `4`).

# %%
prediction = ["eager", 1, "?", "?", "?", "?", "?", "?", "?", "?"]

# %%
for _ in range(10):
    session.step()

# %% [markdown]
# ## What happened
#
# One line a step. Compare it with your prediction before reading on.

# %%
for step, guess in zip(session.trace.steps, prediction, strict=False):
    path = step.path
    took = f"bucket {path.bucket}" if path.key else path.reason
    print(f"step {step.step}: you said {guess!s:6} {path.num_requests} requests -> {step.graph.path:6} {took}")

# %% [markdown]
# * **A step with a prompt in it is eager** (`HAS_CONTEXT_UNPROMOTED`): a graph has one shape, and a prompt may have any length.
#   So *everybody* in that step runs eagerly, also the requests that only wanted their next token. The exception is in the name: a prompt
#   of which a single token is left runs as a decode row (it is *promoted*).
# * **Three requests replay the graph of four.** There is no bucket of three: a dummy request takes the fourth place. It has its
#   own block and slot, and its rows are written, computed, and read by nobody.
# * Which prompt it is does not matter to a graph; *how many* requests there are does.
#
# The same in words, for an eager step and for the padded one:

# %%
for step in (4, 5):
    print(textwrap.fill(session.trace.explain(step), width=100), end="\n\n")

# %% [markdown]
# **What would have put step 4 on a graph?** The lab does not guess: it runs the same requests again, first unchanged, then with one
# changed field after another, until a step that does *the same work* takes a graph.

# %%
answer = counterfactual(session.trace, 4, model=session.llm.loaded)  # the model is here already
print(textwrap.fill(answer.sentence, width=100))

# %% [markdown]
# ## Step through it
#
# **As committed, the next cell holds a still picture.** *Run > Run All Cells* puts the live stepper in its place.
#
# **Click the stepper first**, so that the keys go to it: the left and right arrows change the step, PageUp and PageDown the stage,
# `f` jumps to the next step that left the graph path, `t` shows tables, `p` lets you predict, `?` lists all keys. Select a row and
# keep following that request.
#
# In stage 6 look at `input_ids`. The row of a request in generation is written by a *device gather* whenever its previous sample
# lies on the device, in eager steps as in replayed ones: the token never went to the host and back. A prompt's rows are copied
# from the host. The cells to the right of the batch are old, and nobody reads them. In stage 4 of an eager step a button proves the
# smallest change; stage 8 holds addresses that a graph has baked in beside those that are there now.
#
# The button at the upper right (or `r`) takes one more *real* step: four requests are still running, and will finish one by one.

# %%
show(session, step=5)

# %% [markdown]
# ## The article's seven preparation steps, and where they are here
#
# *The article* is 《TensorRT-LLM 源码完全拆解(五)：PyTorchModelEngine 与输入组装——动态请求如何拼成静态形状的一次前向》 (in Chinese, by 平昊阳,
# CC BY-NC-SA 4.0; not shipped here): part five of a close reading of TensorRT-LLM's source, on how its `PyTorchModelEngine` turns
# requests that change at every step into one forward pass of a static shape. This walkthrough stands on its own; the table is for
# those who read both.
#
# | the article | here | note |
# |---|---|---|
# | 1 hooks | 7 Metadata | the model's `prepare_request_inputs`, when it has one |
# | 2 the previous sample | 5 Pack, 6 Copy | it is handed over at every step and lies on the device, indexed by slot |
# | 3 fast paths | 5 Pack | *steady*: the requests of the step before, all of them in generation and none a dummy: positions grow by one in place and nothing is packed (step 9) |
# | 4 three packs | 5 Pack | contexts, extends, generations: the row order is a rule of correctness |
# | 5 move tokens and positions | 6 Copy | one pinned copy a list, then device gathers, in place |
# | 6 attention metadata | 7 Metadata | the same object for the same graph, with new contents |
# | 7 padding and build | **3 Pad** | the article has it last; dummies are added *before* preparation, since they get rows like anybody |
#
# ## Break it on purpose: no padding
#
# The same four requests, on an engine that may not add dummies (it shares the model that is loaded already). Which of the ten steps will
# change?

# %%
exact = CudaGraphConfig(batch_sizes=(1, 2, 4), enable_padding=False, sample_modes=("greedy",))
with LLM(session.llm.loaded, replace(config, cuda_graph=exact)) as llm, Session(llm, prompts=workload) as other:
    for _ in range(10):
        other.step()
changed = [
    s for s, before in zip(other.trace.steps, session.trace.steps, strict=False) if s.graph.path != before.graph.path
]
for step in changed:
    print(f"step {step.step}: {step.path.num_requests} requests -> {step.graph.path} {step.path.reason}")

# %% [markdown]
# The same tokens, a row less, and no graph for two steps of ten. Nothing else tells.
#
# You have just seen three files: `engine/cuda_graphs/select.py` (the conditions, in order), `engine/inputs/prepare.py` (in place,
# never anew) and `engine/cuda_graphs/runner.py` (what is compared before a replay).
#
# **Exercises:** `ex01` count the batch: `stepscope check ex01 --start` in a terminal of the lab; elsewhere `.venv/bin/stepscope`.
