# %% [markdown]
# # 12. Why your batch fell off
#
# **The question.** The service has graphs up to a batch of 8, throughput looks as it always does, and now and then a token takes several
# times as long. Which steps were these, why, and what is the smallest change?
#
# It is the loudest complaint about serving engines: they leave the graph path *silently*. SGLang's issue 33900 measured about four times
# the latency per token, at a throughput that looked normal, because the batch grew past the largest captured size; vllm-ascend's issue
# 16049 lost the largest batches in the same way. Here every step says how it ran and, when it was eager, the first condition that
# failed.
#
# **Simulated here:** the trace is recorded by this notebook, on the CPU with the tape. Paths, reasons and batch sizes are real, its step
# times are not; those said to be an H200's are. The reasons need neither model nor torch, and work on any trace file; the proofs run the model again.

# %%
import collections
import contextlib
import io
import statistics
import tempfile
import textwrap
from dataclasses import replace
from pathlib import Path

from engine import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab import Session, Trace, counterfactual, show
from lab.cli.main import main

# %% [markdown]
# ## An hour in the life of a service, in sixty-odd steps
#
# 26 requests, at most 12 at a time. One user wants a temperature. This is the part that happened on the server:


# %%
def record(name, **graph):
    budget = SchedulerConfig(max_batch_size=12)
    config = EngineConfig(device="cpu", max_seq_len=64, scheduler=budget, cuda_graph=CudaGraphConfig(**graph))
    with Session("tiny", prompts=workload, config=config, mode="light") as session:
        return session.run().save(folder / f"{name}.trace.json.gz")


arrivals = [0, 0, 0, 1, 5, 5, 6, 9, 10, 11, 12, 12, 13, 20, 21, 22, 30, 31, 32, 33, 40, 41, 41, 42, 50, 50]
long, warm = SamplingParams(max_tokens=18, ignore_eos=True), SamplingParams(max_tokens=9, temperature=0.7, seed=3)
workload = [(at, [97 + (7 * i + j) % 26 for j in range(4 + i % 7)], long) for i, at in enumerate(arrivals)]
workload[22] = (41, workload[22][1], warm)

# %%
folder = Path(tempfile.mkdtemp())
path = record("served", batch_sizes=(1, 2, 4, 8), sample_modes=("greedy",))
trace = Trace.load(path)
print(path.name, f"{path.stat().st_size / 1000:.0f} kB,", trace)

# %% [markdown]
# ## Predict before you look
#
# Of the steps in which everybody generates (no prompt in the step), some run on a graph and some do not. For these batch sizes, what
# share runs on a graph: `"all"`, `"some"` or `"none"`?

# %%
prediction = {7: "?", 8: "?", 9: "?", 12: "?"}

# %%
decoding = [step for step in trace.steps if not step.metadata.num_contexts]
shares = {}
for size in sorted({step.path.num_requests for step in decoding}):
    ways = collections.Counter(step.path.reason or "on a graph" for step in decoding if step.path.num_requests == size)
    shares[size] = "none" if not ways["on a graph"] else "all" if len(ways) == 1 else "some"
    guess = prediction.get(size)
    verdict = "" if guess in (None, "?") else "right" if guess == shares[size] else f"you said {guess}: not so"
    print(f"{size:2} requests: {', '.join(f'{reason} x {count}' for reason, count in sorted(ways.items()))} {verdict}")

# %% [markdown]
# Up to 8 a batch has a graph, padded if need be (unless the one warm request is in it). **The ninth request takes it away from all nine.** What
# that costs, a tape cannot show. A small trace recorded on an H200 has both ways; times are the device's own, of whole steps:

# %%
h200, times = Path("data/h200_decode.trace.json.gz"), collections.defaultdict(list)
for step in Trace.load(h200).steps if h200.exists() else ():
    if step.graph.flight.device_us:
        begin, end = step.graph.flight.device_us
        times[step.path.num_requests, step.path.reason or "on a graph"].append((end - begin) / 1e3)
for (size, way), ms in sorted(times.items()):
    print(f"on an H200, {size} requests, {way}: {statistics.median(ms):.2f} ms (median of {len(ms)})")
if not times:
    print("no trace of a GPU lies in walkthroughs/data")

# %% [markdown]
# Without a graph the host starts kernel after kernel and the device waits for it, however few rows there are. (A step with a prompt in it
# starts other kernels and takes longer still; how many rows it has hardly matters to a model this small.) So the ninth request costs more
# than the eight before it, and everybody pays.
#
# The average hides it: most tokens come from good steps. Look at *stretches* instead, runs of steps without a graph; and let a shell or a
# CI job look at the share, with an exit status (1: not reached):

