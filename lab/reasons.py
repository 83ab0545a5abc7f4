"""The words of every reason: a clause, a sentence with the step's numbers, the smallest fix, where to read on.

One frozen row for each member of ``engine.reasons``, in English and Chinese. The clause needs no numbers and fits into
another sentence; the sentence takes named arguments; the fix names the configuration field that would have changed
the outcome. A reason that needs no fix says so.

Does not: decide a reason (``engine/``), find the numbers, or try out a fix (``counterfactuals/``).
Source: own words; the anchors point into the article that the walkthroughs follow.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from engine.errors import ConfigError
from engine.reasons import FallOff, PathKind
from lab.deferral_words import DEFERRALS
from lab.reason_rows import ReasonRow, Section, Words, placeholders

_FALL_OFFS: Final = (
    ReasonRow(
        reason=FallOff.GRAPHS_DISABLED,
        clause=Words("graphs are switched off", "图已关闭"),
        sentence=Words("This engine was configured to run without graphs.", "这个引擎配置为不使用图。"),
        fix=Words("Set CudaGraphConfig(enabled=True).", "设置 CudaGraphConfig(enabled=True)。"),
        section=Section.CHOOSING_THE_GRAPH,
    ),
    ReasonRow(
        reason=FallOff.COMPILE_NOT_RECORDED,
        clause=Words("the CPU's tape cannot record a compiled body", "CPU 的磁带无法录制编译后的模型主体"),
        sentence=Words(
            "The model body is compiled, and the CPU's tape records single operations: compiled code shows it none.",
            "模型主体已编译，而 CPU 的磁带录制单个算子：编译后的代码不会向它展示任何算子。",
        ),
        fix=Words(
            "Set EngineConfig(torch_compile=False), or serve on a CUDA device, whose graphs record kernels.",
            "设置 EngineConfig(torch_compile=False)，或在 CUDA 设备上服务，那里的图录制的是内核。",
        ),
        section=Section.CAPTURE_AND_REPLAY,
    ),
    ReasonRow(
        reason=FallOff.WARMUP,
        clause=Words("it is a warm-up step", "这是预热步"),
        sentence=Words("Warm-up runs eagerly before it captures.", "预热在捕获之前先以 eager 方式运行。"),
        section=Section.CAPTURE_AND_REPLAY,
    ),
    ReasonRow(
        reason=FallOff.HAS_CONTEXT_UNPROMOTED,
        clause=Words("a prompt is being computed", "批次中有正在计算的提示"),
        sentence=Words(
            "Prompts in the batch: {contexts}, and the step has {rows} {rows|row|rows}. A decode graph has one row "
            "for each request; a prompt brings several.",
            "批次中的提示请求数：{contexts}，本步共 {rows} 行。解码图中每个请求只有一行，而提示会带来多行。",
        ),
        fix=Words(
            "Add {rows} to CudaGraphConfig.prefill_num_tokens for a prefill graph. Without one nothing has to change: "
            "the graph path is back when no prompt is left in the step.",
            "在 CudaGraphConfig.prefill_num_tokens 中加入 {rows}，就有预填充图。没有它也不必改动："
            "步中不再有提示时就回到图路径。",
        ),
        section=Section.PACKING,
    ),
    ReasonRow(
        reason=FallOff.ABOVE_LARGEST_PREFILL_BUCKET,
        clause=Words("the step has more rows than every prefill graph", "本步的行数超过了所有预填充图"),
        sentence=Words(
            "A prompt is in the batch and the step has {rows} {rows|row|rows}; the largest prefill graph takes "
            "{largest_rows}.",
            "批次中有提示，本步共 {rows} 行；最大的预填充图可容纳 {largest_rows} 行。",
        ),
        fix=Words(
            "Add {rows} to CudaGraphConfig.prefill_num_tokens.", "在 CudaGraphConfig.prefill_num_tokens 中加入 {rows}。"
        ),
        section=Section.PADDING,
    ),
    ReasonRow(
        reason=FallOff.DRAFT_LEN_NOT_CAPTURED,
        clause=Words("no graph was captured for steps that verify so many drafts", "没有为验证这么多草稿的步捕获图"),
        sentence=Words(
            "Each request verifies {drafts} {drafts|draft|drafts} in this step; warm-up captured no graph of that "
            "draft length.",
            "本步中每个请求要验证 {drafts} 个草稿；预热没有捕获这一草稿长度的图。",
        ),
        fix=Words("Add {drafts} to CudaGraphConfig.draft_lens.", "在 CudaGraphConfig.draft_lens 中加入 {drafts}。"),
        section=Section.CHOOSING_THE_GRAPH,
    ),
    ReasonRow(
        reason=FallOff.ABOVE_LARGEST_BUCKET,
        clause=Words("the batch is larger than every captured size", "批次超过了所有已捕获的大小"),
        sentence=Words(
            "The batch has {requests} {requests|request|requests}; the largest captured size is {largest}.",
            "批次有 {requests} 个请求；已捕获的最大批次大小是 {largest}。",
        ),
        fix=Words(
            "Add {requests} to CudaGraphConfig.batch_sizes.", "在 CudaGraphConfig.batch_sizes 中加入 {requests}。"
        ),
        section=Section.PADDING,
    ),
    ReasonRow(
        reason=FallOff.NO_EXACT_BUCKET_PADDING_OFF,
        clause=Words("no captured size fits exactly and padding is off", "没有恰好相符的已捕获大小，而填充已关闭"),
        sentence=Words(
            "No graph was captured for exactly {requests} {requests|request|requests}, and padding up to the next "
            "size is off.",
            "没有为恰好 {requests} 个请求捕获图，而向上填充已关闭。",
        ),
        fix=Words(
            "Set CudaGraphConfig(enable_padding=True), or add {requests} to CudaGraphConfig.batch_sizes.",
            "设置 CudaGraphConfig(enable_padding=True)，或在 CudaGraphConfig.batch_sizes 中加入 {requests}。",
        ),
        section=Section.PADDING,
    ),
    ReasonRow(
        reason=FallOff.NO_DUMMY_SLOT,
        clause=Words("there is no dummy request to pad with", "没有可用于填充的假请求"),
        sentence=Words(
            "Bucket {bucket} has empty places beside the batch of {requests}, and no dummy with blocks and a slot of "
            "its own is there to fill them.",
            "对 {requests} 个请求来说，大小为 {bucket} 的桶有空位，但没有自带块和槽位的假请求来补满。",
        ),
        fix=Words(
            "Keep the engine's graphs: LLM.release_graphs gives all of them back, and the dummy with them; only a new "
            "engine captures again.",
            "保留引擎的图：LLM.release_graphs 会归还所有的图以及填充请求；只有新建的引擎才会再次捕获。",
        ),
        section=Section.PADDING,
    ),
    ReasonRow(
        reason=FallOff.SAMPLER_MODE_NOT_CAPTURED,
        clause=Words("this bucket was captured with the other sampler only", "这个桶只捕获了另一种采样方式"),
        sentence=Words(
            "The step samples in mode {mode}; bucket {bucket} was captured in mode {captured}.",
            "这一步以 {mode} 方式采样；大小为 {bucket} 的桶是以 {captured} 方式捕获的。",
        ),
        fix=Words(
            "Add {mode} to CudaGraphConfig.sample_modes, which says the samplers that warm-up captures.",
            "在 CudaGraphConfig.sample_modes（预热要捕获的采样方式）中加入 {mode}。",
        ),
        section=Section.CHOOSING_THE_GRAPH,
    ),
    ReasonRow(
        reason=FallOff.CAPTURE_NOT_ALLOWED_NOW,
        clause=Words("there is no graph for it, and serving never captures", "没有对应的图，而服务期间不捕获"),
        sentence=Words(
            "No graph is left for this step ({requests} {requests|request|requests}, {rows} {rows|row|rows}), and "
            "capturing is allowed in warm-up only.",
            "已没有图可供本步使用（{requests} 个请求，{rows} 行），而捕获只允许在预热阶段进行。",
        ),
        fix=Words(
            "Keep the engine's graphs: LLM.release_graphs gives all of them back, and only a new engine captures "
            "again.",
            "保留引擎的图：LLM.release_graphs 会归还所有的图，只有新建的引擎才会再次捕获。",
        ),
        section=Section.CAPTURE_AND_REPLAY,
    ),
)

_PATHS: Final = (
    ReasonRow(
        reason=PathKind.EAGER,
        clause=Words("it runs eagerly", "以 eager 方式运行"),
        sentence=Words("The model ran operation by operation, unpadded.", "模型逐个算子运行，不加填充。"),
        section=Section.CHOOSING_THE_GRAPH,
    ),
    ReasonRow(
        reason=PathKind.CAPTURE,
        clause=Words("its graph is captured", "捕获它的图"),
        sentence=Words(
            "Graph {key} was captured: its operations, shapes and addresses are fixed from now on.",
            "图 {key} 已被捕获：它的算子、形状和地址从此固定。",
        ),
        section=Section.CAPTURE_AND_REPLAY,
    ),
    ReasonRow(
        reason=PathKind.REPLAY,
        clause=Words("a captured graph is replayed", "重放已捕获的图"),
        sentence=Words(
            "Graph {key} was replayed over the new contents of the same addresses.",
            "图 {key} 在相同地址的新内容上重放。",
        ),
        section=Section.CAPTURE_AND_REPLAY,
    ),
    ReasonRow(
        reason=PathKind.PREFILL_REPLAY,
        clause=Words(
            "captured segments are replayed around eager attention", "重放已捕获的各段，段间注意力以 eager 运行"
        ),
        sentence=Words(
            "The layers ran as the captured chain {key}; between its segments, attention ran eagerly.",
            "各层按已捕获的链 {key} 运行；段与段之间，注意力以 eager 方式运行。",
        ),
        section=Section.CAPTURE_AND_REPLAY,
    ),
)

GRAPH_PATHS: Final = frozenset({PathKind.REPLAY.value, PathKind.PREFILL_REPLAY.value})  # a graph's share counts these

REASONS: Final[Mapping[str, ReasonRow]] = MappingProxyType(
    {row.reason.value: row for row in (*_FALL_OFFS, *DEFERRALS, *_PATHS)}
)


NOT_RECORDED: Final = "not recorded"  # stands for the reason of an eager step that has none
_UNTOLD: Final = Words("the trace does not say why", "轨迹没有说明原因")
_UNTOLD_SENTENCE: Final = Words("The trace does not say why.", "轨迹没有说明原因。")
_UNKNOWN: Final = Words("{reason}, a reason unknown to this Stepscope", "{reason}（这个 Stepscope 不认识这个原因）")
_UNKNOWN_SENTENCE: Final = Words(
    "This reason is unknown to this Stepscope; the version that recorded the trace has its words.",
    "这个 Stepscope 不认识这个原因；记录该轨迹的版本有它的说明。",
)


def row_of(reason: str) -> ReasonRow:
    """Return the row of a member, or of its value as a trace stores it. Raises: ConfigError for an unknown one."""
    if reason not in REASONS:
        message = f"reason must be one of {', '.join(REASONS)}, got {reason!r}"
        raise ConfigError(message)
    return REASONS[reason]


def reason_sentence(reason: str, language: str = "en") -> str:
    """Return the clause of a reason, to stand inside another sentence. Raises: as ``row_of``."""
    return row_of(reason).clause.get(language)


def recorded_clause(reason: str, language: str = "en") -> str:
    """Return the clause of a reason as a trace has it: it may have none, or one of another version."""
    if reason in REASONS:
        return reason_sentence(reason, language)
    return (_UNTOLD if reason == NOT_RECORDED else _UNKNOWN).fill(language, {"reason": reason})


def recorded_sentence(reason: str, language: str = "en", **arguments: object) -> str:
    """Return the sentence of a reason as a trace has it. Raises: as ``sentence`` for one that is known."""
    if reason in REASONS:
        return sentence(reason, language, **arguments)
    return (_UNTOLD_SENTENCE if reason == NOT_RECORDED else _UNKNOWN_SENTENCE).get(language)


def sentence(reason: str, language: str = "en", **arguments: object) -> str:
    """Return the sentence of a reason with the step's numbers; more arguments than it takes are fine.

    Raises: ConfigError for an unknown reason or language, or when a number is missing (named).
    """
    return _fill(row_of(reason).sentence, reason, language, arguments)


def fix(reason: str, language: str = "en", **arguments: object) -> str | None:
    """Return the smallest change that would have avoided the reason, None where there is nothing to avoid.

    Raises: as ``sentence``.
    """
    words = row_of(reason).fix
    return None if words is None else _fill(words, reason, language, arguments)


def fix_arguments(reason: str) -> frozenset[str]:
    """Return the names of the numbers in a fix; without any it is the same for every step. Raises: as ``row_of``."""
    words = row_of(reason).fix
    return frozenset() if words is None else placeholders(words.en)


def _fill(words: Words, reason: str, language: str, arguments: Mapping[str, object]) -> str:
    missing = sorted(placeholders(words.en) - arguments.keys())
    if missing:
        message = f"the words of {reason} need {', '.join(missing)}, got {', '.join(sorted(arguments)) or 'nothing'}"
        raise ConfigError(message)
    return words.fill(language, arguments)
