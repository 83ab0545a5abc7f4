# %% [markdown]
# # 9. Steady state
#
# **The question.** Four requests have been generating for a while, and the next step has the same four in the same order. What is
# left to do before the replay?
#
# Two things: positions grow by one, in place, and one gather fetches the tokens that the last step left on the device. No list is
# packed, nothing is copied from the host. That is the *steady* path, and its precondition is a comparison of lists. The hard part is
# not the use. It is knowing when a step may leave something to be used.
#
# **Simulated here:** the graphs are a tape on the CPU. The host times below are real times of this machine, and of the stages that a
# GPU machine's host has too; the replay's own time is not.

# %%
import statistics
from dataclasses import replace
from pathlib import Path

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from lab import Session, Trace, show
from lab.faults.examine import run
from lab.snapshot import STAGES

# %%
config = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
    cuda_graph=CudaGraphConfig(batch_sizes=(2, 4), sample_modes=("greedy",)),
)
prompts = [[97 + (7 * i + k) % 26 for i in range(4 + k)] for k in range(4)]
lengths = (20, 20, 8, 14)
params = [SamplingParams(max_tokens=n, ignore_eos=True) for n in lengths]
session = Session("tiny", prompts=prompts, params=params, config=config, mode="light")
steps = session.run().steps

# %% [markdown]
# ## Predict before you look
#
# Four requests start together; request 2 ends after 8 tokens (its last step is 7), request 3 after 14 (step 13), the others after 20.
# There are graphs for 2 and 4. Step 0 computes the prompts. Which of these steps are steady? `True` or `False` for each.

# %%
prediction = {1: "?", 2: "?", 7: "?", 8: "?", 9: "?", 13: "?", 14: "?", 15: "?"}

# %%
for at, guess in prediction.items():
    why_not = steps[at].graph.steady
    path = steps[at].path
    verdict = "no answer yet" if guess == "?" else "right" if guess == (not why_not) else "not so"
    shape = f"{path.num_requests} requests on bucket {path.bucket}"
    print(f"step {at:2}: {shape}, {why_not or 'STEADY':25} you said {guess}: {verdict}")

# %% [markdown]
# * **Step 1 is not**: nobody has recorded anything yet. It is the first step in which every row is a generation, and it leaves the
#   record that step 2 uses.
# * **Step 8 is not**: three requests instead of four. Equal *number* would not be enough either; the same requests in the same order.
# * **Steps 9 to 13 are not, though nothing changes in them.** Three requests on the graph of four: the fourth row is a dummy, and a
#   dummy has no previous sample to gather. A padded step never leaves a record. This is the trap of the two mechanisms: padding brings
#   a batch onto a graph, and keeps it off the steady path.
# * **Step 14** fits the graph of 2 exactly, and records; from 15 on it is steady again.
#
# ## What it saves
#
# Who writes which buffer, in a full step and in a steady one, and the median host time of the stages on this machine:

# %%
quiet = next(step for step in steps if not step.graph.steady and not step.reservation.new_blocks)
for step in (steps[1], quiet):
    print(f"step {step.step}: {step.graph.steady or 'STEADY'}")
    for view in step.buffers:
        if view.writes and view.layer != "static":
            print(f"    {view.layer} {view.name}:", ", ".join(sorted({w.writer for w in view.writes})))

# %%
traces = {"": session.trace}
if (h200 := Path("data/h200_decode.trace.json.gz")).exists():
    traces["H200 "] = Trace.load(h200)
paths = {}
for name, trace in traces.items():
    decoding = [step for step in trace.steps if step.graph.path == "replay"]
    paths[f"{name}full"] = [step for step in decoding if step.graph.steady]
    paths[f"{name}steady"] = [step for step in decoding if not step.graph.steady]

