"""The reasons as the stepper shows them, joined from ``lab/reasons.py``, and the checklist's lines.

``why.X`` is the sentence with numbers, ``fix.X`` the smallest change, ``defer.X`` the clause of a deferral and ``held.X``
its sentence, ``note.X`` what the article's section adds, ``cond.X`` the condition in words, ``got.X`` what was there;
``steady.X`` is why a step was packed in full.

Does not: word a reason (``lab/reasons.py``) or decide one (``engine/``).
"""

from typing import Final

from engine.inputs.steady import SteadyRefusal
from engine.reasons import DeferralReason, FallOff
from lab.reason_rows import SECTION_NOTES, Words
from lab.reasons import REASONS

_CONDITIONS: Final[dict[str, tuple[str, str]]] = {
    "cond.GRAPHS_DISABLED": ("graphs are enabled", "已启用图"),
    "cond.COMPILE_NOT_RECORDED": ("the body can be recorded", "模型主体可以录制"),
    "cond.WARMUP": ("not a warm-up step", "不是预热步"),
    "cond.HAS_CONTEXT_UNPROMOTED": ("no context left in the batch", "批次中没有上下文"),
    "cond.ABOVE_LARGEST_PREFILL_BUCKET": ("the rows fit the largest prefill graph", "行数不超过最大的预填充图"),
    "cond.DRAFT_LEN_NOT_CAPTURED": ("this draft length has captured graphs", "该草稿长度已捕获图"),
    "cond.ABOVE_LARGEST_BUCKET": ("the batch fits the largest bucket", "批次不超过最大的桶"),
    "cond.NO_EXACT_BUCKET_PADDING_OFF": ("an exact bucket, or padding is on", "恰好的桶，或允许填充"),
    "cond.NO_DUMMY_SLOT": ("a dummy is there to fill the bucket", "有可用的填充请求"),
    "cond.SAMPLER_MODE_NOT_CAPTURED": ("this sampler has a captured graph", "该采样方式已捕获"),
    "cond.CAPTURE_NOT_ALLOWED_NOW": ("capturing is allowed now", "现在允许捕获"),
    "got.GRAPHS_DISABLED": ("enabled: {got}", "已启用：{got}"),
    "got.NO_DUMMY_SLOT": ("a dummy is ready: {got}", "填充请求已备好：{got}"),
    "got.DRAFT_LEN_NOT_CAPTURED": ("captured draft lengths: {got}", "已捕获的草稿长度：{got}"),
    "got.SAMPLER_MODE_NOT_CAPTURED": ("captured for this bucket: {got}", "这个桶已捕获：{got}"),
    "got.CAPTURE_NOT_ALLOWED_NOW": ("captured for this bucket: {got}", "这个桶已捕获：{got}"),
}

_STEADY: Final[dict[SteadyRefusal, tuple[str, str]]] = {
    SteadyRefusal.IS_WARMUP: ("it is a warm-up step", "这是预热步"),
    SteadyRefusal.HAS_CONTEXTS: ("a prompt is in the batch", "批次中有提示"),
    SteadyRefusal.HAS_EXTENDS: ("a promoted row is in the batch", "批次中有提升的行"),
    SteadyRefusal.NO_GENERATIONS: ("nobody is in generation", "没有处于生成阶段的请求"),
    SteadyRefusal.HAS_PADDING: (
        "dummies fill the bucket, and they have no previous sample",
        "有填充请求，它们没有上一步采样",
    ),
    SteadyRefusal.HAS_HOST_TOKENS: ("a token comes from the host", "有词元来自主机"),
    SteadyRefusal.ROWS_WITHOUT_PREVIOUS_SAMPLE: ("a row has no previous sample", "有的行没有上一步采样"),
    SteadyRefusal.HAS_DRAFTS: ("drafts are to be verified", "有草稿需要验证"),
    SteadyRefusal.SEVERAL_BEAMS: ("there are several beams", "有多个束"),
    SteadyRefusal.TOKENS_PADDED: ("rows were padded", "行被填充过"),
    SteadyRefusal.MODEL_ADDS_INPUTS: ("the model adds inputs of its own", "模型自带额外输入"),
    SteadyRefusal.NOTHING_RECORDED: ("the step before left no record to go on from", "上一步没有留下可以继续的记录"),
    SteadyRefusal.NO_PREVIOUS_SAMPLE: ("there is no previous sample on the device", "设备上没有上一步的采样"),
    SteadyRefusal.OTHER_NUMBER_OF_REQUESTS: ("another number of requests than before", "请求数与上一步不同"),
    SteadyRefusal.OTHER_REQUESTS: ("other requests, or another order, than before", "请求或次序与上一步不同"),
    SteadyRefusal.TABLES_UNKNOWN: ("which block tables changed is not known", "不知道哪些块表变了"),
}


def _both(words: Words) -> tuple[str, str]:
    return words.en, words.zh


def _join() -> dict[str, tuple[str, str]]:
    joined = dict(_CONDITIONS)
    for fall_off in FallOff:
        row = REASONS[fall_off.value]
        joined[f"why.{fall_off}"] = _both(row.sentence)
        note = SECTION_NOTES[row.section]
        joined[f"note.{fall_off}"] = (f"Article section “{row.section}”: {note.en}", f"文章“{row.section}”：{note.zh}")
        if row.fix is not None:
            joined[f"fix.{fall_off}"] = _both(row.fix)
    for deferral in DeferralReason:
        row = REASONS[deferral.value]
        joined |= {f"defer.{deferral}": _both(row.clause), f"held.{deferral}": _both(row.sentence)}
        if row.fix is not None:
            joined[f"fix.{deferral}"] = _both(row.fix)
    joined |= {f"steady.{refusal.value}": words for refusal, words in _STEADY.items()}
    return joined


REASON_WORDS: Final[dict[str, tuple[str, str]]] = _join()
