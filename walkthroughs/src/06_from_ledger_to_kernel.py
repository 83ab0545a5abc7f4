# %% [markdown]
# # 6. From ledger to kernel
#
# **The question.** Attention has to find keys and values of tokens that were computed long ago, in pieces, in any order, some of them for
# *another request*. What does the kernel get, and how does a prefix that somebody else computed become less work?
#
# The cache is a pool of blocks, here of 8 tokens each. The ledger (`KVCacheManager`) knows which blocks belong to whom. From it, for each
# sequence of a step, come three lengths and a list:
#
# | | meaning |
# |---|---|
# | `seq_lens` | rows of this step: the queries |
# | `cached` | tokens that are in the cache already, before this step |
# | `kv_lens` | tokens to attend to: `cached + seq_lens` |
# | block table | the blocks in the order of the tokens: token t lies in block `table[t // 8]`, place `t % 8` |
#
# **Simulated here:** the graphs are a tape on the CPU. The ledger, the lengths and the tables are those of the engine.

# %%
from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from lab import Session, show
from lab.faults.examine import run


# %%
def config(*, reuse=True):
    return EngineConfig(
        device="cpu",
        max_seq_len=96,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=128),
        kv_cache=KVCacheConfig(tokens_per_block=8, num_blocks=40, enable_block_reuse=reuse),
        cuda_graph=CudaGraphConfig(batch_sizes=(2, 4), sample_modes=("greedy",)),
    )


# %%
def tokens(count, first):
    return [97 + (7 * i + first) % 26 for i in range(count)]


system = tokens(32, 1)  # four full blocks that all prompts begin with
prompts = [system + tokens(6, 2), system + tokens(9, 5), system + tokens(9, 5)]
five = SamplingParams(max_tokens=5, ignore_eos=True)
arrivals = [(0, prompts[0]), (3, prompts[1]), (4, prompts[2])]

# %% [markdown]
# ## Predict before you look
#
# Request 0 (32 + 6 tokens) comes at step 0. Request 1 begins with the same 32 tokens and has 9 of its own; it comes at step 3. Request 2,
# at step 4, has **exactly the prompt of request 1**, all 41 tokens. How many rows of its prompt does each compute?

# %%
prediction = {0: "?", 1: "?", 2: "?"}

# %%
session = Session("tiny", prompts=arrivals, params=five, config=config())
steps = session.run().steps
firsts = {0: steps[0], 1: steps[3], 2: steps[4]}
computed = {}
for request_id, guess in prediction.items():
    metadata, length = firsts[request_id].metadata, len(prompts[request_id])
    computed[request_id] = rows = int(metadata.seq_lens[metadata.request_ids.tolist().index(request_id)])
    verdict = "no answer yet" if guess == "?" else "right" if guess == rows else "not so"
    print(f"request {request_id}: {length} prompt tokens, {rows} rows    you said {guess}: {verdict}")

# %% [markdown]
# **A prefix hit shows up as one number, `cached`, and the work shrinks to the difference.** And request 2 computes one row although all of
# its prompt is known: somebody has to produce the logits from which its first token is drawn. At least one prompt token is always computed.
#
# Here are the ledger's numbers on their way to the kernel. Equal block ids are *the same memory*:

# %%
for number in (0, 3, 4, 5):
    metadata = steps[number].metadata
    print(f"step {number}, {steps[number].graph.path}")
    for at, request_id in enumerate(metadata.request_ids):
        lengths = f"{metadata.seq_lens[at]:2} rows + {metadata.cached_lens[at]:2} cached = {metadata.kv_lens[at]:2}"
        print(f"    request {request_id:2}: {lengths}, blocks {metadata.block_tables[at]}")

# %% [markdown]
# * Request 1's first four blocks are request 0's. The hit ends at a block's end: only whole blocks are matched by their tokens (part of
#   a block can be reused by copying it, when it has something of use).
# * **Step 4 runs on a graph, with a prompt in it.** One row is left of request 2's prompt, and a prompt of one row has the shape of a
#   decode row. It is *promoted*: it joins the generations for this step. Prefix reuse is what makes such remainders common.
# * Each writes into blocks of its own: the row at position `cached` goes to the last block, which nobody shares.
#
# Does it change the answer? The same three prompts with reuse switched off:

# %%
with LLM("tiny", config(reuse=False)) as llm:
    without = [out.text for out in llm.generate(prompts, five)]
outputs = session.outputs
print("same texts:", without == [out.text for out in outputs], without)
print("cached tokens, reported once a request:", [out.cached_tokens for out in outputs])

# %%
show(session.trace, step=4, stage="METADATA")

# %% [markdown]
# ## Break it on purpose: a column that nobody wrote
#
# A block table lies on the device and is kept up by what changed. Suppose a request grows into a new block and its row of the table is
# not written again: the new column still says block 0. Blocks of four tokens, two requests that grow:

# %%
fault = run("stale-block-table-column")
outcome = fault.report.outcomes[0]
print(fault.report.fault.explanation)
for right, got in outcome.texts:
    print(f"    {right!r:14} {'as it should be' if right == got else f'came out as {got!r}'}")
print("with the lab's audit:", run("stale-block-table-column", guards="on").report.outcomes[0].message)

# %% [markdown]
# The tokens of both requests went into block 0 and over each other. Block 0 is a valid block, so there is no illegal access to be had:
# unused entries must be valid, and for the same reason nothing notices when they are used. nano-vllm's issue 258 and vLLM's 8068 are
# bugs of this kind.
#
# ## Where the article has it otherwise
#
# * It explains `num_chunked_ctx_requests` as the bookkeeping of chunked prefill. It is the number of **verify** requests that are treated
#   as contexts, in one mode of speculation.
# * It says that `seq_lens` is updated in place by kernels under a graph. `seq_lens` is constant for a graph; what grows is `kv_lens`.
# * It says that backends mark the KV rows of padding as invalid in `prepare()`, by `padded_num_tokens`. In the source that number is set
#   *after* `prepare()`, and nothing was found that marks anything: padding rows have no sequence, padding requests have blocks of their own.
# * It stresses that the metadata holds a *reference* to the cache manager. So it does there. Here it gets a frozen record of tuples
#   instead, so that what a step was prepared from cannot change under it.
#
# You have just seen three files: `engine/kv_cache/manager.py` (the ledger), `engine/attention/paged.py` (lengths and tables as device
# tensors) and `engine/attention/block_tables.py` (only what changed is written).
#
# **Exercises:** `ex13` slot mapping, `ex14` three lengths, `ex11` promote the last context: `stepscope check ex13 --start`.