# %%
print(f"{'median host time':16}" + "".join(f"{name:>12}" for name, some in paths.items() if some))
for at in range(3, 7):  # Choose graph, Pack, Copy, Metadata
    medians = [statistics.median(float(step.host_us[at]) for step in some) for some in paths.values() if some]
    print(f"{STAGES[at]:16}" + "".join(f"{us:9.0f} us" for us in medians))

# %% [markdown]
# A full step writes every list; a steady one adds in place and gathers once. Blocks are the exception that is allowed: when a request
# is given another block, the cache manager names it, and of the block table only what is new is written.
#
# In the stepper, compare stage *Copy* of steps 1, 3 and 9.

# %%
show(session.trace, step=3, stage="COPIED")

# %% [markdown]
# ## One step ahead
#
# Since a steady step needs no token on the host, it need not wait for one: with `EngineConfig(overlap=True)` step N + 1 is laid out and
# sent off while the sample of step N is still on the device. The host then learns one step late that a request has ended. Request 0 here
# ends at a stop token, which nobody can foresee:

# %%
unforeseen = SamplingParams(max_tokens=12, stop_token_ids=(107,))
served = {}
for overlap in (False, True):
    with Session(
        "tiny", prompts=prompts[:2], params=[unforeseen, params[2]], config=replace(config, overlap=overlap)
    ) as ahead:
        spans = [[span.request_id for span in step.schedule.spans] for step in ahead.run().steps]
        served[overlap] = [out.text for out in ahead.outputs]
    print(f"overlap {overlap!s:5}: requests by step {spans}, texts {served[overlap]}")

# %% [markdown]
# One row too many for request 0, in step 3, whose token is thrown away and never shown. An end that can be foreseen (`max_tokens`) costs
# nothing.
#
# ## Break it on purpose: keep the record too long
#
# The use test compares requests. Suppose that is all somebody implements, with a record that survives the steps in between. Requests
# A and B generate, C joins for three steps and leaves: A and B again, in the same order, and the record of four steps ago.

# %%
fault = run("steady-record-not-dropped")
outcome = fault.report.outcomes[0]
print(fault.report.fault.rule)
for right, got in outcome.texts:
    print(f"    {right!r:14} {'as it should be' if right == got else f'came out as {got!r}'}")
print("guards on:", run("steady-record-not-dropped", guards="on").report.outcomes[0].message)

# %% [markdown]
# Positions and lengths are one step behind for each step missed: the rows overwrite KV that is still wanted. So here every full step
# drops the record first, whatever it is, and so does every rollback.
#
# Being too careful is the other mistake, and no test of correctness finds it. This engine never takes the fast path; its texts are
# right:

# %%
texts = {}
for name, decisions in (("engine", Decisions()), ("careful", Decisions(why_not_use_steady=lambda *_: "HAS_CONTEXTS"))):
    with LLM("tiny", config, decisions=decisions) as llm:
        texts[name] = [out.text for out in llm.generate(prompts, params)]
print("same texts:", texts["engine"] == texts["careful"])

# %% [markdown]
# ## Where the article has it otherwise
#
# * It gives the **use test** only (same ids, no contexts, no drafts). What makes the path sound is the **recording test**: about twenty
#   conditions in TensorRT-LLM, eleven here, on the step that leaves the record.
# * It reads as if steady steps and padded buckets go together. A padded batch never qualifies: see steps 9 to 13.
# * Its first fast path, "for batches of pure decoding", returns nothing for decoders; encoder-decoder models use it.
# * Its argument for two position counters, one on the device and one on the host, is right: neither may be the source of the other
#   while a copy is under way. The bug number it quotes belongs to another buffer (walkthrough 4).
#
# You have just seen three files: `engine/inputs/steady.py` (the two tests), `engine/runners/steady_path.py` (who holds the record, and
# drops it) and `engine/attention/block_tables.py` (only the rows that changed).
#
# **Exercises:** `ex21` may I take the fast path?, `ex22` add one, gather once: `stepscope check ex21 --start`.
