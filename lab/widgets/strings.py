"""One string table for the stepper: every word that it shows, in English and Chinese.

A sentence travels as ``(id, arguments)``; ``translate`` puts it into words here, and the browser does the same with
the same table. ``{name}`` inserts an argument, ``{n|one|many}`` chooses by number, and an argument that is itself an
``(id, arguments)`` pair is translated first. Labels are in this file; what is
said in sentences is in ``sentences.py``, ``hints.py`` and ``view_words.py``, and of reasons in ``reason_words.py``.

Does not: choose what to say (``frames.py``), or hold the reasons' own sentences (``lab/reasons.py``).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lab.condition_words import FACTS
from lab.outline import OUTLINE_WORDS
from lab.widgets.compare_words import COMPARE_WORDS
from lab.widgets.header import FINDING_WORDS
from lab.widgets.hints import HINTS
from lab.widgets.lesson_words import LESSON_WORDS
from lab.widgets.play_words import PLAY_WORDS
from lab.widgets.reason_words import REASON_WORDS
from lab.widgets.sentences import SENTENCES
from lab.widgets.view_words import VIEW_WORDS
from lab.widgets.whatif import WHAT_IF_WORDS

LANGUAGES: Final = ("en", "zh")

_LABELS: Final[dict[str, tuple[str, str]]] = {
    "root.name": ("Step viewer", "逐步查看器"),
    "root.empty": ("No steps yet.", "还没有任何步骤。"),
    # bar
    "bar.step": ("Step {step}", "第 {step} 步"),
    "bar.of": ("of {first}–{last}", "/ {first}–{last}"),
    "bar.first": ("First step", "第一步"),
    "bar.previous": ("Previous step", "上一步"),
    "bar.next": ("Next step", "下一步"),
    "bar.last": ("Last step", "最后一步"),
    "bar.falloff": ("Next fall-off", "下一次掉出图"),
    "bar.predict": ("Predict", "预测"),
    "bar.table": ("Table", "表格"),
    "bar.help": ("Help", "帮助"),
    "bar.live": ("Run the next step", "运行下一步"),
    "bar.simulated": ("graphs simulated", "图为模拟"),
    "nav.scrub": ("Step", "步"),
    "nav.value": (
        "Step {step} of {first}–{last}: {path}, bucket {bucket}",
        "第 {step} 步（{first}–{last}）：{path}，桶 {bucket}",
    ),
    "nav.again": ("After the last step: from the start again.", "已到最后一步：再从头开始。"),
    "nav.none": ("No step of this run is eager.", "本次运行没有 eager 的步骤。"),
    "tl.scale": ("rows (√ scale, most {max})", "行数（平方根刻度，最多 {max}）"),
    "tl.aria": ("Rows of each of {n} steps; {eager} ran eagerly", "{n} 步各自的行数；其中 {eager} 步为 eager"),
    "tip.step": (
        "Step {step}: {path}, {n} {n|request|requests}, {rows} rows ({pad} padding), {us} on the host",
        "第 {step} 步：{path}，{n} 个请求，{rows} 行（填充 {pad}），主机 {us}",
    ),
    "tip.hidden": ("Step {step}: predict it first", "第 {step} 步：请先预测"),
    "legend.eager": ("eager", "eager"),
    "legend.idle": ("nothing to run", "没有可运行的请求"),
    "legend.replay": ("replay", "重放"),
    "legend.prefill_replay": ("prefill segments", "预填充分段"),
    "legend.capture": ("capture", "捕获"),
    "legend.padding": ("padding rows", "填充行"),
    "legend.followed": ("the followed request", "所跟踪的请求"),
    "warm.chip": ("Warm-up {n} {n|graph|graphs}", "预热 {n} 个图"),
    "warm.title": ("Warm-up: captured before step 0", "预热：在第 0 步之前捕获"),
    "warm.none": (
        "No graph was captured: every step of this run is eager.",
        "没有捕获任何图：本次运行每步都是 eager。",
    ),
    "rail.name": ("Stages of the step", "本步的阶段"),
    "rail.total": ("host time {us}", "主机时间 {us}"),
    # stages
    "stage.0": ("Schedule", "调度"),
    "stage.1": ("Reserve", "预留"),
    "stage.2": ("Pad", "填充"),
    "stage.3": ("Choose graph", "选择图"),
    "stage.4": ("Pack", "打包"),
    "stage.5": ("Copy", "写入"),
    "stage.6": ("Metadata", "元数据"),
    "stage.7": ("Run", "运行"),
    "stage.8": ("Sample", "采样"),
    "stage.9": ("Commit", "提交"),
    "link.code": ("code:", "代码："),
    "link.article": ("article section:", "文章小节："),
    "link.word": ("glossary:", "术语："),
    # side
    "side.name": ("This step", "本步"),
    "side.path": ("Path of this step", "本步的路径"),
    "side.requests": ("Requests", "请求"),
    "side.nobody": ("No request yet.", "还没有请求。"),
    "side.follow": ("{who} through this step", "{who} 在本步中"),
    "side.follow_none": ("Follow a request", "跟踪一个请求"),
    "out.name": ("Output text of each request", "每个请求的输出文本"),
    "state.waiting": ("waiting", "等待"),
    "state.later": ("arrives at step {from}", "第 {from} 步到达"),
    "state.prefill": ("prompt {done}/{whole}", "提示 {done}/{whole}"),
    "state.decode": ("decode {n}/{max}", "解码 {n}/{max}"),
    "state.paused": ("held back, {n}/{max}", "被推迟，{n}/{max}"),
    "state.finishing": ("finishes now, {n}", "本步结束，{n}"),
    "state.finished": ("finished, {n}", "已结束，{n}"),
    # columns
    "col.request": ("request", "请求"),
    "col.kind": ("kind", "种类"),
    "col.prompt": ("prompt", "提示"),
    "col.rows": ("rows", "行数"),
    "col.positions": ("positions", "位置"),
    "col.reason": ("reason", "原因"),
    "col.meaning": ("meaning", "含义"),
    "col.needed": ("needed", "需要"),
    "col.available": ("available", "可用"),
    "col.slot": ("slot", "槽位"),
    "col.cached_credit": ("from cache", "来自缓存"),
    "col.held": ("blocks held", "持有块"),
    "col.added": ("added now", "本步新增"),
    "col.room": ("tokens / room", "词元 / 容量"),
    "col.bucket": ("bucket", "桶"),
    "col.fits": ("fits?", "能否容纳"),
    "col.waste": ("waste", "浪费"),
    "col.graph": ("graph", "图"),
    "col.result": ("result", "结果"),
    "col.condition": ("condition", "条件"),
    "col.got": ("got", "实际"),
    "col.row": ("row", "行"),
    "col.token": ("token", "词元"),
    "col.id": ("id", "编号"),
    "col.position": ("position", "位置"),
    "col.source": ("token comes from", "词元来自"),
    "col.head": ("logits", "logits"),
    "col.sequence": ("seq", "序列"),
    "col.q": ("q", "q"),
    "col.cached": ("cached", "已缓存"),
    "col.kv": ("kv", "kv"),
    "col.bar": ("cached + new", "已缓存 + 新增"),
    "col.blocks": ("block table", "块表"),
    "col.item": ("compared", "比较项"),
    "col.expected": ("at capture", "捕获时"),
    "col.tensor": ("tensor", "张量"),
    "col.was": ("captured, or first seen", "捕获时，或首次看到"),
    "col.now": ("now", "现在"),
    "col.nth": ("n-th output", "第几个输出"),
    "col.fate": ("what happens", "去向"),
    "col.generated": ("generated", "已生成"),
    "col.next": ("next step", "下一步"),
    "col.step": ("step", "步"),
    "col.path": ("path", "路径"),
    "col.key": ("key or reason", "键或原因"),
    "col.requests": ("requests", "请求"),
    "col.padding": ("padding", "填充"),
    "col.sampled": ("sampled", "采样"),
    "col.host": ("host time", "主机时间"),
    "col.order": ("order", "顺序"),
    "col.bytes": ("memory", "内存"),
    "col.seconds": ("seconds", "秒"),
    # captions
    "cap.runs": ("Who runs", "谁运行"),
    "cap.waits": ("Held back, and why", "被推迟的请求与原因"),
    "cap.reserved": ("Slots and blocks of the requests of this step", "本步各请求的槽位和块"),
    "cap.buckets": ("What each bucket would cost", "每个桶的代价"),
    "cap.conditions": ("The checklist, in the order in which it is tried", "检查清单（按尝试顺序）"),
    "cap.rows": ("Rows of this step", "本步的行"),
    "cap.lengths": ("Lengths of each sequence, in tokens", "每个序列的长度（词元）"),
    "cap.block_tables": ("Block tables", "块表"),
    "cap.replay_check": ("Compared before the replay", "重放前的比较"),
    "cap.addresses": ("Addresses: what a graph has baked in, and what stands there now", "地址：图中固化的与现在的"),
    "cap.first_addresses": (
        "Addresses: at the first step of this run that has the tensor, and now",
        "地址：张量在本次运行中首次出现时的与现在的",
    ),
    "cap.sampled": ("Tokens sampled in this step", "本步采样的词元"),
    "cap.committed": ("After this step", "本步之后"),
    "cap.steps": ("All steps", "所有步骤"),
    "cap.warmup": ("Captured graphs, largest first", "捕获的图（从大到小）"),
    # kinds, sources, writers, layers
    "kind.context": ("context", "上下文"),
    "kind.extend": ("extend", "扩展"),
    "kind.generation": ("generation", "解码"),
    "kind.padding": ("padding", "填充"),
    "src.prompt": ("prompt, copied by the host", "提示，由主机拷贝"),
    "src.previous_sample": ("previous sample, slot {slot}", "上一步采样，槽位 {slot}"),
    "src.zero_fill": ("zero fill", "清零"),
    "src.host": ("own token, copied by the host", "自己的词元，由主机拷贝"),
    "writer.never": ("nobody", "无"),
    "writer.host_copy": ("host copy", "主机拷贝"),
    "writer.device_gather": ("device gather", "设备收集"),
    "writer.in_place_add": ("in-place add", "原地加一"),
    "writer.zero_fill": ("zero fill", "清零"),
    "writer.device_copy": ("device copy", "设备拷贝"),
    "layer.persistent": ("Runner buffers", "运行器缓冲区"),
    "layer.static": ("Graph statics", "图的静态张量"),
    "layer.metadata": ("Metadata tensors", "元数据张量"),
    # runs and results
    "run.eager": ("eager", "eager"),
    "run.idle": ("idle", "空闲"),
    "run.replay": ("replay", "重放"),
    "run.prefill_replay": ("prefill segments", "预填充分段"),
    "run.capture": ("capture", "捕获"),
    "path.graph": ("Graph path", "图路径"),
    "path.eager": ("Eager", "Eager"),
    "cond.yes": ("pass", "通过"),
    "cond.no": ("fail", "不通过"),
    "cond.skipped": ("not reached", "未检查"),
    "check.same": ("same", "相同"),
    "check.differs": ("differs", "不同"),
    "finish.length": ("length", "长度已到"),
    "finish.stop": ("stop", "遇到停止"),
    "finish.abort": ("abort", "被中止"),
    "finish.error": ("error", "出错"),
    "fate.continues": ("continues", "继续"),
    "fate.paused": ("paused", "暂停"),
    "fate.finished": ("finished ({reason})", "结束（{reason}）"),
    "token.on_device": ("on the device", "在设备上"),
    # budgets, table, sheets, keys
    "budget.rows": ("rows", "行"),
    "budget.requests": ("requests", "请求"),
    "budget.blocks": ("blocks used", "已用块"),
    "budget.of": ("{used} of {limit}", "{used} / {limit}"),
    "more.rows": ("+ {n} more rows", "+ 还有 {n} 行"),
    "more.requests": ("+ {n} more requests", "+ 还有 {n} 个请求"),
    "more.earlier": ("after {n} earlier blocks", "之前还有 {n} 块"),
    "tbl.earlier": ("Earlier steps", "更早的步骤"),
    "tbl.later": ("Later steps", "更晚的步骤"),
    "tbl.page": ("{first} to {last}, of {n} steps", "{first} 至 {last}，共 {n} 步"),
    "sheet.close": ("Close", "关闭"),
    "help.title": ("Keys and marks", "按键与标记"),
    "key.step": ("previous, next step", "上一步、下一步"),
    "key.ten": ("ten steps back, ahead", "后退、前进十步"),
    "key.ends": ("first, last step", "第一步、最后一步"),
    "key.stage": ("previous, next stage", "上一、下一阶段"),
    "key.falloff": ("next step that fell off the graph path", "下一个掉出图路径的步骤"),
    "key.table": ("table view", "表格视图"),
    "key.predict": ("predict before you look", "先预测再看"),
    "key.live": ("run the next step (live only)", "运行下一步（仅实时）"),
    "key.help": ("this help", "本帮助"),
    "key.escape": ("close, stop predicting, stop following, leave the viewer", "关闭、停止预测、停止跟踪、离开查看器"),
}

STRINGS: Final[Mapping[str, tuple[str, str]]] = {
    **_LABELS,
    **SENTENCES,
    **HINTS,
    **LESSON_WORDS,
    **VIEW_WORDS,
    **{name: (words.en, words.zh) for name, words in FACTS.items()},
    **OUTLINE_WORDS,
    **REASON_WORDS,
    **WHAT_IF_WORDS,
    **COMPARE_WORDS,
    **PLAY_WORDS,
    **FINDING_WORDS,
}
_SLOT: Final = re.compile(r"\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}")


def table(language: str) -> dict[str, str]:
    """Return every string of one language, by id."""
    at = LANGUAGES.index(language)
    return {name: texts[at] for name, texts in STRINGS.items()}


def translate(name: str, arguments: Mapping[str, Any] | None = None, language: str = "en") -> str:
    """Put one sentence into words; an unknown id is shown as it is."""
    if name not in STRINGS:
        return name
    values = arguments or {}

    def insert(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if match[2] is not None:
            return match[2] if value == 1 else match[3]
        if isinstance(value, list | tuple):
            inner, *rest = value
            return translate(str(inner), rest[0] if rest else None, language)
        return "" if value is None else str(value)

    return _SLOT.sub(insert, STRINGS[name][LANGUAGES.index(language)])


def told(said: Iterable[tuple[str, Mapping[str, Any]]], language: str = "en") -> str:
    """Put sentences into words, one behind the other; Chinese ones need no space between them."""
    return ("" if language == "zh" else " ").join(translate(name, arguments, language) for name, arguments in said)
