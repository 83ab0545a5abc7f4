# %% [markdown]
# # 0. 从这里开始
#
# **问题。** 这座房子里有什么，从哪里看起？
#
# 两个包：`engine` 是一个语言模型推理引擎，做法仿照 TensorRT-LLM 的 PyTorch 后端；`lab` 观察它，陪你一步一步走。本页是地图：十个阶段在哪里、用哪些词、别家怎么做、各篇的顺序。想先看点会动的，就先去[第 1 篇](01_one_step_ten_stages_zh.ipynb)，再回来。
#
# **这里模拟的：** 没有 GPU 时，图是 CPU 上的一盘*磁带*。它能证明键、地址和内容，不能证明速度和流的先后；凡是出自它的结果都会注明。

# %%
import subprocess
import sys
from pathlib import Path

from engine import EngineConfig
from lab import Session, show
from lab.snapshot import STAGES
from lab.widgets.stages import STAGE_LINKS

# `tiny` 是随机的，它的文字没有意义
session = Session("tiny", prompts=["To be, or not", "Once upon"], config=EngineConfig(device="cpu"))
trace = session.run()

# %% [markdown]
# ## 先预测，再看
#
# 你也许读过这些笔记所依据的那篇文章，或者类似的文章。下面四句，对的写 `True`，错的写 `False`：
#
# * *vLLM 和 SGLang 会填充*：默认设置下，两者都把批次补到某个捕获过的大小。
# * *llama.cpp 会重放*：llama.cpp 默认使用 CUDA 图。
# * *TensorRT-LLM 会填充*：默认设置下，TensorRT-LLM 把解码批次补到某个捕获过的大小。
# * *前向在后*：这里一步有十个阶段，模型运行之前已经过去了七个。

# %%
prediction = {  # 把每个 "?" 换成 True 或 False，不加引号
    "vLLM 和 SGLang 会填充": "?",
    "llama.cpp 会重放": "?",
    "TensorRT-LLM 会填充": "?",
    "前向在后": "?",
}

# %%
facts = {"vLLM 和 SGLang 会填充": True, "llama.cpp 会重放": True, "TensorRT-LLM 会填充": False}
facts["前向在后"] = STAGES.index("RAN") == 7
for name, guess in prediction.items():
    verdict = "还没有回答" if guess == "?" else "对" if str(guess) == str(facts[name]) else "不对"
    print(f"{name}：{facts[name]}    你说 {guess}：{verdict}")

# %% [markdown]
# 前三句的依据见后面的表。第四句就是建这座房子的理由：前向计算是十个阶段里的第八个，它快不快、对不对，由它前面的阶段决定。
#
# ## 地图：十个阶段
#
# 一步按下面的顺序经过这些文件，每个只经过一次。最后一列是词汇表里的词：

# %%
for stage, link in zip(STAGES, STAGE_LINKS, strict=True):
    print(f"{stage:13} {link.file:33} {link.word_zh}")

# %% [markdown]
# 相邻两个阶段之间，总是一条有名字的冻结记录。步进器把它们画出来：先点它一下，方向键换步，PageUp 和 PageDown 换阶段，`?` 列出所有按键。仓库里保存的是一张图和一个页面；执行 *Run > Run All Cells* 就活了。

# %%
show(trace, step=2, stage="PACKED", lang="zh")

