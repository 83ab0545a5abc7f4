"""Sentences: one step in plain words, as (id, arguments) pairs and one string table in English and Chinese.

``sentences`` joins what was scheduled, deferred, reserved, padded, chosen, sampled and committed, in the order of the
stages. A pair travels (to a browser, into a test) without its words; ``render`` looks the words up.

Does not: judge a step, or word the reasons and their fixes themselves (``reasons.py`` holds those).
Source: a sentence per step in plain words is what users of step-through visualisers ask for.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from engine.errors import ConfigError
from engine.fields import shown
from lab.condition_words import fact_text
from lab.outline import is_outline, outline_text
from lab.reason_numbers import reason_arguments
from lab.reason_rows import Words
from lab.reasons import REASONS, fix, fix_arguments, recorded_clause, row_of
from lab.snapshot import ConditionView, StepSnapshot

LANGUAGES: Final = ("en", "zh")

Argument = int | str
_DERIVED: Final = ("input_ids", "position_ids")  # what a steady step writes


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence, without its words. stage: index into ``snapshot.STAGES``, the stage that it speaks of."""

    id: str
    stage: int
    arguments: tuple[tuple[str, Argument], ...] = ()


SENTENCES: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "runs.one": "Step {step} runs 1 request.",
        "runs.many": "Step {step} runs {requests} requests.",
        "idle": "Step {step} has nothing to run.",
        "context.whole": (
            "Request {request} computes its whole prompt of {end} {end|token|tokens} and samples its first token."
        ),
        "context.part": "Request {request} computes prompt tokens {start} to {last} and samples nothing yet.",
        "context.part.one": "Request {request} computes prompt token {start} and samples nothing yet.",
        "context.last": "Request {request} computes its last prompt tokens, {start} to {last}, and samples.",
        "context.last.one": "Request {request} computes its last prompt token, {start}, and samples.",
        "generations.one": "Request {requests} is in generation: one row.",
        "generations.many": "Requests {requests} are in generation: one row each.",
        "verify.one": (
            "Request {requests} runs 1 + {drafts} rows: its newest token and the {drafts|draft|drafts} behind it."
        ),
        "verify.many": (
            "Requests {requests} run 1 + {drafts} rows each: the newest token and the {drafts|draft|drafts} behind it."
        ),
        "refitted": (
            "Request {request} was to run {rows} {rows|row|rows} from position {start}, before the cache was asked."
        ),
        "unread": "It is laid out before the samples of step {before} were read.",
        "accepted": (
            "Request {request} keeps {accepted} of {drafts} {drafts|draft|drafts}; the KV of the rest is rewound."
        ),
        "accepted.all": "Request {request} keeps {accepted} of {drafts} {drafts|draft|drafts}.",
        "copied": "Block {source} is copied to block {target} ({tokens} {tokens|token|tokens}, {copy}).",
        "promoted": "Request {request} has one prompt token left, so it runs as a decode row.",
        "paused": "Request {request} is paused and gives its blocks back.",
        "deferral": "Request {request} is held back: {reason} (needs {needed}, available {available}).",
        "blocks.one": "Request {request} gets block {blocks}.",
        "blocks.many": "Request {request} gets blocks {blocks}.",
        "reused": "Request {request} finds {tokens} prompt {tokens|token|tokens} in the cache.",
        "padding.one": "1 padding dummy fills the bucket of {bucket}; nobody reads what it writes.",
        "padding.many": "{padding} padding dummies fill the bucket of {bucket}; nobody reads what they write.",
        "exact": "The batch of {requests} fits a bucket exactly.",
        "chosen.replay": "The captured graph {key} is replayed.",
        "chosen.prefill_replay": "The captured segments {key} are replayed, with attention eager between them.",
        "chosen.capture": "The graph {key} is captured.",
        "chosen.eager": "It runs eagerly: {reason} (needed: {needed}; got: {got}).",
        "chosen.eager.plain": "It runs eagerly.",
        "fix": "Smallest fix: {fix}",
        "simulated": "The graph is simulated by the CPU tape: addresses and contents are real, speed is not.",
        "stale.one": "Row {rows} of {buffer} was read although this step did not write it.",
        "stale.many": "Rows {rows} of {buffer} were read although this step did not write them.",
        "steady": "The same requests as before: positions grow by one in place, one gather fetches the tokens.",
        "refused": "The check before the replay refused it: {what} was {got}, captured with {expected}.",
        "sampled": "Request {request} gets token {token}{piece}.",
        "finished": "Request {request} finishes ({reason}).",
        "freed.one": "Request {requests} gives its blocks and its slot back.",
        "freed.many": "Requests {requests} give their blocks and slots back.",
    },
    "zh": {
        "runs.one": "第 {step} 步运行 1 个请求。",
        "runs.many": "第 {step} 步运行 {requests} 个请求。",
        "idle": "第 {step} 步没有可运行的请求。",
        "context.whole": "请求 {request} 计算完整的提示（{end} 个词元），并采样第一个词元。",
        "context.part": "请求 {request} 计算提示词元 {start} 到 {last}，暂不采样。",
        "context.part.one": "请求 {request} 计算提示词元 {start}，暂不采样。",
        "context.last": "请求 {request} 计算最后的提示词元 {start} 到 {last}，并采样。",
        "context.last.one": "请求 {request} 计算最后的提示词元 {start}，并采样。",
        "generations.one": "请求 {requests} 处于生成阶段，占一行。",
        "generations.many": "请求 {requests} 处于生成阶段，各占一行。",
        "verify.one": "请求 {requests} 占 1 + {drafts} 行：最新词元和其后的草稿。",
        "verify.many": "请求 {requests} 各占 1 + {drafts} 行：最新词元和其后的草稿。",
        "refitted": "请求 {request} 原本要从位置 {start} 起运行 {rows} 行；缓存中已有更多，因此重新安排。",
        "unread": "它在读取第 {before} 步的采样之前就已准备好。",
        "accepted": "请求 {request} 保留 {drafts} 个草稿中的 {accepted} 个；其余的 KV 被回退。",
        "accepted.all": "请求 {request} 保留 {drafts} 个草稿中的 {accepted} 个。",
        "copied": "块 {source} 拷贝到块 {target}（{tokens} 个词元，{copy}）。",
        "promoted": "请求 {request} 只剩一个提示词元，按解码行运行。",
        "paused": "请求 {request} 被暂停，归还它的块。",
        "deferral": "请求 {request} 被推迟：{reason}（需要 {needed}，可用 {available}）。",
        "blocks.one": "请求 {request} 得到块 {blocks}。",
        "blocks.many": "请求 {request} 得到块 {blocks}。",
        "reused": "请求 {request} 在缓存中找到 {tokens} 个提示词元。",
        "padding.one": "用 1 个填充请求补满大小为 {bucket} 的桶；它写入的内容没有人读取。",
        "padding.many": "用 {padding} 个填充请求补满大小为 {bucket} 的桶；它们写入的内容没有人读取。",
        "exact": "{requests} 个请求恰好装满一个桶。",
        "chosen.replay": "重放已捕获的图 {key}。",
        "chosen.prefill_replay": "重放已捕获的各段 {key}，段间注意力以 eager 方式运行。",
        "chosen.capture": "捕获图 {key}。",
        "chosen.eager": "以 eager 方式运行：{reason}（需要：{needed}；实际：{got}）。",
        "chosen.eager.plain": "以 eager 方式运行。",
        "fix": "最小的改动：{fix}",
        "simulated": "这个图由 CPU 磁带模拟：地址和内容是真实的，速度不是。",
        "stale.one": "{buffer} 的第 {rows} 行被读取，但本步没有写入。",
        "stale.many": "{buffer} 的第 {rows} 行被读取，但本步没有写入。",
        "steady": "请求与上一步相同：位置原地加一，词元一次收集。",
        "refused": "重放前的检查拒绝了它：{what} 为 {got}，捕获时为 {expected}。",
        "sampled": "请求 {request} 得到词元 {token}{piece}。",
        "finished": "请求 {request} 结束（{reason}）。",
        "freed.one": "请求 {requests} 归还块和槽位。",
        "freed.many": "请求 {requests} 归还块和槽位。",
    },
}


