"""The reasons in the stepper's words, with the numbers of the step: why it ran eagerly, what would change that, why a
request waited.

Does not: name the reasons (``engine/reasons.py``) or decide one.
"""

from typing import Final

_WHY: Final[dict[str, tuple[str, str]]] = {
    "why.GRAPHS_DISABLED": ("Graphs are switched off in this configuration.", "本配置关闭了图。"),
    "why.WARMUP": ("Warm-up steps run eagerly until capturing begins.", "预热步在开始捕获之前以 eager 运行。"),
    "why.HAS_CONTEXT_UNPROMOTED": (
        "{tokens} prompt {tokens|token is|tokens are} in the batch, and a decode graph has one row for each request.",
        "批次中有 {tokens} 个提示词元，而解码图里每个请求只有一行。",
    ),
    "why.ABOVE_LARGEST_BUCKET": (
        "{n} requests are more than the largest captured bucket, {largest}.",
        "{n} 个请求超过了已捕获的最大的桶 {largest}。",
    ),
    "why.NO_EXACT_BUCKET_PADDING_OFF": (
        "No bucket has exactly {n} seats, and padding is off.",
        "没有恰好 {n} 个座位的桶，而填充已关闭。",
    ),
    "why.NO_DUMMY_SLOT": (
        "Bucket {bucket} has empty seats, and no dummy was preallocated to fill them.",
        "大小为 {bucket} 的桶有空位，但没有预先分配的填充请求。",
    ),
    "why.SAMPLER_MODE_NOT_CAPTURED": (
        "The sampler is part of the graph; needed is {needed}, captured for this bucket: {got}.",
        "采样器是图的一部分；需要 {needed}，这个桶已捕获：{got}。",
    ),
    "why.CAPTURE_NOT_ALLOWED_NOW": (
        "The graph would have to be captured first, and capturing is allowed at warm-up only.",
        "必须先捕获这个图，而捕获只允许在预热时进行。",
    ),
}

_FIX: Final[dict[str, tuple[str, str]]] = {
    "fix.GRAPHS_DISABLED": ("CudaGraphConfig(enabled=True)", "CudaGraphConfig(enabled=True)"),
    "fix.WARMUP": ("none: warm-up is over before the first request.", "无：预热在第一个请求之前结束。"),
    "fix.HAS_CONTEXT_UNPROMOTED": (
        "none is needed: the graph path is back when the last chunk is done. A larger max_num_tokens (now {budget}) gets there in fewer steps.",
        "不需要：最后一块完成后就回到图路径。更大的 max_num_tokens（现为 {budget}）会更快到达。",
    ),
    "fix.ABOVE_LARGEST_BUCKET": ("add {n} to CudaGraphConfig.batch_sizes.", "在 CudaGraphConfig.batch_sizes 中加入 {n}。"),
    "fix.NO_EXACT_BUCKET_PADDING_OFF": (
        "CudaGraphConfig(enable_padding=True), or add {n} to batch_sizes.",
        "CudaGraphConfig(enable_padding=True)，或在 batch_sizes 中加入 {n}。",
    ),
    "fix.NO_DUMMY_SLOT": (
        "leave room for one more sequence when the engine starts, or add {n} to batch_sizes.",
        "在引擎启动时多留一个序列的空间，或在 batch_sizes 中加入 {n}。",
    ),
    "fix.SAMPLER_MODE_NOT_CAPTURED": (
        "let warm-up capture this sampler mode too.",
        "让预热也捕获这种采样方式。",
    ),
    "fix.CAPTURE_NOT_ALLOWED_NOW": ("capture this size at warm-up.", "在预热时捕获这个大小。"),
}

_DEFER: Final[dict[str, tuple[str, str]]] = {
    "defer.NO_FREE_BLOCKS": (
        "the pool hasn't enough free blocks to carry it to its end.",
        "空闲块不足以让它运行到结束。",
    ),
    "defer.NO_FREE_SLOTS": ("every sequence slot is taken.", "所有序列槽位都被占用。"),
    "defer.BEHIND_BLOCKED_REQUEST": (
        "an earlier request is blocked, and nobody overtakes.",
        "更早的请求被阻塞，不允许超越。",
    ),
    "defer.TOKEN_BUDGET": ("the step's row budget is spent.", "本步的行预算已用完。"),
    "defer.REQUEST_BUDGET": ("the step's request budget is spent.", "本步的请求预算已用完。"),
    "defer.CHUNK_TRUNCATED": ("only part of its prompt fits this step's row budget.", "本步的行预算只容得下它提示的一部分。"),
    "defer.WAITS_FOR_BATCH": (
        "static batching starts nobody before the whole batch is done.",
        "静态批处理在整批完成之前不启动新请求。",
    ),
}

REASON_WORDS: Final[dict[str, tuple[str, str]]] = {**_WHY, **_FIX, **_DEFER}
