# %% [markdown]
# # 11. The key
#
# **The question.** Two batches of four requests, four rows each, the same shapes in every tensor. May they replay the same graph?
#
# Not always. A captured graph has a *branch* baked in wherever Python decided something while it was recorded. Here that is the
# sampler: a batch in which everybody takes the most likely token needs an argmax; a batch with one temperature in it needs noise, cuts
# and penalties. So the graph's key says which. The rule has two halves:
#
# * **sound**: everything that changes control flow or shapes inside the captured region is in the key;
# * **sparing**: nothing else is, since every further field multiplies captures and memory.
#
# **Simulated here:** the graphs are a tape on the CPU. Which graph is chosen, and what is baked into it, is real.

# %%
import textwrap
from dataclasses import replace
from pathlib import Path

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.cuda_graphs.key import SampleMode
from engine.cuda_graphs.select import select_graph
from engine.decisions import Decisions
from lab import Session, Trace, counterfactual, show


# %%
def config(**graph):
    sizes = CudaGraphConfig(batch_sizes=(2, 4), **graph)
    return EngineConfig(device="cpu", max_seq_len=64, scheduler=SchedulerConfig(max_batch_size=4), cuda_graph=sizes)


prompts = [[97 + (7 * i + k) % 26 for i in range(4 + k)] for k in range(4)]
greedy = SamplingParams(max_tokens=10, ignore_eos=True)
warm = SamplingParams(max_tokens=4, ignore_eos=True, temperature=0.8, seed=1)
workload = [*((0, prompt, greedy) for prompt in prompts[:3]), (3, prompts[3], warm)]

# %% [markdown]
# ## Predict before you look
#
# Three greedy requests start at step 0. At step 3 a fourth joins, with a temperature, for 4 tokens. There are buckets of 2 and 4. Which
# sampler does the step's graph have: `"greedy"`, `"full"`, or `"eager"` when there is no graph?

# %%
prediction = {2: "?", 3: "?", 4: "?", 6: "?", 7: "?"}

# %%
session = Session("tiny", prompts=workload, config=config())
steps = session.run().steps
h200 = Path("data/h200_decode.trace.json.gz")
for trace in (session.trace, *([Trace.load(h200)] if h200.exists() else [])):
    print(f"captured on {trace.header.device.device}:", *(one.key for one in trace.header.warmup.captures))
for at, guess in prediction.items():
    path = steps[at].path
    mode = "eager" if path.key is None else "full" if "full" in path.key else "greedy"
    verdict = "no answer yet" if guess == "?" else "right" if guess == mode else "not so"
    print(f"step {at}: {path.num_requests} requests, {path.key or path.reason}    you said {guess}: {verdict}")

# %% [markdown]
# Steps 2 and 4 run on graphs of the same bucket, with the same number of rows, at the same addresses, and they are two graphs. **One
# request decides for all**: while the warm one is there, the greedy ones run through the full sampler as well, at temperature 0, and
# get the same tokens as before. When it leaves, the batch goes back.
#
# Padding must not turn the flag: at step 7 three requests and a dummy run, and the dummy is greedy.
#
# ## What is in the key
#
# | field | why |
# |---|---|
# | `batch_size` | shapes: requests after padding |
# | `draft_len` | shapes: rows a request has when drafts are verified, 1 + K; one K for the whole batch |
# | `sample_mode` | a branch: argmax, or the full sampler |
# | `beam_width` | shapes: always 1 here, kept in the key for beam search |
#
# And what is **not**: lengths (kernels read them from memory), temperatures and seeds (contents), which requests they are.
#
# The checklist of a step, in the order in which the engine goes through it:

# %%
for line in steps[4].path.conditions:
    print(f"{'yes' if line.passed else 'NO ':4} {line.reason:28} needed: {line.needed}; got: {line.got}")

# %%
show(session.trace, step=4, stage="GRAPH_CHOSEN")

# %% [markdown]
# ## Sparing: capture fewer
#
# Two buckets times two samplers are four graphs. A service that only ever decodes greedily saves half of them, until one user comes
# with a temperature. The step then runs eagerly, with a reason, and the lab finds and proves the smallest change:

# %%
with Session("tiny", prompts=workload, config=config(sample_modes=("greedy",))) as lean:
    fallen = lean.run()
print([(step.step, step.path.reason) for step in fallen.steps if step.path.reason == "SAMPLER_MODE_NOT_CAPTURED"])
answer = counterfactual(fallen, 4)
print(textwrap.fill(answer.sentence, width=100))

# %% [markdown]
# ## Break it on purpose: leave the sampler out of the key
#
# `Decisions` lets us hand the engine another `select_graph`. This one looks up every batch as if it were greedy:


# %%
def select_by_shape(facts):
    return select_graph(replace(facts, sample_mode=SampleMode.GREEDY))


texts = {}
params = [replace(warm, max_tokens=10, temperature=4.0, seed=7), greedy, greedy, greedy]
for name, decisions in (("right", Decisions()), ("wrong", Decisions(select_graph=select_by_shape))):
    with LLM("tiny", config(), decisions=decisions) as llm:
        texts[name] = [out.text for out in llm.generate(prompts, params)]
    print(name, texts[name])

# %% [markdown]
# The request with a temperature gets the most likely token every time. Nobody is told: to a user it looks like a dull model. (Its first
# token is still right: it came from the eager step with the prompts.)
#
# There is a subtler way to the same harm: the field is in the key and is read **too early**, while it still holds the last step's value.
# `stepscope faults run stale-greedy-flag` shows it. In TensorRT-LLM the flag is filled after input preparation and needed before; its
# rule is to refresh it from the *padded* batch first, then make the key.
#
# ## Where the article has it otherwise
#
# * It presents `context_query_len` and "all chunks equal, or no key" as a matter of every model. These fields belong to the mixed graphs
#   of **encoder-decoder** models. For a decoder, any context in the batch already means that there is no decode graph.
# * It says that the forward discovers `runtime_draft_len`. The value is fixed **before** preparation, from a schedule by batch size, so
#   that rows and key agree; the runner may lower it and report that back.
# * Drafts of different lengths in one batch fail an assertion there, as it says. What it leaves out is how they come to be equal: short
#   drafts are padded with token 0, and what was padded is simply not accepted.
#
# You have just seen three files: `engine/cuda_graphs/key.py` (the key, with one constructor), `engine/cuda_graphs/select.py` (the
# checklist) and `engine/sampling/sampler.py` (the two branches).
#
# **Exercises:** `ex23` write the graph key: `stepscope check ex23 --start`.
