# %% [markdown]
# # 5. Packing three kinds of row
#
# **The question.** One request is in the middle of its prompt, two generate, and a fourth place in the bucket is empty. What does the
# one tensor look like that the model gets, and which of its rows become tokens?
#
# The batch has no batch dimension. It is *one row of tokens with a legend*: request after request, each as many rows as it needs.
#
# | kind | rows | where its token comes from | logit rows |
# |---|---|---|---|
# | **C** context | a chunk of the prompt | host list: the prompt is known | 1 when the prompt ends here, else 0 |
# | **E** extend (verify) | the newest token and K drafts | the last sample, and the caller's guess | 1 + K |
# | **G** generation | 1 | *the device*: what was sampled last lies there, at the request's slot | 1 |
# | **P** padding | 1 | nowhere: zero-filled | 1, which nobody reads |
#
# **Simulated here:** the graphs are a tape on the CPU; the layout, the buffers and the tokens are those of the engine.

# %%
import dataclasses

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from engine.inputs.pack import pack
from lab import Session, attach, show
from lab.snapshot import ROW_KINDS, ROW_SOURCES

# %%
config = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=8, max_num_tokens=24, chunking="fcfs", chunk_unit=8),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), sample_modes=("greedy",)),
)
six_tokens = SamplingParams(max_tokens=6, ignore_eos=True)
prompts = [[97 + (7 * i + k) % 26 for i in range(n)] for n, k in ((5, 1), (4, 2), (30, 3))]
arrivals = [(0, prompts[0]), (0, prompts[1]), (2, prompts[2])]
session = Session("tiny", prompts=arrivals, params=six_tokens, config=config)
steps = session.run().steps

# %% [markdown]
# ## Predict before you look
#
# Requests 0 and 1 came first and generate. Request 2 (30 tokens) comes at step 2, when 22 of 24 rows are left for it: its first
# chunk has 16 rows, the second, at **step 3**, the last 14. For step 3:
#
# * in which order do the requests stand in the row of tokens?
# * which rows reach the LM head? (Rows count from 0; there are 16.)

# %%
prediction = {"order": "?", "gather_ids": "?"}  # for example [0, 1, 2] and [0, 1]


# %%
def layout(step):
    rows, lines = step.rows, {}
    lines["request"], lines["kind"] = rows.request_ids, [ROW_KINDS[k] for k in rows.kinds]
    lines["position"], lines["token"] = rows.positions, rows.token_ids
    lines["from"] = [ROW_SOURCES[s][:4] for s in rows.sources]  # prompt, previous_sample, zero_fill
    lines["slot"] = ["" if slot < 0 else slot for slot in rows.source_slots]
    lines["logits"] = ["x" if at in rows.gather_ids else "" for at in range(rows.num_rows)]
    print(f"step {step.step}, {step.graph.path}, {rows.num_rows} rows")
    print("\n".join(f"{name:8}" + "".join(f"{value!s:>5}" for value in values) for name, values in lines.items()))


layout(steps[3])

# %%
rows = steps[3].rows
facts = {"order": list(dict.fromkeys(rows.request_ids.tolist())), "gather_ids": rows.gather_ids.tolist()}
for name, guess in prediction.items():
    verdict = "no answer yet" if guess == "?" else "right" if guess == facts[name] else "not so"
    print(f"{name}: {facts[name]}    you said {guess}: {verdict}")

# %% [markdown]
# * **The newcomer stands first.** Row order is a rule of correctness, not of arrival: contexts, then generations, then padding. So
#   all rows that the host must write form one range, all rows that a gather fills form the next, all zeros the last: one operation
#   each.
# * **Three of sixteen rows reach the LM head**: the last row of the finished prompt and one for each generation. A step earlier, when
#   request 2 was in the middle of its prompt, it had none:

# %%
layout(steps[2])

# %%
layout(steps[4])