# %% [markdown]
# ## 用词
#
# 一个意思只用一个词。完整的词汇表，连同别家引擎的说法，在 `ARCHITECTURE.md`。
#
# | 词 | 英文 | 意思 |
# |---|---|---|
# | 一步 | step | 走完十个阶段 |
# | 行 | row | 一个词元在一步中的位置 |
# | 预填充，解码 | context, generation | 提示还有行要算；每步一行新的 |
# | 分块 | chunk | 一步里所算的那一段提示 |
# | 块，块表 | block, block table | KV 缓存的一块；一个请求的各块，按顺序 |
# | 槽位 | slot | 活跃请求在设备张量中的下标 |
# | 持久缓冲区 | persistent buffer | 只分配一次、原地写入的输入张量 |
# | 桶 | bucket | 有图的批次大小 |
# | 填充请求 | padding dummy | 用来装满桶的、真正的请求 |
# | 捕获，重放 | capture, replay | 把内核录一次；在同样的地址上再跑一遍 |
# | 图键 | key | 一张图是为什么样的批次捕获的 |
# | 退回 eager | fall-off | 这一步为什么没有走图 |
# | 草稿，验证 | draft, verify | 猜的词元；算一遍看猜得对不对 |
# | 探针，轨迹 | probe, trace | 引擎唯一的观察口；它录下的东西 |
#
# ## 别家怎么做
#
# 这里的*文章*是平昊阳的《TensorRT-LLM 源码完全拆解(五)：PyTorchModelEngine 与输入组装》（本仓库不附带）。文章末尾有一张表：只有 TensorRT-LLM 要求地址稳定、对象同一、形状分桶，其余三家每步重建批对象，“形状固定即可”。**这对其中任何一家都不成立。** 我们 2026 年在它们的源码里读到的是（各文件版本不尽相同，不代表某个发行版）：
#
# | | 步与步之间的批次 | 图覆盖什么 | 默认的大小 | 还要满足什么 |
# |---|---|---|---|---|
# | TensorRT-LLM | 持久缓冲区；稳态路径由上一步推出这一步 | 整个解码；预填充可选，分段 | 只认恰好的大小：**默认不填充**，要打开 `enable_padding` | 同一个元数据对象，行数恰好；地址检查要另外打开 |
# | vLLM，V1 runner | 持久的 `InputBatch`，按差异更新 | 解码整图，预填充与混合步分段 | 向上取整：256 个请求时 51 个词元档位 | 地址相同，行数一致，整图的键里还有请求数 |
# | vLLM，V2 runner | 请求状态常驻 GPU，每步取视图 | 同 V1 | 同 V1 | 还在被读的锁页内存不得改写 |
# | SGLang | 持久的 `ScheduleBatch`；每次前向新建 `ForwardBatch`，再复制进固定位置 | 解码整图，预填充分段 | 向上取整：256 时 36 个批次大小 | 位置固定，各有填充值，每次重放前重新规划注意力 |
# | llama.cpp | 调用者的 `llama_batch` | 计算图中任何原样重复的部分 | 行数不取整；**KV 长度**补到 256 的倍数 | 节点逐字节相同；序列编号相同 |
# | transformers 连续批处理 | 每步新建列表，写进静态张量 | 前向和采样 | 2 的幂（解码） | 每个主机数都在键里 |
# | 这里 | 持久缓冲区，稳态路径 | 整个解码；预填充可选，分段 | 向上取整 | 同 TensorRT-LLM，地址总是检查 |
#
# 读的是：vLLM `v1/worker/gpu_model_runner.py`（000fc94b）、`v1/cudagraph_dispatcher.py`（ae2e8e62）、`v1/worker/gpu/`（0036d38d）；SGLang `model_executor/runner/`（003fca80、00021f78）；llama.cpp `llama-graph.cpp`（00395eb2）、ggml `ggml-cuda.cu`（d99724f2）；transformers `generation/continuous_batching/`（00a11b6a）；TensorRT-LLM（0ea8c1de）。
#
# 那么 TensorRT-LLM 特别在哪里？不在地址稳定，这是大家都要的；而在它的填充行是一个*完整的请求*（vLLM 只填几个数，槽位写 -1；SGLang 用一个保留行；llama.cpp 根本没有这样的行），还在于稳态路径一个列表也不碰。
#
# ## 故意弄坏它：拿走实验室
#
# 没有观察者，引擎也必须完整。下面的进程里 `lab` 无法导入：

# %%
code = """
import sys
sys.modules["lab"] = None  # 从此任何 import lab 都会失败
from engine import LLM, EngineConfig, SamplingParams
with LLM("tiny", EngineConfig(device="cpu")) as llm:
    print(llm.generate("To be, or not", SamplingParams())[0].text)
import lab
"""
alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path.cwd().parent, check=False)
print(alone.stdout.strip(), "|", alone.stderr.strip().splitlines()[-1])
print("有人观察时也是同样的文本：", session.outputs[0].text == alone.stdout.rstrip("\n"))

# %% [markdown]
# ## 各篇
#
# 每篇五到十五分钟，先请你预测，再给你看，并且故意弄坏点什么。除本页和第 1 篇外，目前都是英文。
#
# | | | |
# |---|---|---|
# | 一步 | [1 一步，十个阶段](01_one_step_ten_stages_zh.ipynb) | 从这里开始 |
# | 从调度到形状 | [2 预算决定形状](02_budgets_decide_the_shape.ipynb)、[3 分块预填充](03_chunked_prefill.ipynb) | 谁运行，走多远 |
# | 缓冲区与行 | [4 从不移动的缓冲区](04_buffers_that_never_move.ipynb)、[5 打包三种行](05_packing_three_kinds_of_row.ipynb)、[6 从账本到内核](06_from_ledger_to_kernel.ipynb) | 模型拿到什么 |
# | 填充 | [7 七变八](07_seven_becomes_eight.ipynb)、[8 陈旧的尾巴](08_the_stale_tail.ipynb) | 用什么装满桶，什么不能留在里面 |
# | 速度 | [9 稳态](09_steady_state.ipynb)、[10 捕获与重放](10_capture_and_replay.ipynb)、[11 图键](11_the_key.ipynb) | 一步为什么几乎不花主机的时间 |
# | 给工程师 | [12 批次为何掉队](12_why_your_batch_fell_off.ipynb)、[13 为你的流量选桶](13_choosing_buckets.ipynb)、[14 接上你自己的程序](14_attach_your_own.ipynb) | 你自己的流量 |
#
# `stepscope check` 列出练习，`stepscope faults list` 列出弄坏了的引擎，`stepscope doctor` 说明这台机器能做什么。
#
# 你刚刚看过三个文件：`lab/widgets/stages.py`（各阶段在哪里）、`engine/probe.py`（各阶段交出什么）和 `engine/llm.py`（大门）。
#
# **练习：** 从 `ex01` 开始最合适，数一数批次：`stepscope check ex01 --start`（在实验室的终端里；别处用 `.venv/bin/stepscope`）。
