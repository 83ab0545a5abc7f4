# %% [markdown]
# # 0. Start here
#
# **The question.** What is in this house, and where does one begin?
#
# Two packages: `engine` serves a language model, in the manner of TensorRT-LLM's PyTorch backend; `lab` watches it and steps through it.
# This page is the map: ten stages and where they are, the words, who does it how elsewhere, and the walkthroughs in order. If you would
# rather see something move first, go to [walkthrough 1](01_one_step_ten_stages.ipynb) and come back.
#
# **Simulated here:** without a GPU, graphs are a *tape* on the CPU. It proves keys, addresses and contents, never speed or stream order;
# whatever comes from it says so.

# %%
import subprocess
import sys
from pathlib import Path

from engine import EngineConfig
from lab import Session, show
from lab.snapshot import STAGES
from lab.widgets.stages import STAGE_LINKS

# `tiny` is random; its text is noise
session = Session("tiny", prompts=["To be, or not", "Once upon"], config=EngineConfig(device="cpu"))
trace = session.run()

# %% [markdown]
# ## Predict before you look
#
# You may have read the article that these walkthroughs follow, or others like it. Say `True` or `False`:
#
# * *vLLM and SGLang pad*: with default settings, both round a batch up to a captured size.
# * *llama.cpp replays*: llama.cpp uses CUDA graphs by default.
# * *TensorRT-LLM pads*: with default settings, TensorRT-LLM rounds a decode batch up to a captured size.
# * *forward last*: of the ten stages of a step here, seven are over before the model runs.

# %%
prediction = {  # replace each "?" by True or False, without quotes
    "vLLM and SGLang pad": "?",
    "llama.cpp replays": "?",
    "TensorRT-LLM pads": "?",
    "forward last": "?",
}

# %%
facts = {"vLLM and SGLang pad": True, "llama.cpp replays": True, "TensorRT-LLM pads": False}
facts["forward last"] = STAGES.index("RAN") == 7
for name, guess in prediction.items():
    verdict = "no answer yet" if guess == "?" else "right" if str(guess) == str(facts[name]) else "not so"
    print(f"{name}: {facts[name]}    you said {guess}: {verdict}")

# %% [markdown]
# The first three are explained in the table further down. The fourth is the reason for this house: a forward pass is the eighth of ten
# stages, and what comes before it decides whether it is fast and whether it is right.
#
# ## The map: ten stages
#
# A step goes through these files, in this order, once. The words are those of the glossary:

# %%
for stage, link in zip(STAGES, STAGE_LINKS, strict=True):
    print(f"{stage:13} {link.file:33} {link.word_en} {link.word_zh}")

# %% [markdown]
# Each arrow between two stages is a frozen record with a name. The stepper shows them: click it, then arrow keys for steps, PageUp and
# PageDown for stages, `?` for all keys. As committed it is a picture with a page in it; *Run > Run All Cells* makes it live.

# %%
show(trace, step=2, stage="PACKED")