_COPIES: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {"DEVICE": "a beginning to reuse", "OFFLOAD": "to the host", "ONBOARD": "from the host"},
    "zh": {"DEVICE": "复用开头", "OFFLOAD": "移到主机", "ONBOARD": "从主机取回"},
}


_ENDS: Final = {"length": "长度已到", "stop": "遇到停止", "abort": "被中止", "error": "出错"}  # in Chinese


def sentences(step: StepSnapshot, pieces: Mapping[int, str] | None = None) -> tuple[Sentence, ...]:
    """Return the sentences of one step. Order: that of the stages. pieces: printable text of token ids."""
    if not step.schedule.spans:  # nothing ran, so there is no path and no buffer to speak of
        return (*_scheduled(step), *_reserved(step), *_outcome(step, pieces or {}))
    return (*_scheduled(step), *_reserved(step), *_path(step), *_buffers(step), *_outcome(step, pieces or {}))


def _make(name: str, stage: int, **arguments: Argument) -> Sentence:
    return Sentence(name, stage, tuple(arguments.items()))


def _of(name: str, stage: int, requests: Sequence[int], **arguments: Argument) -> Sentence:
    """Return the sentence about one request, or about several: a bare number would read as a count."""
    many = "one" if len(requests) == 1 else "many"
    return _make(f"{name}.{many}", stage, requests=_joined(requests), **arguments)


