# %% [markdown]
# # 7. Seven becomes eight
#
# **The question.** Seven requests generate, and there are graphs for batches of 1, 2, 4 and 8. A graph has one shape. How do seven
# requests run on the graph of eight, and who is the eighth?
#
# Not a blank. The padding dummy is a *request*, complete with an id, a sequence slot and a block of KV cache, because the graph's
# eighth row will write a key and a value somewhere, attend to something and sample a token. Every one of these must have a place
# where it does no harm.
#
# **Simulated here:** the graphs are a tape on the CPU; rows, blocks, slots and tokens are those of the engine.

# %%
import textwrap

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from lab import Session, counterfactual, show
from lab.faults.examine import run


# %%
def config(**graph):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=8, max_num_tokens=128),
        kv_cache=KVCacheConfig(tokens_per_block=8),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4, 8), sample_modes=("greedy",), **graph),
    )


# %%
prompts = [[97 + (7 * i + k) % 26 for i in range(4 + k)] for k in range(7)]
six_tokens = SamplingParams(max_tokens=6, ignore_eos=True)
session = Session("tiny", prompts=prompts, params=six_tokens, config=config())
step = session.run().steps[1]
rows, metadata = step.rows, step.metadata

# %% [markdown]
# ## Predict before you look
#
# Step 0 computed the seven prompts; step 1 is the first one in which all seven generate. In step 1:
#
# * how many rows does the forward pass have, and how many tokens come out to somebody?
# * the dummy's KV length after the step: how many tokens are in its cache?

# %%
prediction = {"rows": "?", "tokens that somebody gets": "?", "the dummy's KV length": "?"}

# %%
facts = {
    "rows": rows.num_rows,
    "tokens that somebody gets": len(step.outcome.tokens),
    "the dummy's KV length": int(metadata.kv_lens[-1]),
}
for name, guess in prediction.items():
    verdict = "no answer yet" if guess == "?" else "right" if guess == facts[name] else "not so"
    print(f"{name}: {facts[name]}    you said {guess}: {verdict}")
print(
    f"rows of the schedule: {step.schedule.budget.num_tokens}; graph: {step.graph.key}; padding: {step.path.num_padding}"
)

# %%
for at, request_id in enumerate(metadata.request_ids):
    who = "the dummy" if request_id < 0 else f"request {request_id}"
    place = f"slot {metadata.seq_slots[at]}, blocks {metadata.block_tables[at]}"
    print(
        f"{who:10} token {rows.token_ids[at]:3} at position {rows.positions[at]:2}, KV length {metadata.kv_lens[at]:2}, {place}"
    )

# %% [markdown]
# * **The dummy never met the scheduler.** The budget says 7 rows; padding comes two stages later, and it costs nobody a place.
# * Its token is 0 at position 0, its KV length 1, at every step: it writes its key and value over the same place again and again.
# * It has **a block and a slot that nobody else has**. They were reserved once, in warm-up, before traffic could fill the pool.
# * Eight rows were computed and seven are read.
#
# A bucket with more than one empty place gets the *same* dummy several times: equal rows, which write the same values to the same
# place. Five requests on the graph of eight:

# %%
with Session("tiny", prompts=prompts[:5], params=six_tokens, config=config()) as five:
    padded = five.run().steps[1]
print("requests in the batch:", padded.metadata.request_ids.tolist())
print("block tables of the last three:", padded.metadata.block_tables[5:])

# %% [markdown]
# ## What it costs, and what it changes
#
# Waste is what you see: one row of eight here. What padding may **not** change is anybody's answer. The same seven requests without
# padding, so eagerly:

# %%
with LLM("tiny", config(enable_padding=False)) as llm:
    unpadded = [out.text for out in llm.generate(prompts, six_tokens)]
padded_texts = [out.text for out in session.outputs]
print("same texts:", unpadded == padded_texts, padded_texts)

# %%
with Session("tiny", prompts=prompts, params=six_tokens, config=config(enable_padding=False)) as without:
    fallen = without.run()
print(fallen.steps[1].graph.path, fallen.steps[1].path.reason)
answer = counterfactual(fallen, 1)
print(textwrap.fill(answer.sentence, width=100))

# %%
show(session.trace, step=1, stage="PADDED")

# %% [markdown]
# ## Break it on purpose
#
# Two engines with a bad dummy, both modelled on public bugs. In the first, the dummy has no block of its own and is given the first
# one of a live request (TensorRT-LLM PRs 9873, 13278). In the second it is only reserved when a batch first needs it; by then
# requests hold every block (PR 16072):

# %%
for name in ("dummy-aliases-live-block", "lazy-dummy-in-a-full-pool"):
    outcome = run(name).report.outcomes[0]
    print(f"{name}: {outcome.verdict}")
    for right, got in outcome.texts:
        print(f"    {right!r:14} {'came out right' if got == right else f'came out as {got!r}'}")

# %% [markdown]
# The first is the saying "padding only costs time", refuted: one request's first token is overwritten by the dummy's, at each padded
# step. The second gives every right answer and no graph, for the rest of the process, without an error. Only somebody who counts
# paths notices; the reason has a name here, `NO_DUMMY_SLOT`.
#
# ## Where the article has it otherwise
#
# * It has padding **last**, after the attention metadata. Dummies are appended *before* preparation, in TensorRT-LLM as here: they get
#   rows, lengths and block tables like everybody. What is filled in at the end is something else, the tail of a *prefill bucket*:
#   rows that belong to no request at all.
# * It says that a dummy passes through the scheduler's books. It does not (in TensorRT-LLM only those of attention data parallelism do).
# * It shows padding as a matter of course. In TensorRT-LLM `enable_padding` is **off by default**, and without it only exact sizes hit
#   a graph; its own list of sizes is then 1 to 31, 32, 64, 128 and so on. Here it is on.
# * Backends that mark the dummies' KV rows as invalid: not found in the source. Their rows are valid, in a block that nobody reads.
#
# Other engines pad with less than a request: vLLM with numbers (slot -1, length 0), SGLang with a reserved row 0 that is really
# written, llama.cpp not with rows at all but with KV columns.
#
# You have just seen three files: `engine/cuda_graphs/dummies.py` (the dummy), `engine/inputs/padding.py` (how many) and
# `engine/cuda_graphs/buckets.py` (which sizes).
#
# **Exercises:** `ex16` choose the bucket, `ex18` build the dummy, `ex11` promote the last context: `stepscope check ex16 --start`.
