# %% [markdown]
# # 2. Budgets decide the shape
#
# **The question.** Four prompts wait, of 20, 30, 15 and 5 tokens. The machine has room for far more. Who runs in this step, and
# how many rows does the forward pass get?
#
# Three budgets answer it, each in its own unit:
#
# | budget | unit | configured by | used up by |
# |---|---|---|---|
# | rows | tokens computed in this step | `SchedulerConfig.max_num_tokens` | a prompt: its length; a request in generation: 1 |
# | requests | places in the batch | `SchedulerConfig.max_batch_size` | everybody: 1 |
# | blocks | pieces of KV cache | `KVCacheConfig.num_blocks` | a request's whole life, promised when it is let in |
#
# **Simulated here:** nothing. Graphs are off, so every step runs eagerly on the CPU; `tiny` is a random model whose text is noise.

# %%
from engine import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.errors import StepscopeError
from lab import Session, show

LENGTHS = (20, 30, 15, 5)
prompts = [[97 + (7 * i + 5 * n) % 26 for i in range(n)] for n in LENGTHS]  # token ids, so that lengths are exact


# %%
def start(*, max_batch_size=8, max_num_tokens=64, num_blocks=64, max_tokens=8, **scheduler):
    config = EngineConfig(
        device="cpu",
        max_seq_len=80,
        scheduler=SchedulerConfig(max_batch_size=max_batch_size, max_num_tokens=max_num_tokens, **scheduler),
        kv_cache=KVCacheConfig(num_blocks=num_blocks, tokens_per_block=16),
        cuda_graph=CudaGraphConfig(enabled=False),
    )
    return Session(
        "tiny", prompts=prompts, params=SamplingParams(max_tokens=max_tokens, ignore_eos=True), config=config
    )


# %% [markdown]
# ## Predict before you look
#
# No chunking: a prompt runs whole or not at all. For three row budgets, which requests (0 to 3, in the order of arrival) run in the
# first step? Replace each `"?"` by a list such as `[0, 3]`.

# %%
prediction = {64: "?", 65: "?", 70: "?"}

# %%
first = {}
for budget, guess in prediction.items():
    with start(max_num_tokens=budget) as session:
        first[budget] = step = session.step()
    ran = [span.request_id for span in step.schedule.spans]
    verdict = "no answer yet" if guess == "?" else "right" if guess == ran else "not so"
    print(f"budget {budget}: requests {ran} run, {step.num_rows} rows    you said {guess}: {verdict}")

# %% [markdown]
# **One more row in the budget lets a third request in.** It does not make anything faster by a sixty-fourth part; it changes *who
# runs*. At 64, request 3 would have fitted into the 14 rows that are left, and still it waits. Each held-back request carries its
# reason and both numbers:

# %%
for budget, step in first.items():
    for held in step.schedule.deferrals:
        print(f"budget {budget}: request {held.request_id} {held.reason}, needs {held.needed}, left {held.available}")

# %% [markdown]
# `BEHIND_BLOCKED_REQUEST` is deliberate. If short prompts could overtake, a long one might wait for ever; nobody overtakes, so
# nobody starves.
#
# ## The other two budgets
#
# The same four prompts with rows in plenty. Each request will grow to its prompt plus 7 tokens (the eighth is never fed back), and
# a block holds 16: 2, 3, 2 and 1 blocks.

# %%
for scarce in ({"max_batch_size": 3}, {"num_blocks": 5}):
    with start(max_num_tokens=70, **scarce) as session:
        step = session.step()
    ran = [span.request_id for span in step.schedule.spans]
    held_back = step.schedule.deferrals
    reasons = {held.request_id: f"{held.reason} (needs {held.needed}, left {held.available})" for held in held_back}
    print(f"{scarce}: requests {ran} run; {reasons}")

# %% [markdown]
# With 5 blocks the rows and the places are there, and the memory is not. The default policy, `guaranteed_no_evict`, counts what a
# request may need *until its end*, so that nobody who has started is ever thrown out. Request 3, again, stands behind request 2.
#
# There is another policy, `max_utilization`, which lets in whom it can *now*. When the pool runs dry it **pauses** whoever came last: the
# blocks go back, and later what was generated is computed again as part of the prompt. More requests at once, paid for with rows:

# %%
texts = {}
for policy in ("guaranteed_no_evict", "max_utilization"):
    with start(max_num_tokens=80, num_blocks=6, max_tokens=14, capacity_policy=policy) as session:
        steps = session.run().steps
    texts[policy] = [out.text for out in session.outputs]
    ran = [span.request_id for span in steps[0].schedule.spans]
    paused = {step.step: step.schedule.paused for step in steps if step.schedule.paused}
    rows = sum(step.num_rows for step in steps)
    print(f"{policy}: {ran} run in step 0; paused {paused or 'never'}; {rows} rows in {len(steps)} steps")

# %% [markdown]
# The texts are the same either way: a pause is a matter of time.
#
# ## The whole run, with the budget of 64
#
# Requests in generation go first, one row each; prompts share what is left. Watch the row count: 50, then 22 = 2 + 15 + 5, then 4.
# A step is as wide as its work.

# %%
session = start(max_num_tokens=64)
for step in session.run().steps[:4]:
    kinds = " ".join(f"{span.kind}{span.request_id}x{span.num_rows}" for span in step.schedule.spans)
    used = step.schedule.budget
    print(
        f"step {step.step}: {kinds:24} {used.num_tokens:2} of {used.max_num_tokens} rows, forward pass: {step.num_rows}"
    )

# %%
show(session.trace, step=0, stage="SCHEDULED")

# %% [markdown]
# ## Where the article has it otherwise
#
# Under the scheduler picture the article reads the gap between the current tokens and *Max Num Tokens* as capacity that is filled
# with padding, "executed in the budget's shape". It is not: the gap is **unused budget**. Nothing here, and nothing in
# TensorRT-LLM, is padded to `max_num_tokens`; TensorRT-LLM's padding goes to decode buckets or to prefill buckets (see its
# `get_padding_params`, which pads to a bucket's size), and both come later and have nothing to do with the scheduler. In the table
# above, the last number of each line is the number of rows that really ran.
#
# ## Break it on purpose
#
# Ask for what can never be granted. A prompt longer than the row budget would wait for ever, so it is refused when it is submitted,
# and a budget that could not even give each request its one row is refused before there is an engine.

# %%
for attempt in (
    lambda: session.llm.submit([97] * 70),
    lambda: SchedulerConfig(max_batch_size=8, max_num_tokens=4),
):
    try:
        attempt()
    except StepscopeError as refusal:
        print(f"{type(refusal).__name__}: {refusal}", end="\n\n")

# %% [markdown]
# The first message names the way out: let a prompt run in pieces. That is [walkthrough 3](03_chunked_prefill.ipynb).
#
# You have just seen three files: `engine/scheduler/capacity.py` (blocks and places), `engine/scheduler/micro_batch.py` (rows) and
# `engine/scheduled.py` (the record that comes out).
#
# **Exercises:** `ex01` count the batch, `ex02` admit under three budgets: `stepscope check ex02 --start` in a terminal of the lab; elsewhere `.venv/bin/stepscope`.