def _joined(values: object) -> str:
    return ", ".join(str(value) for value in values)  # type: ignore[attr-defined]


def _scheduled(step: StepSnapshot) -> list[Sentence]:
    schedule = step.schedule
    count = len(schedule.spans)
    name = "idle" if count == 0 else "runs.one" if count == 1 else "runs.many"
    found = [_make(name, 0, step=step.step, requests=count)]
    for span in schedule.spans:
        if span.kind != "C":
            continue
        end = span.start + span.num_rows
        kind = "part" if span.num_logit_rows == 0 else "whole" if span.start == 0 else "last"
        kind += ".one" * (span.num_rows == 1 and kind != "whole")
        found.append(_make(f"context.{kind}", 0, request=span.request_id, start=span.start, last=end - 1, end=end))
    generations = [span.request_id for span in schedule.spans if span.kind == "G"]
    if generations:
        found.append(_of("generations", 0, generations))
    verified = [span.request_id for span in schedule.spans if span.drafts]
    if verified:
        found.append(_of("verify", 0, verified, drafts=schedule.draft_len))
    found += [_make("refitted", 0, request=s.request_id, rows=s.num_rows, start=s.start) for s in schedule.asked]
    if step.graph.flight.unread:
        found.append(_make("unread", 0, before=step.graph.flight.unread[-1]))
    found += [_make("paused", 0, request=request_id) for request_id in schedule.paused]
    found += [
        _make("deferral", 0, request=d.request_id, reason=d.reason, needed=d.needed, available=d.available)
        for d in schedule.deferrals
    ]
    return found


def _reserved(step: StepSnapshot) -> list[Sentence]:
    granted = step.reservation
    found = [_make("reused", 1, request=request, tokens=tokens) for request, tokens in granted.credits if tokens]
    for request_id, blocks in granted.new_blocks:
        name = "blocks.one" if len(blocks) == 1 else "blocks.many"
        found.append(_make(name, 1, request=request_id, blocks=_joined(blocks)))
    for copy in granted.copies:
        arguments: dict[str, Argument] = {"source": copy.source, "target": copy.target, "tokens": copy.num_tokens}
        found.append(_make("copied", 1, copy=copy.kind, **arguments))
    return found


def first_failed(step: StepSnapshot) -> ConditionView | None:
    """Return the condition that sent the step off the graph path, or None."""
    return next((condition for condition in step.path.conditions if condition.passed is False), None)


def _path(step: StepSnapshot) -> list[Sentence]:
    path, graph = step.path, step.graph
    promoted = () if path.key is None else step.schedule.promoted  # without a graph nobody runs as promoted
    found = [_make("promoted", 2, request=request_id) for request_id in promoted]
    if path.key is not None and path.num_padding:
        name = "padding.one" if path.num_padding == 1 else "padding.many"
        found.append(_make(name, 2, padding=path.num_padding, bucket=path.bucket or 0))
    elif path.key is not None:
        found.append(_make("exact", 2, requests=path.num_requests))
    failed = first_failed(step)
    if graph.path != "eager":
        found.append(_make(f"chosen.{graph.path}", 3, key=graph.key or ""))
    elif failed is not None:
        found.append(_make("chosen.eager", 3, reason=failed.reason, needed=failed.needed, got=failed.got))
        found += _fix(step, failed.reason)
    else:
        found.append(_make("chosen.eager.plain", 3))
    if graph.path != "eager" and graph.simulated:
        found.append(_make("simulated", 7))
    found += [
        _make("refused", 7, what=check.name, expected=check.expected, got=check.got)
        for check in graph.check
        if not check.passed
    ]
    return found


