# %% [markdown]
# # 8. The stale tail
#
# **The question.** A graph was captured for four rows. Somebody copies three tokens into its input and replays. What happens?
#
# No error, whoever you ask: the copy is legal, and the replay reads four rows, as it always does. The fourth holds **what
# somebody left there earlier**. This walkthrough is about the quietest bug of the graph path, and about the rule against it: *on the way to a
# replay every row gets a value that means something in this step.*
#
# **Simulated here:** the graphs are a tape on the CPU. Contents, addresses and the harm are real: a tape, like a CUDA graph, reads
# all its rows whatever was copied.

# %%
import torch

from lab import show
from lab.faults.examine import run

# %% [markdown]
# ## Predict before you look
#
# Four requests generate together, on the graph of four. In each replay the last token is left out of the copy: three rows are
# written, the fourth keeps what it had. Nothing checks anything.
#
# Which of the four texts (0 to 3) come out wrong? And does any request report an error?

# %%
prediction = {"wrong texts": "?", "errors": "?"}  # for example [0, 1] and 0

# %%
tail = run("short-input-stale-tail", guards="off")
outcome = tail.report.outcomes[0]
facts = {
    "wrong texts": [i for i, (right, got) in enumerate(outcome.texts) if right != got],
    "errors": 0 if outcome.raised is None else 1,
}
for name, guess in prediction.items():
    verdict = "no answer yet" if guess == "?" else "right" if guess == facts[name] else "not so"
    print(f"{name}: {facts[name]}    you said {guess}: {verdict}")
for right, got in outcome.texts:
    print(f"    {right!r:14} {'as it should be' if right == got else f'came out as {got!r}'}")

# %% [markdown]
# **Nothing crashed and the answer is wrong**, for one user of four. The others are right to the last letter, the throughput is
# perfect, the request ends with `"length"` like any other.
#
# Look at the row itself, in the static tensor that the graph reads. *Age* is how many steps ago a row was written; a row that a step
# reads and did not write is stale:

# %%
for step in tail.broken.steps[:5]:
    if view := step.buffer("input_ids", "static"):
        tokens = None if view.values is None else view.values[:4].ravel().tolist()
        print(f"step {step.step} {step.graph.path:6} reads {view.live_rows} rows, holds {tokens}")

# %% [markdown]
# Row 3 stands still while the others move: it is still what warm-up left there. (Had an earlier step of four tokens filled it, it
# would be a token of that step, and plausible.) In the stepper the wrong rows carry a cross; go through the steps and watch the column.

# %%
show(tail.broken, step=outcome.wrong_step, stage="COPIED")

# %% [markdown]
# ## What refuses it
#
# The key of a graph says how many rows it has, so the check before a replay costs one comparison. With the guards on, the same broken
# engine gets no further than this:

# %%
print(run("short-input-stale-tail", guards="on").report.outcomes[0].message)

# %% [markdown]
# ## The same hole, three more ways
#
# 1. **Padding rows that nobody zeroes.** The host copy writes the rows that the host knows, the gather writes those that were sampled
#    on the device, and neither reaches the dummies' rows. Left alone they hold tokens of *other requests*.
# 2. **A shape that broadcasts.** `copy_` spreads what is smaller over what is larger, without a word.
# 3. **A value that was not given.** "Nothing to do" means "keep last step's value". Give the neutral value instead.

# %%
for name in ("padding-rows-not-zeroed", "broadcast-positions"):
    for guards in ("off", "on"):
        other = run(name, guards=guards).report.outcomes[0]
        wrong = [i for i, (right, got) in enumerate(other.texts) if right != got]
        said = (
            f"{other.raised_by}: {other.message}"
            if other.raised
            else f"{other.num_wrong} wrong rows, wrong texts {wrong}"
        )
        print(f"{name}, guards {guards}: {said}", end="\n\n")

# %% [markdown]
# The dummy's row samples wrong tokens and no text is wrong: today nobody reads that row. It is refused all the same (here by the
# lab's audit), because the next feature will: SGLang's issue 24361 is about a padded tail whose stale values were read hours later.
#
# ## Break it on purpose, with two tensors
#
# When exactly does `copy_` broadcast? The target is a static buffer for four positions, holding last step's values:


# %%
def copy_into(target, source):
    try:
        return f"copied: {target.copy_(source).tolist()}"
    except RuntimeError as error:
        return f"refused: {error}"


for source in (torch.tensor([[5, 9, 7]]), torch.tensor([[5]]), torch.tensor([5, 9, 7, 3])):
    print(f"{tuple(source.shape)!s:7} into (1, 4): {copy_into(torch.tensor([[8, 8, 8, 8]]), source)}")
source = torch.tensor([5, 9, 7, 3])
print(f"{tuple(source.shape)!s:7} into (3, 1, 4): {copy_into(torch.zeros(3, 1, 4, dtype=torch.long), source)}")

# %% [markdown]
# ## Where the article has it otherwise
#
# Its example is that `(1, n)` copied into `(1, n + 1)` broadcasts silently. **PyTorch refuses that**, as the first line shows, unless n
# is 1. What spreads is a dimension of size one, or a missing one: `(1, 1)` over all rows, `(n,)` over the three planes of MRoPE
# positions. The check that the article describes, the *exact* shape, is right (TensorRT-LLM PR 18207 brought it; older runners copy
# without). Its example is not.
#
# And its stale tail has two different guards which it tells as one: a **decode** bucket is filled with dummy requests before
# preparation, whose rows are zeroed; a **prefill** bucket has rows behind the last sequence, which belong to nobody and are zeroed
# when it is built.
#
# You have just seen three files: `engine/cuda_graphs/runner.py` (the check, then the copies), `engine/inputs/prepare.py` (the zero
# fills) and `lab/faults/guards.py` (a replay without the check).
#
# **Exercises:** `ex19` clean the tail, `ex24` guard the replay: `stepscope check ex19 --start`.
