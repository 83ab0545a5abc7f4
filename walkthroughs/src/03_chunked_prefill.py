# %% [markdown]
# # 3. Chunked prefill
#
# **The question.** A prompt of 100 tokens arrives, and a step may hold 48 rows. How is it cut, and does the cut change the answer?
#
# A cut prompt is computed over several steps. The requests that already generate go on meanwhile, one row each: that
# is what chunking is for. The rule of `"fcfs"` (first come, first served):
#
# 1. requests in generation take their rows first;
# 2. then prompts, oldest first, each as much as is left;
# 3. a chunk that is cut short ends on a multiple of the *chunk unit*, here 16 tokens, a block: only whole blocks are left behind.
#
# **Simulated here:** nothing. Graphs are off, so every step runs eagerly on the CPU; `tiny` is a random model whose text is noise.

# %%
import dataclasses

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from engine.inputs.pack import pack
from lab import Session, show

long_prompt = [97 + (11 * i + i // 7) % 26 for i in range(100)]
short_prompt = [97 + (5 * i) % 26 for i in range(9)]
six_tokens = SamplingParams(max_tokens=6, ignore_eos=True, logprobs=1)


# %%
def config(max_num_tokens, chunking="fcfs"):
    scheduler = SchedulerConfig(max_batch_size=4, max_num_tokens=max_num_tokens, chunking=chunking, chunk_unit=16)
    return EngineConfig(device="cpu", max_seq_len=128, scheduler=scheduler, cuda_graph=CudaGraphConfig(enabled=False))


# %% [markdown]
# ## Predict before you look
#
# The short prompt (9 tokens) came first, the long one (100) right behind it. 48 rows a step. How many rows of the long prompt does
# each step compute, until it is done? The sizes add up to 100.

# %%
prediction = ["?"]  # for example [50, 50]

# %%
session = Session("tiny", prompts=[short_prompt, long_prompt], params=six_tokens, config=config(48))
steps = session.run().steps
chunks = [span for step in steps for span in step.schedule.spans if span.request_id == 1 and span.kind == "C"]
sizes = [span.num_rows for span in chunks]
verdict = "no answer yet" if "?" in prediction else "right" if prediction == sizes else "not so"
print(f"the long prompt was cut into {sizes}; you said {prediction}: {verdict}")
for step, span in zip(steps, chunks, strict=False):
    others = step.num_rows - span.num_rows
    last = span.start + span.num_rows - 1
    print(
        f"step {step.step}: positions {span.start:2} to {last:2}, {span.num_logit_rows} logit rows, {others} other rows"
    )

# %% [markdown]
# Step 0 has 39 rows left beside the short prompt, and the cut goes down to 32. In step 1 the short request already generates: 47 are
# left, and 32 + 47 = 79 goes down to position 64. The last chunk may have any length.
#
# **Positions go on, they do not start again**: the second chunk begins at position 32. And only the last chunk has a *logit row*: the
# ones before it fill the KV cache and sample nothing, since what follows the prompt's middle is already known.
#
# ## The same answer, however it is cut
#
# Each row attends to all that lies in the cache before it, whether that was written a microsecond or ten steps ago. So the cut
# changes shapes, not results. Four ways to cut, the same six tokens, and log-probabilities that agree to rounding:

# %%
results = {}
for rows, chunking in ((128, None), (64, "fcfs"), (32, "fcfs"), (19, "fcfs")):
    with LLM("tiny", config(rows, chunking)) as llm:
        [results[rows]] = llm.generate([long_prompt], six_tokens)
whole = results[128]
for rows, out in results.items():
    pairs = zip(whole.logprobs, out.logprobs, whole.token_ids, strict=True)
    apart = max(abs(a[token] - b[token]) for a, b, token in pairs)
    same = out.token_ids == whole.token_ids
    print(f"{rows:3} rows a step: same tokens {same}, log-probabilities at most {apart:.1e} apart, text {out.text!r}")

# %% [markdown]
# Not always bit for bit: products of other shapes may add up in another order. That is why this project compares tokens
# *by margin*: two runs may differ only where the two best tokens are tied.
#
# ## Where the article has it otherwise
#
# The article says that all contexts of a step must have the same chunk size, or the step is refused a graph. Two prompts of 40 and
# 100 tokens in a budget of 80 rows:

# %%
with Session("tiny", prompts=[long_prompt[:-41:-1], long_prompt], params=six_tokens, config=config(80)) as pair:
    mixed = [(span.request_id, span.num_rows) for span in pair.step().schedule.spans]
print("chunks of step 0 as (request, rows):", mixed)

# %% [markdown]
# The cut prompt, which came second, is packed first: it samples nothing, so those that sample stand together behind it.
#
# Unequal chunks are the normal case. In TensorRT-LLM, equal chunks are a condition for the *mixed graphs of encoder-decoder models*
# only (the context fields of its graph key belong to them); its schedulers produce unequal chunks freely. For a decoder, one
# context in the batch means "no decode graph", whatever its size, unless a single token of its prompt is left: it then runs as a decode row
# (which is what *promoted* in `HAS_CONTEXT_UNPROMOTED` means).
#
# ## The run, step by step
#
# Select a row of request 1 and step on: in *Pack* its positions continue, in *Metadata* its cached length grows 0, 32, 64.

# %%
show(session.trace, step=1, stage="PACKED")

# %% [markdown]
# ## Break it on purpose
#
# A popular mistake: positions counted within the chunk. Every engine here takes its decisions from a record, so one of them can be
# swapped, and nothing has to be patched. This `pack` lets each chunk begin at 0:


# %%
def pack_restarting(batch, block_table):
    host = pack(batch, block_table)
    restarted = []
    for span in batch.spans:
        first = 0 if span.kind == "C" else span.start
        restarted += range(first, first + span.num_rows)
    return dataclasses.replace(host, position_ids=tuple(restarted))


# %%
with LLM("tiny", config(48), decisions=Decisions(pack=pack_restarting)) as llm:
    [broken] = llm.generate([long_prompt], six_tokens)
print(f"right: {whole.text!r}\nwrong: {broken.text!r}, finish_reason {broken.finish_reason!r}, error {broken.error}")

# %% [markdown]
# Nothing crashed. The later chunks overwrote the cache of the first and were rotated to the wrong angles; the request ended
# normally, with another text. Nothing but a comparison tells the two apart.
#
# You have just seen three files: `engine/scheduler/chunking.py` (`chunk_rows`, the rule of the cut), `engine/inputs/pack.py`
# (positions) and `engine/decisions.py` (what may be swapped).
#
# **Exercises:** `ex03` chunk the prompt: `stepscope check ex03 --start` in a terminal of the lab; elsewhere `.venv/bin/stepscope`.
