"""What the stepper says around the numbers: the buffers' legend, one request's way, predictions, warm-up, help.

Part of the one string table, English and Chinese side by side; ``strings.py`` joins the parts.

Does not: choose what to say, or hold logic.
"""

from typing import Final

_ARTICLE: Final = "TensorRT-LLM 源码完全拆解(五)：PyTorchModelEngine 与输入组装——动态请求如何拼成静态形状的一次前向"

HINTS: Final[dict[str, tuple[str, str]]] = {
    "layer.persistent.what": (
        "Allocated once, live as long as the process; every step writes into the same places.",
        "只分配一次，与进程同寿；每步都写在同样的位置。",
    ),
    "layer.static.what": (
        "Prefixes cut for each graph key: their addresses are baked into the graph, so a replay reads exactly these.",
        "为每个图键切出的前缀：地址固化在图里，重放读的正是它们。",
    ),
    "layer.metadata.what": (
        "Owned by one metadata object for each key; rewritten in place by prepare(), before the graph runs.",
        "属于每个键各自的元数据对象；由 prepare() 在图运行前原地改写。",
    ),
    "layer.none": ("Not recorded apart for this step.", "本步没有单独记录。"),
    "buf.facts": (
        "{dtype}[{capacity}] at {address}, read: {live}",
        "{dtype}[{capacity}]，地址 {address}，读取：{live}",
    ),
    "buf.legend.live": (
        "written in this step: context, generation, dummy, other lists",
        "本步写入：上下文、解码、填充、其他列表",
    ),
    "buf.legend.kept": ("read, written earlier", "读取，更早写入"),
    "buf.legend.stale": ("left over from n steps ago, not read", "n 步之前的残留，不读取"),
    "buf.legend.spare": ("written, not read", "写入但不读取"),
    "buf.legend.empty": ("never written", "从未写入"),
    "buf.marks": (
        "↓ host copy · ⇄ device gather · +1 in place · 0 zero fill · ⇒ device copy · −n steps ago · w warm-up · | end",
        "↓ 主机拷贝 · ⇄ 设备收集 · +1 原地 · 0 清零 · ⇒ 设备拷贝 · −n 步之前 · 预 预热 · 竖线：读取终点",
    ),
    "buf.warm": ("w", "预"),
    "buf.wrote": ("{mark} {writer}: {n} {n|row|rows}", "{mark} {writer}：{n} 行"),
    "buf.untouched": ("not written in this step", "本步没有写入"),
    "buf.hidden": ("+ {n} more written rows, in {runs} {runs|run|runs}", "+ 另有 {n} 个写过的行，分为 {runs} 段"),
    "buf.aria": ("{name}: {live} rows read, {known} rows ever written", "{name}：读取 {live} 行，曾写入 {known} 行"),
    "buf.cell.live": ("row {row}: {writer} in this step", "第 {row} 行：本步由{writer}写入"),
    "buf.cell.kept": (
        "row {row}: {writer} in step {step}, still valid",
        "第 {row} 行：第 {step} 步由{writer}写入，仍有效",
    ),
    "buf.cell.stale": (
        "row {row}: left by {writer} in step {step}, {age} {age|step|steps} ago; not read",
        "第 {row} 行：{age} 步之前（第 {step} 步）由{writer}留下；不读取",
    ),
    "buf.cell.kept.before": (
        "row {row}: {writer} before the first step, still valid",
        "第 {row} 行：第一步之前由{writer}写入，仍有效",
    ),
    "buf.cell.stale.before": (
        "row {row}: left by {writer} before the first step; not read",
        "第 {row} 行：第一步之前由{writer}留下；不读取",
    ),
    "buf.cell.spare": ("row {row}: {writer} in this step, not read", "第 {row} 行：本步由{writer}写入，不读取"),
    "buf.cell.empty": ("row {row}: never written", "第 {row} 行：从未写入"),
    "buf.cell.unwritten": ("row {row}: read but never written", "第 {row} 行：被读取但从未写入"),
    "side.eager": ("{n} {n|request|requests}, unpadded", "{n} 个请求，不填充"),
    "side.graph": ("{n} of {bucket} seats used, {waste} % waste", "{bucket} 个座位用了 {n} 个，浪费 {waste} %"),
    "side.prefill": (
        "{n} of {bucket} rows used, {waste} % waste",
        "{bucket} 行用了 {n} 行，浪费 {waste} %",
    ),
    "side.hint": (
        "Choose a request here or click one of its rows: it stays marked through all stages and steps.",
        "在这里选择一个请求，或点击它的某一行：它在所有阶段和步骤中都会被标出。",
    ),
    "j.sch_context": ("{n} prompt {n|token|tokens} from position {start}", "从位置 {start} 起的 {n} 个提示词元"),
    "j.sch_generation": ("1 decode row at position {start}", "1 个解码行，位置 {start}"),
    "j.deferred": (
        "held back: {reason} ({needed} needed, {available} available)",
        "被推迟：{reason}（需要 {needed}，可用 {available}）",
    ),
    "j.absent": ("not in this step", "不在本步中"),
    "j.res_added": ("+{n} {n|block|blocks}: {blocks}", "+{n} 块：{blocks}"),
    "j.res_none": ("no new block, {n} held", "没有新块，持有 {n}"),
    "j.promoted": ("promoted to a decode row", "提升为解码行"),
    "j.pad": ("a seat in bucket {bucket}", "大小为 {bucket} 的桶中的一个座位"),
    "j.pad_eager": ("no padding", "不填充"),
    "j.graph": ("graph found", "找到图"),
    "j.eager": ("eager: {reason}", "eager：{reason}"),
    "j.rows": ("row {rows}: {source}", "第 {rows} 行：{source}"),
    "j.position": ("position {from} written", "写入位置 {from}"),
    "j.positions": ("positions {from} to {to} written", "写入位置 {from} 至 {to}"),
    "j.meta": ("q {q}, cached {cached}, kv {kv}", "q {q}，已缓存 {cached}，kv {kv}"),
    "j.run": ("{path}", "{path}"),
    "j.sampled": ("“{token}”", "“{token}”"),
    "j.no_sample": ("no sample: prompt unfinished", "不采样：提示未完成"),
    "predict.say": ("Step {step} is about to run.", "第 {step} 步即将运行。"),
    "predict.what": ("What to predict", "预测什么"),
    "predict.what.way": ("path and bucket", "路径和桶"),
    "predict.what.batch": ("batch", "批次"),
    "predict.what.bucket": ("bucket", "桶"),
    "predict.what.path": ("path", "路径"),
    "predict.what.cell": ("next cell", "下一个单元"),
    "predict.ask.batch": ("Step {step}: how many requests run in it?", "第 {step} 步：有多少个请求运行？"),
    "predict.ask.bucket": (
        "Step {step}: {n} {n|request|requests}, {rows} {rows|row|rows}. Which bucket holds it (0: none, eager)?",
        "第 {step} 步：{n} 个请求，{rows} 行。它放进哪个桶（0：无，eager）？",
    ),
    "predict.ask.path": (
        "Step {step}: {n} {n|request|requests}, {contexts} with prompt left. Which path?",
        "第 {step} 步：{n} 个请求，其中 {contexts} 个还有提示。走哪条路径？",
    ),
    "predict.ask.cell": (
        "Step {step}: what will {cell} hold?",
        "第 {step} 步：{cell} 的值将是多少？",
    ),
    "predict.cell_right": ("Step {step}, {what}: right, {truth}.", "第 {step} 步，{what}：正确，{truth}。"),
    "predict.cell_wrong": (
        "Step {step}, {what}: you said {mine}; it was {truth}.",
        "第 {step} 步，{what}：你的答案是 {mine}；实际是 {truth}。",
    ),
    "predict.first": ("Predict first.", "请先预测。"),
    "predict.locked": (
        "Hidden until you have chosen above.",
        "在上方选择之后才显示。",
    ),
    "predict.start": (
        "Predict mode: go to the next step; its path stays hidden until you choose.",
        "预测模式：前往下一步；选择之前路径保持隐藏。",
    ),
    "predict.end": (
        "Predict mode: this is the last step, so there is no next step to predict. Go back and start from there.",
        "预测模式：这是最后一步，没有下一步可预测。请回到前面再开始。",
    ),
    "predict.ask.way": (
        "Step {step}: {n} {n|request|requests}, {contexts} with prompt left, {rows} {rows|row|rows}. How does it run?",
        "第 {step} 步：{n} 个请求，其中 {contexts} 个还有提示，共 {rows} 行。它会怎样运行？",
    ),
    "predict.asked": ("Step {step}, predicted:", "第 {step} 步，已预测："),
    "predict.options": ("Your prediction", "你的预测"),
    "predict.bucket": ("graph for {bucket}", "大小为 {bucket} 的图"),
    "predict.right": ("Right: {truth}. {why}", "正确：{truth}。{why}"),
    "predict.wrong": ("You said {mine}; it was {truth}. {why}", "你选的是{mine}；实际是{truth}。{why}"),
    "predict.fits": ("{bucket} is the smallest bucket that holds {n}.", "{bucket} 是容得下 {n} 的最小的桶。"),
    "predict.score": ("{right} of {n} right", "{n} 次中对 {right} 次"),
    "warm.say": ("{n} {n|graph|graphs}, {bytes}, {seconds} s in all.", "{n} 个图，{bytes}，共 {seconds} 秒。"),
    "warm.say_simulated": (
        "{n} {n|graph|graphs}, {bytes}, {seconds} s in all; simulated by the CPU tape.",
        "{n} 个图，{bytes}，共 {seconds} 秒；由 CPU 磁带模拟。",
    ),
    "help.colours": (
        "C dotted: context. E diagonal: extend. G plain: generation. P hatched: padding. The letter says it too.",
        "C 点：上下文。E 斜线：扩展。G 纯色：解码。P 网格：填充。字母总是同时标出。",
    ),
    "help.stale": (
        "Dashed with −n: left over from n steps ago; no step may read it.",
        "虚线与 −n：n 步之前的残留；任何一步都不应读取。",
    ),
    "help.wrong": ("✗ marks rows that differ from another run.", "✗ 标出与另一次运行不同的行。"),
    "help.changed": ("Δ marks what changed since the step before.", "Δ 标出与上一步相比的变化。"),
    "help.follow": (
        "A followed request has a bar at its left in every view.",
        "被跟踪的请求在每个视图左侧都有一条标记。",
    ),
    "help.time": ("Times are host time between two stages of the engine.", "时间是引擎两个阶段之间的主机时间。"),
    "help.simulated": (
        "~ simulated: the CPU tape stands for the graph; read contents and addresses, not speed.",
        "~ 模拟：CPU 磁带代替图；看内容和地址，不看速度。",
    ),
    "help.article": (
        f"article section: a heading of the source article (in Chinese), “{_ARTICLE}”.",
        f"文章小节：来源文章《{_ARTICLE}》的小标题。",
    ),
    "live.silent": (
        "No answer from the kernel for {seconds} s: it is busy, or it was restarted and this cell has to run again.",
        "内核 {seconds} 秒没有回应：它正忙，或者已重启，需要重新运行这个单元格。",
    ),
    "live.lost": (
        "The kernel was restarted: these steps stay readable, but to go on this cell has to run again.",
        "内核已重启：这些步骤仍可查看，但要继续就必须重新运行这个单元格。",
    ),
    "live.gone": ("The run is over: no request is left.", "运行已结束：没有剩余请求。"),
}