# %%
stretches = []
for step in decoding:
    last = stretches[-1][-1] if stretches else None
    if last and step.path.reason == last.path.reason and step.step == last.step + 1:
        stretches[-1].append(step)
    else:
        stretches.append([step])
for some in stretches:
    if some[0].path.reason:
        print(f"from step {some[0].step:2}, {len(some):2} in a row: {some[0].path.reason}")
status = main(["trace", "check", str(path), "--min-graph-share", "0.8"])
print("exit status:", status)

# %% [markdown]
# In the stepper `f` jumps from one fall-off to the next:

# %%
first = next(i for i, step in enumerate(trace.steps) if step.path.reason == "ABOVE_LARGEST_BUCKET")
show(replace(trace, steps=trace.steps[first - 3 : first + 17]), step=3, stage="GRAPH_CHOSEN")  # of the slice: step 13

# %% [markdown]
# ## The smallest change, proved
#
# A fix that sounds right is not enough: the lab re-runs the recorded requests with one changed field after another, until a step that
# does *the same work* takes a graph.

# %%
answers = {}
for reason in ("ABOVE_LARGEST_BUCKET", "SAMPLER_MODE_NOT_CAPTURED"):
    at = next(i for i, step in enumerate(trace.steps) if step.path.reason == reason)
    answers[reason] = counterfactual(trace, at)
    print(textwrap.fill(f"step {at}, {reason}: {answers[reason].sentence}", width=110), end="\n\n")

# %% [markdown]
# ## Do it, and record again
#
# The proof for one step adds its own size. The rule behind it: **a bucket list must end at the largest batch that a step may hold.** The
# config doctor says so before there is any traffic: `stepscope doctor --max-batch-size 12 --batch-sizes 1,2,4,8`.

# %%
fixed = Trace.load(record("fixed", batch_sizes=(1, 2, 4, 8, 12), sample_modes=("greedy", "full")))
for name, run in (("before", trace), ("after", fixed)):
    some = [step for step in run.steps if not step.metadata.num_contexts]
    share = sum(step.graph.path == "replay" for step in some) / len(some)
    print(f"{name:6}: {share:4.0%} of decode steps on graphs, {run.summary().padding_share:.1%} of rows padding")
print(fixed.summary())

# %% [markdown]
# What is left are the steps with prompts (`HAS_CONTEXT_UNPROMOTED`): these have no decode graph in any engine of this kind. Prefill graphs
# (`CudaGraphConfig.prefill_num_tokens`) are for them.
#
# ## Break it on purpose: a list that looks generous
#
# Six sizes instead of four, steps of two, and the maximum, 12, is not among them:

# %%
loose = Trace.load(record("loose", batch_sizes=(1, 2, 4, 6, 8, 10), sample_modes=("greedy", "full")))
lost = collections.Counter(step.path.num_requests for step in loose.steps if step.path.reason == "ABOVE_LARGEST_BUCKET")
print("steps without a graph, by batch size:", dict(sorted(lost.items())))
print(f"padding {loose.summary().padding_share:.1%} of rows")

# %% [markdown]
# Less padding than before, and the largest batches, in which most users wait, have lost their graph. Try `enable_padding=False` too.
#
# ## With a log of another engine
#
# TensorRT-LLM and vLLM log step statistics too, and these can be imported (`docs/import.md`; the sample here is our own, in the form of
# TensorRT-LLM's iteration log). What a log does not tell is missing in every view. This one does not say how a step ran, so its path
# follows from the list of captured sizes:

# %%
log = Path("..") / "lab" / "imports" / "samples" / "trtllm_iter.log"
form = ["--from", "trtllm-iter-log", "--buckets", "1,2,4,8"]
with contextlib.redirect_stdout(io.StringIO()):
    main(["trace", "import", str(log), *form, "--out", str(folder / "other.trace.json.gz")])
imported = Trace.load(folder / "other.trace.json.gz")
print(imported.summary())
for step in imported.steps[-3:]:
    print(f"step {step.step}: {step.path.num_requests} requests, {step.graph.path} {step.path.reason or ''}")

# %% [markdown]
# The ninth request again, and an *idle* iteration, 7, in which nothing ran. `show(imported)` opens it in the stepper.
#
# ## With your own service
#
# `with attach(llm) as recorder:` around whatever drives your engine, then `recorder.trace.save(path, redact=True)`: lengths, paths and times
# stay, tokens and text go (walkthrough 14). Neither a redacted nor an imported trace can be re-run: they have reasons and no proofs.
#
# You have just seen three files: `engine/reasons.py` (why a step may fall off), `lab/reasons.py` (the words and the fixes) and
# `lab/counterfactuals/search.py` (the proof).
#
# **Exercises:** `ex25` why did it fall off?, `ex17` design the bucket list: `stepscope check ex25 --start` in a terminal of the lab; elsewhere `.venv/bin/stepscope`.
