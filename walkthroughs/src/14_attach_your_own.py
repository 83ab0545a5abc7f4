# %% [markdown]
# # 14. Attach your own
#
# **The question.** You have a program that drives an `LLM`, and some of its steps are not what you expected. How do you see what every
# step did, without changing the program, and without changing what it does?
#
# `with attach(llm) as recorder:` around the part that you want to see. That is all. This walkthrough does it to a small service, reads the
# report, makes a file that may leave the house, and then writes an observer of its own.
#
# **Simulated here:** the graphs are a tape on the CPU. On a machine with a GPU the same lines record real graphs; host times are real on both.

# %%
import tempfile
import textwrap
from pathlib import Path

import numpy as np

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.probe import Stage
from lab import Trace, attach, show
from lab.cli.main import main
from lab.snapshot import STAGES

# %% [markdown]
# ## The program
#
# Yours will be another. This one answers in rounds: three users, then one who is called away, then five at once.


# %%
def serve(llm):
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    texts = [out.text for out in llm.generate(["What is a block?", "What is a slot?", "And a bucket?"], params)]
    called_away = llm.submit("Tell me everything about padding.", params)
    for _ in range(3):
        llm.step()
    llm.abort(called_away)
    return texts + [out.text for out in llm.generate([f"Question {i}" for i in range(5)], params)]


# %%
graphs = CudaGraphConfig(batch_sizes=(1, 2, 4), sample_modes=("greedy",))
config = EngineConfig(device="cpu", max_seq_len=64, scheduler=SchedulerConfig(max_batch_size=8), cuda_graph=graphs)

# %% [markdown]
# ## Predict before you look
#
# 1. Are the texts the same with a recorder attached? (`True` or `False`)
# 2. How many records does a step hand to an observer?
# 3. There are graphs for 1, 2 and 4. Five users at once: are their decode steps on a graph?

# %%
prediction = {"same texts": "?", "records a step": "?", "five users on a graph": "?"}

# %%
with LLM("tiny", config) as llm:
    alone = serve(llm)
with LLM("tiny", config) as llm, attach(llm) as recorder:
    watched = serve(llm)
trace = recorder.trace
fives = [step for step in trace.steps if step.path.num_requests == 5 and not step.metadata.num_contexts]
facts = {"same texts": alone == watched, "records a step": len(STAGES)}
facts["five users on a graph"] = fives[0].path.key is not None
for name, guess in prediction.items():
    verdict = "no answer yet" if guess == "?" else "right" if guess == facts[name] else "not so"
    print(f"{name}: {facts[name]}    you said {guess}: {verdict}")

# %% [markdown]
# An observer cannot change a run: it gets records that the engine made anyway, and an unwatched engine pays one comparison at each of the
# ten places. (Watching costs: in `LOG.md`, a light recorder 1.12 of the time of a step of `tiny`, which is all host time; no recorder 1.00.)
#
# ## Read the report
#
# First the whole run, then any step in words, then where the host's time went:

# %%
print(trace.summary(), end="\n\n")
print(textwrap.fill(trace.explain(fives[0].step), width=110), end="\n\n")
for name, has_prompt in (("with a prompt", True), ("decode only", False)):
    times = np.array([step.host_us for step in trace.steps if (step.metadata.num_contexts > 0) is has_prompt])
    medians = dict(zip(STAGES, np.nanmedian(times, axis=0).round().astype(int).tolist(), strict=True))
    print(f"{name:13}", medians)

# %% [markdown]
# `RAN` is the forward itself where the host runs it, as here; on a GPU it is the launch. A step is *steady* when Pack is near zero
# (walkthrough 9).
#
# ## A file that may leave the house
#
# `redact=True` keeps lengths, paths, reasons and times, and drops tokens, text and stop strings. Whoever gets the file needs neither the
# model nor torch.

# %%
path = trace.save(Path(tempfile.mkdtemp()) / "service.trace.json.gz", redact=True)
sent = Trace.load(path)
print(
    f"{path.stat().st_size / 1000:.0f} kB, {len(sent)} steps, prompts {[r.prompt_text for r in sent.header.requests][:2]}"
)
print("tokens of step 1:", sent.steps[1].outcome.tokens, " path:", sent.steps[1].graph.key)
status = main(["trace", "check", str(path), "--min-graph-share", "0.9"])

# %%
show(trace, step=fives[0].step, stage="GRAPH_CHOSEN")

# %% [markdown]
# ## An observer of your own
#
# A probe is one method. It sees each stage's record while the step runs. This one counts what the recorder does not: how many rows were
# computed for requests that never finished.


# %%
class RowsByRequest:
    def __init__(self):
        self.rows = {}

    def emit(self, stage, step, value):
        if stage is Stage.SCHEDULED:
            for span in value.spans:
                self.rows[span.request_id] = self.rows.get(span.request_id, 0) + span.num_rows


# %%
with LLM("tiny", config) as llm:
    llm.set_probe(probe := RowsByRequest())
    serve(llm)
print("rows by request:", probe.rows, " lost with the user who was called away:", probe.rows[3])

# %% [markdown]
# ## Break it on purpose: keep what was lent
#
# A stage's record is *lent*: it may be read inside `emit` only. What happens to an observer that keeps the tensor and not a copy?


# %%
class Keeper:
    def __init__(self):
        self.kept, self.copied = [], []

    def emit(self, stage, step, value):
        if stage is Stage.COPIED:
            self.kept.append(value.input_ids[:1])
            self.copied.append(int(value.input_ids[0]))


# %%
with LLM("tiny", config) as llm:
    llm.set_probe(keeper := Keeper())
    llm.generate("abc", SamplingParams(max_tokens=6, ignore_eos=True))
print("copied inside emit:", keeper.copied)
print("kept and read later:", [int(view[0]) for view in keeper.kept])

# %% [markdown]
# Every kept view shows the last step, since the buffer is the same at every step and only its contents change (walkthrough 4). The recorder
# copies inside `emit`; that is `lab/freeze.py`, all of it. Two more rules: an exception in a probe is not swallowed (the step is undone and
# the exception reaches whoever called `step`), and an engine has one observer at a time.
#
# You have just seen three files: `engine/probe.py` (ten stages, one method), `lab/recorder.py` (the observer that you attached) and
# `lab/freeze.py` (what it copies).
#
# **Exercises:** `ex25` why did it fall off? asks for this on a long trace: `stepscope check ex25 --start`.
