# %% [markdown]
# # 13. Choosing buckets for your traffic
#
# **The question.** Each captured batch size costs time at start-up and memory for ever. Each missing one costs padding, or a graph. Which
# sizes does *your* service want?
#
# Not the powers of two, and no framework's default: the answer follows your histogram of batch sizes, and a price for each of three
# things:
#
# * **padding**: a step of 9 on the graph of 16 computes 7 rows for nobody;
# * **falling off**: a step above the largest bucket has no graph at all;
# * **the graph itself**: seconds to capture, memory in the pool.
#
# **Simulated here:** time. The traffic is real (from an hour of a conversation service, published by Microsoft: arrival times and lengths, see `data/`), and goes
# through the same executor, scheduler and ledger as always; instead of a model, a *null runner* takes its steps' times from a cost model.

# %%
import contextlib
import io
import json
from dataclasses import fields, replace
from pathlib import Path

from lab.advice.optimum import BucketCosts, list_cost, optimal_list
from lab.cli.main import main

TRAFFIC = Path("..") / "data" / "azure_llm_conv_2023_first_5000.csv"
LIMITS = ["--limit", "400", "--max-batch-size", "64", "--speed", "3"]  # 400 requests, at three times the pace

# %%
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()):
    main(["plan-buckets", str(TRAFFIC), *LIMITS, "--max-buckets", "4", "--json"])
report = json.loads(printed.getvalue())
histogram = {int(size): count for size, count in report["histogram"].items()}
model = report["cost_model"]
costs = BucketCosts(**{field.name: model[field.name] for field in fields(BucketCosts)})

# %% [markdown]
# The traffic, as decode steps by batch size, and the prices:

# %%
most = max(histogram.values())
for first in range(1, 65, 4):
    steps = sum(histogram.get(size, 0) for size in range(first, first + 4))
    print(f"{first:2} to {first + 3:2} requests: {steps:5} steps {'#' * round(steps / most * 12)}")
print(
    f"a step on a graph: {costs.fixed:.0f} + {costs.per_row:.0f} x bucket us; eager: {costs.eager_fixed:.0f} + "
    f"{costs.eager_per_row:.0f} x requests us; a graph: {costs.capture_us / 1000:.0f} ms, {costs.graph_mib:.0f} MiB"
)
print(f"from: {costs.origin}")

# %% [markdown]
# ## Predict before you look
#
# A step may hold 64 requests at most. Choose **at most four** batch sizes. You are right when your list costs no more than half a per cent
# above the best one.

# %%
prediction = "?"  # for example [1, 8, 32, 64]

# %%
best = optimal_list(histogram, largest=64, most=4, costs=costs)
lists = {"best of at most 4": best.sizes, "stops at 32": (4, 8, 16, 32), "powers of two": (1, 2, 4, 8, 16, 32, 64)}
if prediction != "?":
    lists["yours"] = tuple(prediction)
    verdict = "right" if list_cost(histogram, prediction, costs).cost <= 1.005 * best.cost else "not so"
    print(f"your list: {verdict}")
for name, sizes in lists.items():
    cost = list_cost(histogram, sizes, costs)
    parts = f"padding {cost.padding / 1e3:7.0f}, fall-off {cost.fall_off / 1e3:7.0f}, graphs {cost.graphs / 1e3:.1f} ms"
    print(f"{name:18} {sizes!s:26} {cost.cost / best.cost - 1:+6.1%}   {parts}")

# %% [markdown]
# * **The best list ends at 64**, although few steps are that large. A step of 64 that falls off costs as much as three on the graph: a list
#   that stops at 32 makes this traffic half as dear again, and more.
# * **Its sizes lie just above where the steps are**, not at round numbers.
# * **Padding is the small evil here**: a row more costs 10 us, a step 3,880. Seven powers of two are hardly worse than the best four sizes.
#   That is this model on this GPU, and not a law, see below.
#
# The lists that frameworks come with, each with 64 added where it is missing, against the best list of the *same length*:

# %%
for name, default in report["defaults"].items():
    fitted = default["optimal_at_same_count"]
    print(
        f"{name:14} {len(default['sizes']):2} sizes, {default['cost'] / fitted['cost'] - 1:+.2%} above {fitted['sizes']}"
    )

# %% [markdown]
# ## Which prices decide?
#
# Two of them are worth turning: what a row costs, and how long an engine runs between two starts, since each start captures all graphs
# again. The best list of at most twelve:

# %%
for row_us, hours in ((10, 24), (10, 0.02), (200, 24), (200, 0.02)):
    other = replace(costs, per_row=row_us, starts=costs.starts * 24 / hours)
    found = optimal_list(histogram, largest=64, most=12, costs=other)
    twos = list_cost(histogram, (1, 2, 4, 8, 16, 32, 64), other).cost / found.cost - 1
    print(f"{row_us:3} us a row, {hours:5} hours: {found.sizes}, powers of two {twos:+.1%}")

# %% [markdown]
# An engine that restarts every minute wants few sizes, one that runs for a day takes all it may; and where rows are dear, the powers of two
# are no good list any more. So the cost model belongs to the answer: `stepscope plan-buckets` always prints it, takes other prices, and
# with `--measure MODEL` puts this machine's numbers in.
#
# **The maximum is not negotiable.** The list is made for the largest *legal* batch, not the largest seen: tomorrow's traffic is another.
#
# ## Break it on purpose: forget the maximum
#
# vllm-ascend's issue 16049 and vLLM's 40734: a maximum that is no multiple of the list's stride, and the largest batches lose their graph.
# Take the best list and leave its last size out:

# %%
short = best.sizes[:-1]
cost = list_cost(histogram, short, costs)
lost = sum(count for size, count in histogram.items() if size > short[-1])
print(f"{short}: {lost} of {sum(histogram.values())} steps without a graph, {cost.cost / best.cost - 1:+.0%}")
with contextlib.redirect_stdout(io.StringIO()) as printed:
    main(["doctor", "--max-batch-size", "64", "--batch-sizes", ",".join(str(size) for size in short)])
print("\n".join(line for line in printed.getvalue().splitlines() if "bucket" in line))

# %% [markdown]
# The lower lines are the config doctor's (`stepscope doctor`): it needs no traffic to see that a bucket list stops short.
#
# For the whole hour, with charts: `stepscope plan-buckets data/azure_llm_conv_2023_first_5000.csv --html advice.html`. For your own service:
# the same with a CSV of arrival times and lengths, or with a trace that you have recorded (walkthrough 14). Prefill buckets, which count
# rows instead of requests, with `--prefill`.
#
# You have just seen three files: `lab/advice/optimum.py` (the best list, by dynamic programming), `lab/advice/default_lists.py` (the
# frameworks' rules) and `lab/replay/cost_model.py` (what a step costs).
#
# **Exercises:** `ex17` design the list of sizes: `stepscope check ex17 --start`.
