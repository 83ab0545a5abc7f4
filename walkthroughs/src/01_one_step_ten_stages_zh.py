# %% [markdown]
# # 1. 一步，十个阶段
#
# **问题。** 调度器每一步给出的请求列表都不一样，`llm.step()` 却要把它变成一次形状固定的前向计算。中间发生了什么？
#
# 十个阶段，顺序不变。每个阶段把一条冻结的记录交给下一个阶段，而每一条都可以打开来看：
#
# | | 阶段 | 回答的问题 |
# |---|---|---|
# | 1 | 调度 | 这一步谁能得到行，别人为什么得不到 |
# | 2 | 预留 | 它们占用哪些块和槽位，要么全给，要么全不给 |
# | 3 | 填充 | 要用几个填充请求才能装满一个桶 |
# | 4 | 选图 | 哪张捕获好的图合适；不合适时，是哪个条件先失败 |
# | 5 | 打包 | 哪个词元站在哪一行 |
# | 6 | 复制 | 谁原地写了哪个缓冲区的哪一段 |
# | 7 | 元数据 | 注意力所需的长度和块表 |
# | 8 | 运行 | eager，或者重放一张图 |
# | 9 | 采样 | 主机读到的词元 |
# | 10 | 提交 | 谁结束了，归还了什么 |
#
# **这里模拟的：** 没有 GPU 时，图是 CPU 上的一盘*磁带*：键、地址和内容都是真的，速度和流的先后不是。

# %%
from dataclasses import replace

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.models.catalog import PUBLISHED
from lab import Session, counterfactual, show
from lab.widgets.strings import translate

MODEL = "smollm2-135m" if PUBLISHED["smollm2-135m"].is_pulled else "tiny"
if MODEL == "tiny":
    print("这里没有 smollm2-135m（stepscope models pull smollm2-135m）：改用 tiny，它的文本没有意义")
print("model:", MODEL)

# %% [markdown]
# ## 启动引擎：第一个请求到来之前，先捕获六张图
#
# 三个桶，对应 1、2、4 个请求；采样方式有两种（贪心和完整），而采样也在图里面：一共六张。预热从最大的开始捕获，后面的就能用它的内存：请看内存池在那之后几乎不再增长。此后不允许再捕获：一步要么找到自己的图，要么以 eager 方式运行。

# %%
config = EngineConfig(
    device="cpu",
    max_seq_len=256,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=256),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4), enable_padding=True),
)
workload = [
    (0, "The capital of France is", SamplingParams(max_tokens=14, ignore_eos=True)),
    (2, "Once upon a time, in a small house by the sea,", SamplingParams(max_tokens=18, ignore_eos=True)),
    (4, "Water boils at", SamplingParams(max_tokens=12, ignore_eos=True)),
    (7, "Three fruits that are red when they are ripe:", SamplingParams(max_tokens=12, ignore_eos=True)),
]

# %%
config = replace(config, dtype="bfloat16")  # 内存是 float32 的一半，在 Binder 里也放得下
session = Session(MODEL, prompts=workload, config=config)
for graph in session.trace.header.warmup.captures:
    print(f"捕获 {graph.key}：{graph.seconds:.2f} 秒，内存池 +{graph.num_bytes / 1e6:.1f} MB（模拟）")

# %% [markdown]
# ## 先预测，再看
#
# 四个长短不同的请求分别在第 0、2、4、7 步加入，然后一直留着。对第 0 到第 9 步，请说出：
#
# * 这一步是 **eager**，还是**重放**一张图？是哪个桶的图？
# * 哪几步里有**填充请求**？
#
# 把十个答案写下来（或者填进下面的列表：`"eager"`、`1`、`2` 或 `4`）。

# %%
prediction = ["eager", 1, "?", "?", "?", "?", "?", "?", "?", "?"]

# %%
for _ in range(10):
    session.step()

# %% [markdown]
# ## 实际发生了什么
#
# 每步一行。往下读之前，先和你的预测对一遍。

# %%
for step, guess in zip(session.trace.steps, prediction, strict=False):
    path = step.path
    took = f"桶 {path.bucket}" if path.key else path.reason
    print(f"第 {step.step} 步：你说 {guess!s:6} {path.num_requests} 个请求 -> {step.graph.path:6} {took}")