# %% [markdown]
# Step 4 has four rows: request -2 is the padding dummy. Its token is zero *in this step*, written by a fill of its own, because
# neither the host copy nor the gather reaches it. And the order is by request again: each request's previous sample lies at its
# **slot**, so it does not matter in which row it stood last time.
#
# ## Step through it
#
# In stage *Pack* select a row of request 2 and go through steps 2 to 5: sixteen rows, fourteen, one, one.

# %%
show(session.trace, step=3, stage="PACKED")

# %% [markdown]
# ## The third kind: rows that verify a guess
#
# Somebody, a small model or a user who has seen this text before, guesses how a request goes on. Then its next step has not one row but
# 1 + K: the newest token and K *drafts*, all computed at once, each with a logit row that says what the model would have put there. The
# guess (K is `SchedulerConfig.draft_len`, 4) is kept as far as it agrees; behind that comes one token of the model's own. Everybody in the step gets 1 + K rows, since the
# shape is one for the whole batch; those without a guess have zeros, which are never accepted.
#
# Here the third token of request 1's guess is wrong. Which tokens does the step give it?

# %%
with LLM("tiny", config) as llm:
    [known] = llm.generate([prompts[0]], six_tokens)
    guess = [*known.token_ids[:2], 0, *known.token_ids[3:]]
    with attach(llm, mode="full") as recorder:
        llm.submit(prompts[0], six_tokens, draft_tokens=guess)
        llm.submit(prompts[1], six_tokens)
        finished = []
        while llm.has_unfinished:
            finished += llm.step()
verify = recorder.trace.steps[1]
layout(verify)
print("sampled:", verify.outcome.tokens, " alone it was:", known.token_ids)

# %% [markdown]
# The first token had come with the prompt. The draft for the second was right, the one for the third was not: the step gives two tokens,
# the second and *the model's own third*. What the wrong draft and those behind it left in the KV cache is rewound. In the end the text is
# the one that it would have been without any guess:

# %%
print({out.request_id: out.text for out in finished}, known.text)

# %% [markdown]
# ## Break it on purpose: rows instead of slots
#
# The classical mistake is to think that row i of the last samples is row i now. This `pack` hands out the slots of the generations
# in reverse. Every shape is right, every slot is a valid one:


# %%
def pack_swapped(batch, block_table):
    host = pack(batch, block_table)
    return dataclasses.replace(host, previous_batch_indices=host.previous_batch_indices[::-1])


texts = {}
for name, decisions in (("right", Decisions()), ("wrong", Decisions(pack=pack_swapped))):
    with LLM("tiny", config, decisions=decisions) as llm:
        texts[name] = [out.text for out in llm.generate(prompts[:2], six_tokens)]
    print(name, texts[name])

# %% [markdown]
# Two users, and each goes on with the other's word. No shape, no address and no check before a replay can see this: the numbers are
# all valid. What finds it is a comparison with the requests themselves, row by row (the lab's *audit* does that), or a user.
#
# ## Where the article has it otherwise
#
# * It says that `gather_ids` can be known only in the middle of the forward, when the drafts have been accepted. In TensorRT-LLM they
#   are made **on the host before the forward** (all rows of a verify request, the last row of a context); what is accepted is decided
#   *after* the gather. Here too: the list above was packed in stage 5 of 10.
# * It lets the last chunk of a prompt join the decode batch. Only a remainder of **exactly one token** can, all such contexts of a step
#   or none (`engine/cuda_graphs/promote.py`): a row of one token has a decode's shape, fourteen rows do not.
# * It describes rows with a previous sample as a beam-search matter (`previous_batch_indices`). They are every decoder's.
#
# You have just seen three files: `engine/inputs/pack.py` (the layout), `engine/inputs/host_inputs.py` (its record, and the three
# segments) and `engine/scheduled.py` (the three integers that each request states).
#
# **Exercises:** `ex09` pack three worlds, `ex10` where does this token come from, `ex11` promote the last context, `ex12` gather ids (and `ex07`, `ex08`, how the lists get to the device):
# `stepscope check ex09 --start`.
