"""What the stepper says about a step, as ``(id, arguments)`` pairs: one or two sentences, and what changed.

The words are in ``sentences.py``; here is only the choice. ``lab/explain.py`` tells a whole step in prose; this tells
a person who is looking at it the one thing to see.

Does not: word anything, draw, or keep state between steps.
"""

from collections.abc import Sequence
from typing import Any, Final

from lab.outline import is_outline, outline_said
from lab.reason_numbers import reason_arguments
from lab.snapshot import StepSnapshot
from lab.trace_summary import path_word

Said = tuple[str, dict[str, Any]]

_MAX_CHANGES: Final = 8
_MAX_NAMES: Final = 6


def names(request_ids: Sequence[int]) -> str:
    """Write request ids as the stepper does: r0, r2."""
    shown = ", ".join(f"r{request_id}" for request_id in request_ids[:_MAX_NAMES])
    return shown if len(request_ids) <= _MAX_NAMES else f"{shown} + {len(request_ids) - _MAX_NAMES}"


def _who(request_ids: Sequence[int]) -> dict[str, Any]:
    """Return names, and how many there are: the verb behind them goes by it."""
    return {"who": names(request_ids), "n": len(request_ids)}


def is_steady(step: StepSnapshot) -> bool:
    """Return whether the step was derived on the device from the one before, so that nothing was packed."""
    return not step.graph.steady


def _what(step: StepSnapshot) -> Said:
    contexts = [span for span in step.schedule.spans if span.kind == "C"]
    num_decoding, k = len(step.schedule.spans) - len(contexts), step.schedule.draft_len
    tokens = sum(span.num_rows for span in contexts)
    context: Said = ("what.context", {"c": len(contexts), "tokens": tokens})
    decode: Said = ("what.verify", {"n": num_decoding, "k": k}) if k else ("what.decode", {"n": num_decoding})
    if contexts and num_decoding:
        return ("what.both", {"left": context, "right": decode})
    return context if contexts else decode


def _fill(step: StepSnapshot) -> Said:
    padding, bucket = step.path.num_padding, step.path.bucket or 1
    if not padding:
        return ("fill.exact", {})
    return ("fill.dummies", {"n": padding, "waste": round(100 * padding / bucket)})


def sentences(step: StepSnapshot, buckets: Sequence[int], *, gap: bool = False, num_wrong: int = 0) -> list[Said]:
    """Return the sentence of a step, then its details. gap: steps before it are missing. num_wrong: marked rows."""
    if is_outline(step):
        return [*_of_an_outline(step, buckets), *[("say.gap", {})] * gap]
    path = step.graph.path
    if not step.schedule.spans:
        said: list[Said] = [("say.idle", {"step": step.step})]
    elif path == "eager":
        said = [("say.eager", {"step": step.step, "what": _what(step)})]
        if step.path.reason is not None:
            said.append((f"why.{step.path.reason}", reason_arguments(step, buckets)))
    else:
        arguments = {"step": step.step, "bucket": step.path.bucket, "what": _what(step), "fill": _fill(step)}
        said = [(f"say.{path}", arguments)]
    if step.schedule.spans and is_steady(step):
        said.append(("say.steady", {}))
    said += _of_the_cache_and_the_device(step)
    by_reason: dict[str, list[int]] = {}
    for deferral in step.schedule.deferrals:
        by_reason.setdefault(deferral.reason, []).append(deferral.request_id)
    for reason, waiting in by_reason.items():
        arguments = {**_who(waiting), "reason": (f"defer.{reason}", {})}
        said.append(("say.waits", arguments))
    if num_wrong:
        said.append(("say.wrong", {"n": num_wrong}))
    if gap:
        said.append(("say.gap", {}))
    return said


def _of_an_outline(step: StepSnapshot, buckets: Sequence[int]) -> list[Said]:
    ran, *rest = outline_said(step)
    reason = step.path.reason
    return [ran, *([] if reason is None else [(f"why.{reason}", reason_arguments(step, buckets))]), *rest]


def _of_the_cache_and_the_device(step: StepSnapshot) -> list[Said]:
    """Return what verification gave, who found something cached, who is paused, and what was still on the device."""
    said: list[Said] = []
    accepted = step.outcome.accepted
    if accepted:
        total = sum(count for _, count in accepted)
        drafts = step.schedule.draft_len * len(accepted)
        name = "say.verified.all" if total == drafts else "say.verified"
        said.append((name, {"n": total, "of": drafts, "back": drafts - total}))
    found = [(request_id, tokens) for request_id, tokens in step.reservation.credits if tokens]
    if found:
        tokens = sum(count for _, count in found)
        said.append(("say.cached", {"who": names([request_id for request_id, _ in found]), "n": tokens}))
    if step.schedule.paused:
        said.append(("say.paused", {"who": names(step.schedule.paused)}))
    if step.graph.flight.unread:
        said.append(("say.unread", {"before": step.graph.flight.unread[-1]}))
    return said


def changes(step: StepSnapshot, previous: StepSnapshot | None) -> list[Said]:
    """Return what is different from the step before, most telling first; one entry says that nothing is."""
    changed: list[Said] = []
    started = [request_id for request_id, _ in step.reservation.slots]
    if started:
        changed.append(("chg.admitted", _who(started)))
    if previous is not None:
        changed += _against(step, previous)
    for request_id, reason in step.outcome.finished:
        changed.append(("chg.finished", {"who": names([request_id]), "reason": (f"finish.{reason}", {})}))
    num_blocks = sum(len(blocks) for _, blocks in step.reservation.new_blocks)
    if num_blocks:
        changed.append(("chg.blocks", {"n": num_blocks}))
    for kind in ("OFFLOAD", "ONBOARD"):
        num_copies = sum(copy.kind == kind for copy in step.reservation.copies)
        if num_copies:
            changed.append((f"chg.{kind}", {"n": num_copies}))
    return changed[:_MAX_CHANGES] or [("chg.none", {})]


def _against(step: StepSnapshot, previous: StepSnapshot) -> list[Said]:
    changed: list[Said] = []
    old, new = path_word(previous), path_word(step)
    if old != new:
        changed.append(("chg.path", {"old": (f"run.{old}", {}), "new": (f"run.{new}", {})}))
    if previous.path.key is not None and step.path.key is not None and previous.path.bucket != step.path.bucket:
        changed.append(("chg.bucket", {"old": previous.path.bucket, "new": step.path.bucket}))
    was_context = {span.request_id for span in previous.schedule.spans if span.kind == "C"}
    decoding = [s.request_id for s in step.schedule.spans if s.kind == "G" and s.request_id in was_context]
    if decoding:
        changed.append(("chg.decodes", _who(decoding)))
    gone = [request_id for request_id, _ in previous.outcome.finished]
    if gone:
        changed.append(("chg.left", _who(gone)))
    waited = {deferral.request_id for deferral in previous.schedule.deferrals}
    held = [d.request_id for d in step.schedule.deferrals if d.request_id not in waited]
    if held:
        changed.append(("chg.deferred", {"who": names(held)}))
    addresses = {view.name: view.address for view in previous.buffers if view.layer == "persistent"}
    moved = [v.name for v in step.buffers if v.layer == "persistent" and addresses.get(v.name, v.address) != v.address]
    return changed + [("chg.address", {"buffer": name}) for name in moved]