# %% [markdown]
# * **只要有提示要算，这一步就是 eager**（`HAS_CONTEXT_UNPROMOTED`）：图只有一种形状，提示却可以有任何长度。于是这一步里*所有*请求都走 eager，连那些只想要下一个词元的也一样。例外就在名字里：提示只剩一个词元的请求按解码行运行（即*提升*，promoted）。
# * **三个请求重放的是四个请求的图。** 没有大小为 3 的桶：第四个位置由一个填充请求占着。它有自己的块和槽位，它的行照样写、照样算，只是没有人读。
# * 是哪一个请求，对图来说无所谓；*有几个*请求才要紧。
#
# 用文字再说一遍，一步 eager，一步带填充：

# %%
for step in (4, 5):
    print(session.trace.explain(step, "zh"), end="\n\n")

# %% [markdown]
# **怎样才能让第 4 步走图？** 实验室不靠猜：它把同样的请求再运行一遍，先不做改动，然后一次改一个字段，直到做*同样工作*的那一步用上了图。

# %%
answer = counterfactual(session.trace, 4, model=session.llm.loaded)  # 模型已经在内存里
print("".join(translate(name, arguments, "zh") for name, arguments in answer.say))

# %% [markdown]
# ## 一步一步走
#
# **仓库里保存的下一个单元格是一张静止的图。** 执行 *Run > Run All Cells* 之后，那里就是可以操作的步进器。
#
# **先点一下步进器**，让按键归它：左右方向键换步，PageUp 和 PageDown 换阶段，`f` 跳到下一个离开图路径的步，`t` 显示表格，`p` 让你先预测，`?` 列出所有按键。选中一行，就能一直跟着那个请求走。
#
# 在阶段 6 看 `input_ids`。生成中的请求，只要上一次采样还在设备上，它的行就由*设备上的 gather* 写入，eager 步和重放步都是如此：词元没有在主机上绕一圈。提示的行则从主机复制过来。批次右边的格子是旧的，没有人读它们。在 eager 步的阶段 4，有一个按钮可以证明最小的改动；阶段 8 把图里烙下的地址和现在的地址并排列出。
#
# 右上角的按钮（或 `r`）再执行一个*真实*的步：四个请求还在运行，会一个接一个地结束。

# %%
show(session, step=5, lang="zh")

# %% [markdown]
# ## 文章的七步准备，在这里各在何处
#
# 这里说的*文章*是平昊阳的《TensorRT-LLM 源码完全拆解(五)：PyTorchModelEngine 与输入组装——动态请求如何拼成静态形状的一次前向》（CC BY-NC-SA 4.0，本仓库不附带）。本页可以单独读；下表写给两边都读的人。
#
# | 文章 | 这里 | 说明 |
# |---|---|---|
# | 1 前置钩子 | 7 元数据 | 模型若有 `prepare_request_inputs`，就在这里调用 |
# | 2 上一步的采样结果 | 5 打包，6 复制 | 每一步都交下来，留在设备上，按槽位存取 |
# | 3 快路径 | 5 打包 | *稳态*：请求与上一步相同，全部在生成，没有填充请求：位置原地加一，什么也不打包（第 9 步） |
# | 4 三种打包 | 5 打包 | 上下文、扩展、生成：行的顺序是正确性的规则 |
# | 5 搬词元和位置 | 6 复制 | 每个列表一次锁页复制，然后在设备上 gather，都是原地 |
# | 6 注意力元数据 | 7 元数据 | 同一张图用同一个对象，内容换新 |
# | 7 padding 与构建 | **3 填充** | 文章把它放在最后；其实填充请求在准备*之前*加入，因为它们和别人一样要有行 |
#
# ## 故意弄坏它：不许填充
#
# 还是那四个请求，换一个不许加填充请求的引擎（模型已经加载，两个引擎共用）。十步里哪几步会变？

# %%
exact = CudaGraphConfig(batch_sizes=(1, 2, 4), enable_padding=False, sample_modes=("greedy",))
with LLM(session.llm.loaded, replace(config, cuda_graph=exact)) as llm, Session(llm, prompts=workload) as other:
    for _ in range(10):
        other.step()
changed = [
    s for s, before in zip(other.trace.steps, session.trace.steps, strict=False) if s.graph.path != before.graph.path
]
for step in changed:
    print(f"第 {step.step} 步：{step.path.num_requests} 个请求 -> {step.graph.path} {step.path.reason}")

# %% [markdown]
# 词元一个不差，还少算一行，只是十步里有两步没有图。除此之外，什么也看不出来。
#
# 你刚刚看过三个文件：`engine/cuda_graphs/select.py`（按顺序排列的条件）、`engine/inputs/prepare.py`（只原地写，从不新建）和`engine/cuda_graphs/runner.py`（重放之前比对什么）。
#
# **练习：** `ex01`，数一数这个批次：`stepscope check ex01 --start`（在实验室的终端里；别处用 `.venv/bin/stepscope`）。
