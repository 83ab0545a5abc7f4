"""Where each of the ten stages lives: function, file and line, the article's section, the glossary word.

The line is read from the source text by ``ast`` when it is first asked for, so that it is always that of the code that
runs here, and nothing of the engine (or torch) is imported for it.

Does not: describe a stage (``sentences.py``), or order them (``lab/snapshot.py``).
"""

import ast
import dataclasses
import functools
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, slots=True)
class StageLink:
    """One stage's places. name: dotted, class first. article: the article's own heading."""

    file: str
    name: str
    article: str
    word_en: str
    word_zh: str


STAGE_LINKS: Final = (
    StageLink(
        "engine/scheduler/micro_batch.py",
        "MicroBatchScheduler.schedule",
        "从调度输出到模型输入",
        "scheduled requests",
        "调度结果",
    ),
    StageLink("engine/resources.py", "ResourceManager.reserve", "从调度输出到模型输入", "block reservation", "块预留"),
    StageLink(
        "engine/cuda_graphs/dummies.py",
        "PaddingDummies.pad",
        "Padding:为什么必须往批次里塞假请求",
        "padding dummy, bucket",
        "填充请求（假请求）、桶",
    ),
    StageLink("engine/cuda_graphs/select.py", "select_graph", "一次前向的执行编排:先选图", "graph key", "图键"),
    StageLink("engine/inputs/pack.py", "pack", "逐请求打包:预填充、扩展与解码三个世界", "packing", "打包"),
    StageLink(
        "engine/inputs/prepare.py",
        "DecoderInputPreparer.copy_inputs",
        "一次解码步的输入准备:七步流水线",
        "persistent buffer",
        "持久缓冲区",
    ),
    StageLink(
        "engine/attention/paged.py",
        "PagedMetadata.prepare",
        "AttentionMetadata.prepare():把账本翻译成内核参数",
        "attention metadata, block table",
        "注意力元数据、块表",
    ),
    StageLink(
        "engine/cuda_graphs/runner.py",
        "CUDAGraphRunner.replay",
        "图捕获与重放的硬边界",
        "capture, replay, eager",
        "捕获、重放、eager",
    ),
    StageLink("engine/py_executor.py", "PyExecutor._read_samples", "第二步:解析上一步的采样结果", "sample", "采样结果"),
    StageLink("engine/executor/lifecycle.py", "Lifecycle.commit", "系列进度与本篇定位", "commit", "提交"),
)

_LEDGER_ARTICLE: Final = "AttentionMetadata.prepare():把账本翻译成内核参数"
# The views that stand beside the stages, numbered behind them: what holds across steps.
VIEW_LINKS: Final = (
    StageLink("engine/kv_cache/ledger.py", "BlockLedger.allocate", _LEDGER_ARTICLE, "block ledger", "块账本"),
    StageLink("engine/kv_cache/reuse_tree.py", "ReuseTree.add", _LEDGER_ARTICLE, "reuse tree", "复用树"),
    StageLink("engine/py_executor.py", "PyExecutor._run_step", "稳态解码快路径", "overlap", "重叠执行"),
)

_STEADY_ARTICLE: Final = "稳态解码快路径"
# Where a stage goes another way: its number, and s for a steady step, p for a prefill graph, e for an eager one.
OTHER_LINKS: Final = {
    "4s": StageLink("engine/inputs/steady.py", "why_not_use", _STEADY_ARTICLE, "steady generation", "稳态解码"),
    "5s": StageLink(
        "engine/inputs/prepare.py",
        "DecoderInputPreparer.advance_inputs",
        _STEADY_ARTICLE,
        "in-place overwrite",
        "原地写入",
    ),
    "6s": StageLink(
        "engine/attention/paged.py", "PagedMetadata.advance", _STEADY_ARTICLE, "attention metadata", "注意力元数据"
    ),
    "7p": StageLink(
        "engine/cuda_graphs/prefill.py", "PrefillGraphs.run", "Piecewise CUDA Graph", "prefill graph", "预填充图"
    ),
    "7e": StageLink(
        "engine/runners/model_forward.py", "ModelForward.eager", "一次前向的执行编排:先选图", "fall-off", "退回 eager"
    ),
}


def find_line(source: str, name: str) -> int | None:
    """Return the line on which a function or a class's method is defined, or None."""
    body: list[ast.stmt] = ast.parse(source).body
    line: int | None = None
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = next((node for node in body if isinstance(node, kinds) and node.name == part), None)
        if found is None:
            return None
        line, body = found.lineno, found.body
    return line


@functools.cache
def _line_of(file: str, name: str) -> int:
    path = ROOT / file
    if not path.is_file():
        return 0  # an installation without the engine's source still shows the stage
    return find_line(path.read_text(encoding="utf-8"), name) or 0


def stage_facts() -> list[dict[str, Any]]:
    """Return the ten stages and the views behind them as the browser draws them. line 0: the source is not here."""
    return [_facts(link) for link in (*STAGE_LINKS, *VIEW_LINKS)]


def other_facts() -> dict[str, dict[str, Any]]:
    """Return the other ways of a stage, by the keys of ``OTHER_LINKS``."""
    return {key: _facts(link) for key, link in OTHER_LINKS.items()}


def _facts(link: StageLink) -> dict[str, Any]:
    return {**dataclasses.asdict(link), "line": _line_of(link.file, link.name)}
