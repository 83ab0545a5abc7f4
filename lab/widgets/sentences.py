"""What the stepper says about a step and its stages, in English and Chinese, by id.

Part of the one string table: what a stage does, the sentence of a step, what changed, what each panel leads with.
``strings.py`` joins the parts and puts arguments in.

Does not: choose what to say, or hold logic.
"""

from typing import Final

_STAGES: Final[dict[str, tuple[str, str]]] = {
    "stage.0.what": (
        "Who runs in this step, how many rows each gets, and who waits. Nothing below changes this answer.",
        "本步谁运行、各得多少行、谁等待。后面的阶段都不改变这个结果。",
    ),
    "stage.1.what": (
        "Every request gets a slot and enough blocks for its new tokens: all of them, or none.",
        "每个请求得到槽位和放得下新词元的块：要么全部成功，要么全部撤销。",
    ),
    "stage.2.what": (
        "A graph has one fixed size, so dummy requests fill the batch up to the next bucket.",
        "图的大小是固定的，所以用填充请求把批次补到下一个桶。",
    ),
    "stage.3.what": (
        "A list of conditions decides between a captured graph and eager; the first that fails is the reason.",
        "一串条件决定使用捕获的图还是 eager；第一个不满足的条件就是原因。",
    ),
    "stage.4.what": (
        "All requests become one flat list of rows. The order is a rule: contexts, generations, dummies.",
        "所有请求排成一列扁平的行。顺序是规则：上下文、解码、填充。",
    ),
    "stage.5.what": (
        "The rows are written into tensors whose address never changes. What is not written stays as it was.",
        "把行写进地址永不改变的张量。没有写到的地方保持原样。",
    ),
    "stage.6.what": (
        "The step in the attention kernels' terms: lengths and block tables, written in place before the run.",
        "把本步写成注意力内核的语言：长度和块表，在运行前原地写好。",
    ),
    "stage.7.what": (
        "The forward: launched operation by operation, or replayed as one captured graph.",
        "前向计算：逐个算子启动，或作为一个捕获的图整体重放。",
    ),
    "stage.8.what": (
        "Each row that asked for logits gives one token; the host reads it here for the first time.",
        "每个要 logits 的行给出一个词元；主机在这里第一次读到它。",
    ),
    "stage.9.what": (
        "The step becomes final: tokens are appended, finished requests give their blocks and slots back.",
        "本步生效：追加词元，结束的请求归还块和槽位。",
    ),
}

