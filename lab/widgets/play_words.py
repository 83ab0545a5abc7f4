"""What the playground says: its controls, its buttons, and what a run came to.

Part of the one string table, English and Chinese side by side; ``strings.py`` joins the parts.

Does not: choose what to say, or hold logic.
"""

from typing import Final

PLAY_WORDS: Final[dict[str, tuple[str, str]]] = {
    "play.title": ("Playground", "试验场"),
    "play.prompts": ("Prompts, one a line: arrival step: prompt", "提示，每行一个：到达步骤: 提示"),
    "play.max_tokens": ("tokens of each", "每个生成的词元"),
    "play.max_batch_size": ("max_batch_size", "max_batch_size"),
    "play.max_num_tokens": ("max_num_tokens", "max_num_tokens"),
    "play.policy": ("capacity policy", "容量策略"),
    "play.chunking": ("chunking", "分块"),
    "play.none": ("none", "无"),
    "play.graphs": ("graphs", "使用图"),
    "play.padding": ("padding", "填充"),
    "play.buckets": ("decode buckets", "解码桶"),
    "play.prefill": ("prefill buckets", "预填充桶"),
    "play.blocks": ("KV blocks", "KV 块"),
    "play.overlap": ("overlap", "重叠"),
    "play.live": ("step by hand (live)", "手动逐步（实时）"),
    "play.beside": ("show beside the last run", "与上一次并排显示"),
    "play.run": ("Run", "运行"),
    "play.busy": ("Running…", "运行中……"),
    "play.ready": ("Change something and press Run.", "改动设置，然后按“运行”。"),
    "play.ran": (
        "Run {run}: {n} {n|step|steps}, {eager} of them eager, {padding} padding {padding|row|rows}.",
        "第 {run} 次运行：{n} 步，其中 {eager} 步为 eager，填充 {padding} 行。",
    ),
    "play.cut": (
        "It was ended after {n} steps, with requests unfinished.",
        "运行在 {n} 步后结束，仍有未完成的请求。",
    ),
    "play.opened": (
        "Run {run} waits: press “Run the next step” in the viewer.",
        "第 {run} 次运行已就绪：在查看器中按“运行下一步”。",
    ),
    "play.against": ("Against the last run (A): {sentence}", "与上一次（A）对照：{sentence}"),
    "play.new": ("new prompt", "新提示"),
    "play.add": ("Add request", "加入请求"),
    "play.who": ("request", "请求"),
    "play.abort": ("Abort it", "中止"),
    "play.added": ("r{who} joins before the next step.", "r{who} 在下一步之前加入。"),
    "play.aborted": ("r{who} ends with the next step.", "r{who} 在下一步结束。"),
    "play.nobody": ("No request is running, so there is none to abort.", "没有正在运行的请求，无可中止。"),
}