def _fix(step: StepSnapshot, reason: str) -> list[Sentence]:
    if reason not in REASONS or row_of(reason).fix is None:
        return []
    numbers = reason_arguments(step)
    return [_make("fix", 3, reason=reason, **{name: numbers[name] for name in fix_arguments(reason)})]


def _buffers(step: StepSnapshot) -> list[Sentence]:
    is_steady = not step.graph.steady
    found: list[Sentence] = [_make("steady", 4)] if is_steady else []
    for view in step.buffers:
        if view.layer == "metadata":
            continue  # its tensors are rewritten only when they change: an old row there is right
        if is_steady and view.name not in _DERIVED:
            continue  # the same requests in the same rows: these lists are those of the step before
        stale = view.stale_rows(step.step)
        if len(stale):
            name = "stale.one" if len(stale) == 1 else "stale.many"
            found.append(_make(name, 5, rows=_ranges(stale), buffer=view.name))
    return found


def _ranges(rows: np.ndarray) -> str:
    """Write row numbers as runs: 0-3, 7."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return _joined(f"{run[0]}-{run[-1]}" if len(run) > 1 else run[0] for run in runs)


def _outcome(step: StepSnapshot, pieces: Mapping[int, str]) -> list[Sentence]:
    outcome = step.outcome
    found: list[Sentence] = []
    for request_id, token in outcome.tokens:
        piece = f" “{pieces[token]}”" if token in pieces else ""
        found.append(_make("sampled", 8, request=request_id, token=token if token >= 0 else "?", piece=piece))
    drafts = step.schedule.draft_len
    for request_id, count in outcome.accepted:
        name = "accepted.all" if count == drafts else "accepted"
        found.append(_make(name, 8, request=request_id, accepted=count, drafts=drafts))
    found += [_make("finished", 9, request=request_id, reason=reason) for request_id, reason in outcome.finished]
    if outcome.freed:
        found.append(_of("freed", 9, outcome.freed))
    return found


def render(sentence: Sentence, language: str = "en") -> str:
    """Put a sentence into words; a reason argument is replaced by its own short sentence, or its fix.

    Raises: ConfigError for a language that has no table.
    """
    _require_known(language)
    arguments: dict[str, Any] = dict(sentence.arguments)
    if sentence.id == "copied":
        arguments["copy"] = _COPIES[language][str(arguments["copy"])]
    if sentence.id == "fix":
        arguments["fix"] = fix(language=language, **arguments)
    if sentence.id in ("deferral", "chosen.eager"):
        arguments["reason"] = recorded_clause(str(arguments["reason"]), language)
    if sentence.id == "finished" and language == "zh":
        arguments["reason"] = _ENDS.get(str(arguments["reason"]), arguments["reason"])
    if sentence.id in ("chosen.eager", "refused"):
        facts = arguments.keys() & {"needed", "got", "what", "expected"}
        arguments |= {name: fact_text(str(arguments[name]), language) for name in facts}
    return Words(SENTENCES["en"][sentence.id], SENTENCES["zh"][sentence.id]).fill(language, arguments)


def _require_known(language: str) -> None:
    if language not in LANGUAGES:
        message = f"language must be one of {', '.join(LANGUAGES)}, got {shown(language)}"
        raise ConfigError(message)


def explain_step(step: StepSnapshot, pieces: Mapping[int, str] | None = None, language: str = "en") -> str:
    """Return one step in plain words."""
    _require_known(language)
    if is_outline(step):
        return outline_text(step, language)
    joint = " " if language == "en" else ""
    return joint.join(render(sentence, language) for sentence in sentences(step, pieces))


assert all(SENTENCES[language].keys() == SENTENCES["en"].keys() for language in LANGUAGES)
