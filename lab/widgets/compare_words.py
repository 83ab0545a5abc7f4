"""What is said of two runs side by side: their first difference, how many there are, and what was configured otherwise.

Part of the one string table, English and Chinese side by side; ``strings.py`` joins the parts.

Does not: compare, or hold logic.
"""

from typing import Final

from lab.condition_words import FACTS

MISSING_TEXT: Final = FACTS["fact.missing_row"].en  # of a row's mark, whose text is said in either language when shown
OTHER_TEXT: Final = FACTS["fact.other_token"].en

COMPARE_WORDS: Final[dict[str, tuple[str, str]]] = {
    "diff.same": (
        "The two runs are the same in all {n} {n|step|steps}: schedule, path, rows and samples.",
        "两次运行在全部 {n} 步中相同：调度、路径、行和采样。",
    ),
    "diff.model": ("Another model (A → B): {left} → {right}.", "模型不同（A → B）：{left} → {right}。"),
    "diff.first": (
        "The first difference is in step {step}, in {what}: {left} in run A, {right} in run B.",
        "第一处不同在第 {step} 步，{what}：运行 A 为 {left}，运行 B 为 {right}。",
    ),
    "diff.count": ("{n} {n|step differs|steps differ}.", "共有 {n} 步不同。"),
    "diff.config": ("Configured otherwise (A → B): {fields}.", "配置的不同（A → B）：{fields}。"),
    "diff.missing": ("the step itself, which one run does not have", "步骤本身，其中一次运行没有这一步"),
    "diff.spans": ("what was scheduled", "调度的内容"),
    "diff.paused": ("who was paused", "暂停的请求"),
    "diff.waits": ("who waits, and why", "等待的请求及原因"),
    "diff.cached": ("what came from the cache", "来自缓存的词元"),
    "diff.path": ("the path", "路径"),
    "diff.reason": ("the reason for running eagerly", "以 eager 运行的原因"),
    "diff.bucket": ("the bucket", "桶"),
    "diff.key": ("the graph key", "图键"),
    "diff.steady": ("how it was prepared", "准备的方式"),
    "diff.rows": ("its rows (request, kind, position, token)", "行（请求、种类、位置、词元）"),
    "diff.sampled": ("what was sampled (request, token)", "采样的词元（请求、词元）"),
    "diff.finished": ("who finished", "结束的请求"),
    "diff.run": ("Run {which}", "运行 {which}"),
    "diff.title": ("Two runs, step by step", "两次运行，逐步对照"),
    "diff.choose": ("Go to a difference", "跳到不同之处"),
    "diff.list": ("Steps that differ ({n}, the first {shown} here)", "不同的步骤（共 {n} 步，这里列出前 {shown} 步）"),
    "diff.what": ("first of it to differ", "其中第一处不同"),
    "diff.absent": (
        "Run {which} has no such step: it stays where it was.",
        "运行 {which} 没有这一步：它停在原处。",
    ),
}
