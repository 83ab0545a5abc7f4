"""Outlines: steps of which only the schedule's numbers and the path are known, as another engine's log tells them.

An outline has spans, because requests ran, and no rows, because nobody said which. A span without a name has a number
below 0 in place of its request's, and its rows are an equal share: of an outline only the sums are facts, which are in
the budget (requests, rows) and in the metadata (rows, padded rows). A view that needs more says that it is missing.

Does not: read a log (``lab/imports``), or draw. Torch-free.
"""

from collections.abc import Mapping
from typing import Any, Final

from lab.snapshot import UNKNOWN, StepSnapshot

NAMELESS: Final[Mapping[str, int]] = {"C": -1, "E": -2, "G": -2}  # the number in place of a request's, by kind
IMPORTED: Final = "imported"  # the mode of a trace, and of a step, that was not recorded here
UNTOLD: Final = "?"  # stands where a number is not known

_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "outline.ran": (
        "Step {step}: rows {rows}, requests {requests}, rows from prompts {contexts}; {how}.",
        "第 {step} 步：{requests} 个请求共 {rows} 行，其中 {contexts} 行来自提示；{how}。",
    ),
    "outline.eager": ("it ran eagerly", "以 eager 方式运行"),
    "outline.replay": (
        "the graph of {bucket} ran, padding rows: {padding}",
        "重放 {bucket} 的图，填充 {padding} 行",
    ),
    "outline.prefill_replay": (
        "captured segments of {bucket} rows ran, padding rows: {padding}",
        "重放 {bucket} 行的分段图，填充 {padding} 行",
    ),
    "outline.capture": ("a graph of {bucket} was captured", "捕获 {bucket} 的图"),
    "outline.untold": ("Why it ran eagerly is not in the file.", "文件中没有说明为何以 eager 方式运行。"),
    "outline.derived": (
        "What the file does not say of path and reason follows from the list of buckets.",
        "文件没有记录的路径或原因，由桶列表推出。",
    ),
    "outline.missing": (
        "Imported: which requests, tokens, blocks and buffers is not in the file.",
        "导入的步骤：文件中没有请求、词元、块和缓冲区的内容。",
    ),
    "outline.nobody": (
        "The imported file names no request, so there is none to follow.",
        "导入的文件没有列出具体的请求，因此没有可跟踪的请求。",
    ),
    "outline.panel": (
        "Not in the imported file: it has the schedule's numbers and the path. A time at Run is the whole step's.",
        "导入的文件中没有：它只有调度的数字和路径。“运行”处的时间是整步的时间。",
    ),
}
OUTLINE_WORDS: Final = _WORDS  # joined into the stepper's string table


def is_outline(step: StepSnapshot) -> bool:
    """Return whether only the schedule's numbers and the path of a step are known."""
    return bool(step.schedule.spans) and not step.rows.num_rows


def untold(number: int) -> int | str:
    """Return a number, or a question mark for one that is not known."""
    return UNTOLD if number == UNKNOWN else number


def outline_said(step: StepSnapshot) -> list[tuple[str, dict[str, Any]]]:
    """Return what there is to say about an outline, as (id, arguments) pairs; an argument may be such a pair."""
    path = step.graph.path
    bucket = step.path.bucket if step.path.key is not None else step.metadata.padded_num_tokens
    contexts = sum(span.num_rows for span in step.schedule.spans if span.kind == "C")
    is_split = step.schedule.budget.num_requests != UNKNOWN
    arguments = {
        "step": step.step,
        "rows": step.schedule.budget.num_tokens,
        "requests": untold(step.schedule.budget.num_requests),
        "contexts": contexts if is_split else UNTOLD,
        "how": (f"outline.{path}", {"bucket": bucket, "padding": step.num_padding_rows}),
    }
    said: list[tuple[str, dict[str, Any]]] = [("outline.ran", arguments)]
    if path == "eager" and step.path.reason is None:
        said.append(("outline.untold", {}))
    elif step.path.conditions:
        said.append(("outline.derived", {}))
    return [*said, ("outline.missing", {})]


def outline_text(step: StepSnapshot, language: str = "en") -> str:
    """Return an outline in plain words."""
    at = 0 if language == "en" else 1

    def worded(name: str, arguments: Mapping[str, Any]) -> str:
        values = {key: worded(*one) if isinstance(one, tuple) else one for key, one in arguments.items()}
        return _WORDS[name][at].format_map(values)

    return ("", " ")[at == 0].join(worded(name, arguments) for name, arguments in outline_said(step))