# %% [markdown]
# ## The words
#
# One word per idea. The whole glossary, with the words of the other engines, is in `ARCHITECTURE.md`.
#
# | word | meaning | 中文 |
# |---|---|---|
# | step | one pass through the ten stages | 一步 |
# | row | one token's place in a step | 行 |
# | context, generation | prompt rows still to compute; one new row a step | 预填充, 解码 |
# | chunk | the part of a prompt that one step computes | 分块 |
# | block, block table | a piece of KV cache; a request's pieces, in order | 块, 块表 |
# | slot | a live request's index into tensors on the device | 槽位 |
# | persistent buffer | an input tensor that is allocated once and written in place | 持久缓冲区 |
# | bucket | a batch size that has a graph | 桶 |
# | padding dummy | a real request that fills a bucket | 填充请求 |
# | capture, replay | record the kernels once; run them again at the same addresses | 捕获, 重放 |
# | key | what a graph was captured for | 图键 |
# | fall-off | why a step ran eagerly | 退回 eager |
# | draft, verify | a guessed token; computing it to see whether it was right | 草稿, 验证 |
# | probe, trace | the engine's one observer; what it recorded | 探针, 轨迹 |
#
# ## Who does it how
#
# *The article* is 《TensorRT-LLM 源码完全拆解(五)：PyTorchModelEngine 与输入组装》 (in Chinese, by 平昊阳, not shipped here). It ends in a table in
# which only TensorRT-LLM has stable addresses, object identity and buckets, and the others build their batch anew and need "fixed shapes
# only". **That does not hold for any of them.** What we read in their sources in 2026 (versions differ by file, so this is no benchmark of
# releases):
#
# | | its batch between steps | what a graph covers | sizes, by default | what else must hold |
# |---|---|---|---|---|
# | TensorRT-LLM | persistent buffers; the steady path derives a step from the last | all of decode; prefill in segments, optional | exact sizes only: **padding is off** until `enable_padding` | the same metadata object, the exact count; addresses checked if asked for |
# | vLLM, runner V1 | a persistent `InputBatch`, changed by differences | decode whole, prefill and mixed steps in pieces | rounded up: 51 token sizes at 256 requests | same addresses, uniform rows, number of requests in the full graph's key |
# | vLLM, runner V2 | request state lives on the GPU; views each step | as V1 | as V1 | a pinned source in flight is never rewritten |
# | SGLang | a persistent `ScheduleBatch`; a new `ForwardBatch` each forward, copied into fixed slots | decode whole, prefill in segments | rounded up: 36 batch sizes at 256 | fixed slots, a fill value for each, attention planned anew at each replay |
# | llama.cpp | the caller's `llama_batch` | any part of the compute graph that repeats identically | rows exact; **KV length** rounded up to 256 | byte-identical nodes; the same sequence ids |
# | transformers, continuous batching | lists anew each step, into static tensors | forward and sampling | powers of two (decode) | every host number in the key |
# | here | persistent buffers, steady path | all of decode; prefill in segments, optional | rounded up | as TensorRT-LLM, addresses always checked |
#
# Read in: vLLM `v1/worker/gpu_model_runner.py` (000fc94b), `v1/cudagraph_dispatcher.py` (ae2e8e62), `v1/worker/gpu/` (0036d38d); SGLang
# `model_executor/runner/` (003fca80, 00021f78); llama.cpp `llama-graph.cpp` (00395eb2), ggml `ggml-cuda.cu` (d99724f2); transformers
# `generation/continuous_batching/` (00a11b6a); TensorRT-LLM (0ea8c1de).
#
# What is special about TensorRT-LLM, then? Not stable addresses, which all need. Rather that a padded row is a *complete request*, where
# vLLM has numbers (slot -1), SGLang a reserved row and llama.cpp no row at all; and a steady path that touches no list.
#
# ## Break it on purpose: take the lab away
#
# The engine must be complete without its observer. A process in which `lab` cannot be imported:

# %%
code = """
import sys
sys.modules["lab"] = None  # any import of it fails now
from engine import LLM, EngineConfig, SamplingParams
with LLM("tiny", EngineConfig(device="cpu")) as llm:
    print(llm.generate("To be, or not", SamplingParams())[0].text)
import lab
"""
alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd().parent, check=False)
print(alone.stdout.strip(), "|", alone.stderr.strip().splitlines()[-1])
print("watched, it said the same:", session.outputs[0].text == alone.stdout.rstrip("\n"))

# %% [markdown]
# ## The walkthroughs
#
# Each takes five to fifteen minutes, asks for a prediction before it shows anything, and breaks something on purpose.
#
# | | | |
# |---|---|---|
# | the step | [1 One step, ten stages](01_one_step_ten_stages.ipynb) | begin here |
# | from schedule to shapes | [2 Budgets decide the shape](02_budgets_decide_the_shape.ipynb), [3 Chunked prefill](03_chunked_prefill.ipynb) | who runs, and how far |
# | buffers and rows | [4 Buffers that never move](04_buffers_that_never_move.ipynb), [5 Packing three kinds of row](05_packing_three_kinds_of_row.ipynb), [6 From ledger to kernel](06_from_ledger_to_kernel.ipynb) | what the model gets |
# | padding | [7 Seven becomes eight](07_seven_becomes_eight.ipynb), [8 The stale tail](08_the_stale_tail.ipynb) | what fills a bucket, and what must not be left in it |
# | speed | [9 Steady state](09_steady_state.ipynb), [10 Capture and replay](10_capture_and_replay.ipynb), [11 The key](11_the_key.ipynb) | why a step costs the host almost nothing |
# | for engineers | [12 Why your batch fell off](12_why_your_batch_fell_off.ipynb), [13 Choosing buckets for your traffic](13_choosing_buckets.ipynb), [14 Attach your own](14_attach_your_own.ipynb) | your own traffic |
#
# `stepscope check` lists the exercises, `stepscope faults list` the broken engines, `stepscope doctor` says what this machine can do.
#
# You have just seen three files: `lab/widgets/stages.py` (where the stages are), `engine/probe.py` (what each hands over) and
# `engine/llm.py` (the door).
#
# **Exercises:** `ex01` count the batch is a good first one: `stepscope check ex01 --start` in a terminal of the lab; elsewhere `.venv/bin/stepscope`.