_STEP: Final[dict[str, tuple[str, str]]] = {
    "say.replay": (
        "Step {step} replays the graph for {bucket}: {what}{fill}.",
        "第 {step} 步重放大小为 {bucket} 的图：{what}{fill}。",
    ),
    "say.prefill_replay": (
        "Step {step} replays prefill segments: {what}.",
        "第 {step} 步重放预填充的各段：{what}。",
    ),
    "say.capture": (
        "Step {step} captures a graph for {bucket}: {what}{fill}.",
        "第 {step} 步捕获大小为 {bucket} 的图：{what}{fill}。",
    ),
    "say.eager": ("Step {step} runs eagerly: {what}.", "第 {step} 步以 eager 运行：{what}。"),
    "say.idle": ("Step {step} has nothing to run.", "第 {step} 步没有可运行的请求。"),
    "what.decode": ("{n} {n|request decodes|requests decode}", "{n} 个请求解码"),
    "what.context": (
        "{c} {c|request computes|requests compute} {tokens} prompt {tokens|token|tokens}",
        "{c} 个请求计算 {tokens} 个提示词元",
    ),
    "what.both": ("{left}, {right}", "{left}，{right}"),
    "fill.exact": (", an exact fit", "，恰好装满"),
    "fill.dummies": (
        ", and {n} {n|dummy fills|dummies fill} the bucket ({waste} % waste)",
        "，{n} 个填充请求补满桶（浪费 {waste} %）",
    ),
    "say.steady": (
        "Same requests as before: positions grow by one in place and one gather fetches the tokens; nothing was packed.",
        "请求与上一步相同：位置原地加一，词元一次收集；没有重新打包。",
    ),
    "say.waits": ("{who} held back: {reason}.", "{who} 被推迟：{reason}。"),
    "say.wrong": (
        "{n} {n|row differs|rows differ} from the run that this one is compared with (✗).",
        "有 {n} 行与所对照的运行不同（✗）。",
    ),
    "say.gap": ("Steps between the last one shown and this one are missing.", "上一个显示的步骤与本步之间有缺失。"),
    "say.stale": (
        "Rows {rows} of {buffer} are read but were not written in this step.",
        "{buffer} 的第 {rows} 行被读取，但本步没有写入。",
    ),
    "chg.admitted": ("{who} {n|starts|start}", "{who} 开始"),
    "chg.finished": ("{who} finishes ({reason})", "{who} 结束（{reason}）"),
    "chg.left": ("{who} {n|is|are} gone", "{who} 已离开"),
    "chg.decodes": ("{who} {n|begins|begin} to decode", "{who} 开始解码"),
    "chg.path": ("{old} → {new}", "{old} → {new}"),
    "chg.bucket": ("bucket {old} → {new}", "桶 {old} → {new}"),
    "chg.blocks": ("+{n} {n|block|blocks}", "+{n} 块"),
    "chg.deferred": ("{who} held back", "{who} 被推迟"),
    "chg.none": ("same batch, same path", "批次与路径都没有变"),
    "chg.address": ("{buffer} moved", "{buffer} 的地址变了"),
    "sch.nobody_waits": ("Nobody is held back.", "没有请求被推迟。"),
    "sch.promoted": ("context, run as a decode row", "上下文，按解码行运行"),
    "sch.chunk": ("{done} of {whole}", "{done} / {whole}"),
    "sch.last_chunk": ("{done} of {whole}, samples", "{done} / {whole}，采样"),
    "sch.decodes": ("output token {n}", "第 {n} 个输出词元"),
    "sch.paused": ("Paused, its blocks given back: {who}.", "已暂停并归还块：{who}。"),
    "res.none": ("No block was added: the last blocks still have room.", "没有新增块：最后的块还有空位。"),
    "res.room": ("{used} / {room}", "{used} / {room}"),
    "res.pool": ("The pool", "块池"),
    "res.map": ("{held} of {total} blocks are held", "{total} 个块中有 {held} 个被持有"),
    "res.legend": (
        "One cell a block. A number: of that request; ×2: of two; c: cached; P: a dummy's; thick: added now.",
        "每格一个块。数字：由该请求持有；×2：两个共用；c：已缓存；P：属于填充请求；粗框：本步新增。",
    ),
    "res.legend_many": (
        "One cell for {n} blocks, … where they differ; ×2: of two requests; c: cached; P: a dummy's; thick: added now.",
        "每格 {n} 个块，… 表示其中各不相同；×2：两个请求共用；c：已缓存；P：属于填充请求；粗框：本步新增。",
    ),
    "pad.ladder": ("{n} {n|request goes|requests go} to bucket {bucket}", "{n} 个请求进入大小为 {bucket} 的桶"),
    "pad.ladder_prefill": (
        "{n} rows go to the prefill graph for {bucket}",
        "{n} 行进入 {bucket} 行的预填充图",
    ),
    "pad.ladder_eager": ("{n} {n|request|requests}, no bucket: eager", "{n} 个请求，没有桶：eager"),
    "pad.say_eager": (
        "Eager: the batch keeps its own {n} {n|request|requests}; nothing is padded.",
        "Eager：批次保持自己的 {n} 个请求，不填充。",
    ),
    "pad.say_exact": (
        "{n} {n|request fits|requests fit} bucket {bucket} exactly: no dummy, no waste.",
        "{n} 个请求恰好装满大小为 {bucket} 的桶：没有填充，没有浪费。",
    ),
    "pad.say_padded": (
        "{n} {n|request goes|requests go} into bucket {bucket} with {dummies} {dummies|dummy|dummies}: {waste} % waste.",
        "{n} 个请求加 {dummies} 个填充请求进入大小为 {bucket} 的桶：浪费 {waste} %。",
    ),
    "pad.say_prefill": (
        "{n} rows go through the prefill graph for {bucket}: {dummies} empty {dummies|row|rows} at the tail, {waste} % waste.",
        "{n} 行经过 {bucket} 行的预填充图：尾部 {dummies} 个空行，浪费 {waste} %。",
    ),
    "pad.promoted": (
        "Promoted: {who} {n|has|have} one prompt token left{n|| each}, so {n|it runs as a decode row|they run as decode rows}.",
        "提升：{who} {n||各}只剩一个提示词元，按解码行运行。",
    ),
    "pad.why": (
        "A dummy is a real request with its own block and slot: the graph reads and writes its rows like any other.",
        "填充请求是真正的请求，有自己的块和槽位：图像对待其他行一样读写它的行。",
    ),
    "pad.dummy": ("dummy", "填充"),
    "pad.too_small": ("too small", "太小"),
    "pad.exact": ("exactly", "恰好"),
    "pad.fits": ("with padding", "需填充"),
    "pad.captured": ("{n} captured, +{bytes}", "已捕获 {n} 个，+{bytes}"),
    "pad.segments": ("a chain of segments", "一串分段"),
    "pad.captured_free": ("{n} captured, in the same memory", "已捕获 {n} 个，共用同一内存"),
    "pad.released": ("{n} captured, released since", "捕获过 {n} 个，已释放"),
    "pad.no_graph": ("not captured", "未捕获"),
    "path.graph_why": (
        "Every condition holds; {check} facts are compared again before the replay.",
        "所有条件都满足；重放前还会再比较 {check} 项。",
    ),
    "path.prefill_why": (
        "{n} rows fit the captured chain for {bucket}: segment by segment is replayed, attention runs eagerly in between.",
        "{n} 行放得进 {bucket} 行的分段图：逐段重放，段与段之间的注意力以 eager 运行。",
    ),
    "path.smallest": ("Smallest change: {fix}", "最小的改动：{fix}"),
    "rows.full": (
        "{n} {n|row|rows}, packed by the host: {c} context, {e} extend, {g} generation, {p} padding.",
        "{n} 行，由主机打包：上下文 {c}、扩展 {e}、解码 {g}、填充 {p}。",
    ),
    "rows.steady": (
        "{n} {n|row|rows}, nothing packed: positions +1 in place, tokens by one gather ({g} generation, {p} padding).",
        "{n} 行，没有打包：位置原地加一，词元一次收集（解码 {g}、填充 {p}）。",
    ),
    "rows.wrong": ("✗ row {row}: {text}", "✗ 第 {row} 行：{text}"),
    "rows.promoted": (
        (
            "Promoted: the last prompt {n|token|tokens} of {who} {n|is|are} laid out as {n|a decode row|decode rows} (E), "
            "copied by the host."
        ),
        "提升：{who} {n||各自}的最后一个提示词元按解码行（E）排列，由主机拷贝。",
    ),
    "rows.tail": (
        "Rows {from} to {to} are the zero-filled tail of the prefill bucket ({n} {n|row|rows}, of no request).",
        "第 {from} 至 {to} 行是预填充桶清零的尾部（{n} 行，不属于任何请求）。",
    ),
    "rows.not_steady": ("Packed in full: {why}.", "完整打包：{why}。"),
    "rows.become": ("What becomes of them (next stage)", "它们的去处（下一阶段）"),
    "meta.eager": (
        "The eager metadata object …{obj} ({backend}): {contexts} {contexts|context|contexts}, {n} rows.",
        "eager 的元数据对象 …{obj}（{backend}）：{contexts} 个上下文，{n} 行。",
    ),
    "meta.graph": (
        "The metadata object …{obj} ({backend}) belongs to this graph key alone: the graph has its addresses baked in.",
        "元数据对象 …{obj}（{backend}）只属于这个图键：图里固化了它的地址。",
    ),
    "meta.new": ("new", "新"),
    "meta.note": (
        "kv = cached + q. Underlined: the block that receives this step's newest token; dotted: reserved, still empty.",
        "kv = 已缓存 + q。下划线：接收本步最新词元的块；点线：已预留但为空。",
    ),
    "run.simulated": (
        "The graph is simulated by the CPU tape: addresses, keys and contents are real, speed is not.",
        "图由 CPU 磁带模拟：地址、键和内容是真实的，速度不是。",
    ),
    "run.host": ("{us} of host time", "主机时间 {us}"),
    "run.say.eager": ("{n} {n|row|rows}, launched one operation after another.", "{n} 行，逐个算子启动。"),
    "run.say.replay": (
        "One launch replays everything that was captured for {key}.",
        "一次启动重放为 {key} 捕获的全部操作。",
    ),
    "run.say.prefill_replay": (
        "The captured segments of {key} were replayed one by one; between them, attention ran eagerly.",
        "逐段重放为 {key} 捕获的各段；段与段之间，注意力以 eager 运行。",
    ),
    "run.say.capture": ("The operations were recorded for {key}, then replayed.", "为 {key} 录制操作，然后重放。"),
    "run.no_check": (
        "Nothing was compared before this step: only a replay depends on old addresses.",
        "这一步之前没有比较：只有重放依赖旧地址。",
    ),
    "run.captured": ("captured {name}", "已捕获 {name}"),
    "run.addresses": (
        "A graph reads its statics and its metadata at these addresses, whatever Python holds by then.",
        "图读取这些地址上的静态张量和元数据，不管 Python 变量此时指向什么。",
    ),
    "run.pool_own": (
        "All graphs share one memory pool of {bytes}; capturing this one added {own}.",
        "所有图共用一个 {bytes} 的内存池；捕获这个图增加了 {own}。",
    ),
    "run.pool_shared": (
        "All graphs share one memory pool of {bytes}; capturing this one added nothing to what earlier captures took.",
        "所有图共用一个 {bytes} 的内存池；先前的捕获占用的内存已够用，捕获这个图没有增加。",
    ),
    "run.pool": ("All graphs share one memory pool of {bytes}.", "所有图共用一个 {bytes} 的内存池。"),
    "run.pool_none": ("No graph holds memory: their pool is empty.", "没有图占用内存：图内存池为空。"),
    "run.pool_released": (
        "The captured graphs were released before this step: their memory pool is empty.",
        "捕获的图在这一步之前已被释放：图内存池为空。",
    ),
    "run.pool_grew": ("The shared graph pool grew by {grew} to {bytes}.", "共用的图内存池增加 {grew}，达到 {bytes}。"),
    "smp.say": (
        "{n} {n|token was|tokens were} sampled; {silent} unfinished {silent|prompt|prompts} asked for none.",
        "采样了 {n} 个词元；{silent} 个未完成的提示不采样。",
    ),
    "smp.note": (
        "The sample stays on the device at its slot; the next step gathers it from there.",
        "采样结果留在设备上自己的槽位；下一步从那里收集。",
    ),
    "com.say": ("{fin} finished, {cont} go on.", "{fin} 个结束，{cont} 个继续。"),
    "com.note": (
        "Until here everything could still be rolled back; an exception before this stage leaves no block behind.",
        "在此之前一切都可以回滚；这个阶段之前的异常不会遗留任何块。",
    ),
    "com.gone": ("gone", "离开"),
    "com.next_decode": ("decodes at position {at}", "在位置 {at} 解码"),
    "com.next_chunk": ("prompt from {at} of {whole}", "提示从 {at} 开始，共 {whole}"),
    "com.freed": ("Given back: {who}.", "归还：{who}。"),
    "com.freed_one": ("{who} its slot and {n} {n|block|blocks}", "{who} 的槽位和 {n} 个块"),
}

SENTENCES: Final[dict[str, tuple[str, str]]] = {**_STAGES, **_STEP}
