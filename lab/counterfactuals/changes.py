"""The stated set of changes: each sets one configuration field to one value that the step itself suggests.

``variations`` lists those that apply to a configuration and a step, the direct ones first. A switch that this engine
does not have (no such field) is left out, so that the set grows with the engine.

Does not: run anything, or know which change helps (``search.py`` tries them).
Source: own; the fields are those that the fixes of ``lab/reasons.py`` name.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from engine.config import EngineConfig
from engine.cuda_graphs.buckets import resolve_batch_sizes
from engine.errors import ConfigError
from engine.reasons import FallOff


@dataclasses.dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step suggests.

    reason: why it is eager. num_rows: without padding. sample_mode: greedy or full. buckets: those with graphs.
    draft_len: drafts that each generation verified.
    """

    reason: str
    num_requests: int
    num_rows: int
    sample_mode: str
    buckets: tuple[int, ...]
    draft_len: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class FieldChange:
    """One changed configuration field. name: the kind of change. field: class and field, as the fixes name them."""

    name: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Write it as the sentences do."""
        return f"{self.field}: {self.before} → {self.after}"


Suggest = Callable[[EngineConfig, StepFacts], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A kind of change.

    group: of the configuration, None for EngineConfig's own. suggest: the new value, None if there is none. cures: the
    reasons whose condition reads the field.
    """

    name: str
    group: str | None
    field: str
    suggest: Suggest
    cures: tuple[FallOff, ...] = ()


def _with(values: Sequence[Any], value: Any) -> tuple[Any, ...] | None:
    return None if value in values else tuple(sorted({*values, value}))


def _add_bucket(config: EngineConfig, step: StepFacts) -> tuple[int, ...] | None:
    if not config.cuda_graph.enabled or step.num_requests > config.scheduler.max_batch_size:
        return None
    limits = config.scheduler
    known = step.buckets or resolve_batch_sizes(
        config.cuda_graph, max_batch_size=limits.max_batch_size, max_num_tokens=limits.max_num_tokens
    )
    return _with(known, step.num_requests)


def _add_prefill_bucket(config: EngineConfig, step: StepFacts) -> tuple[int, ...] | None:
    return _with(config.cuda_graph.prefill_num_tokens, step.num_rows)


def _add_mode(config: EngineConfig, step: StepFacts) -> tuple[str, ...] | None:
    return _with(getattr(config.cuda_graph, "sample_modes", ()), step.sample_mode)


def _add_draft_len(config: EngineConfig, step: StepFacts) -> tuple[int, ...] | None:
    return _with(config.cuda_graph.draft_lens, step.draft_len) if step.draft_len else None


def _double(group: str, field: str) -> Suggest:
    def suggest(config: EngineConfig, _step: StepFacts) -> int | None:
        value = getattr(getattr(config, group), field)
        return None if value is None else 2 * value

    return suggest


_GAP: Final = FallOff.NO_EXACT_BUCKET_PADDING_OFF
_CONTEXT: Final = FallOff.HAS_CONTEXT_UNPROMOTED
CHANGES: Final = (
    Rule("graphs_on", "cuda_graph", "enabled", lambda _config, _step: True, (FallOff.GRAPHS_DISABLED,)),
    Rule("compile_off", None, "torch_compile", lambda _config, _step: False, (FallOff.COMPILE_NOT_RECORDED,)),
    Rule("padding_on", "cuda_graph", "enable_padding", lambda _config, _step: True, (_GAP,)),
    Rule("add_bucket", "cuda_graph", "batch_sizes", _add_bucket, (_GAP, FallOff.ABOVE_LARGEST_BUCKET)),
    Rule("capture_mode", "cuda_graph", "sample_modes", _add_mode, (FallOff.SAMPLER_MODE_NOT_CAPTURED,)),
    Rule("capture_draft_len", "cuda_graph", "draft_lens", _add_draft_len, (FallOff.DRAFT_LEN_NOT_CAPTURED,)),
    Rule("promotion_on", "cuda_graph", "promote_final_contexts", lambda _config, _step: True, (_CONTEXT,)),
    Rule(
        "add_prefill_bucket",
        "cuda_graph",
        "prefill_num_tokens",
        _add_prefill_bucket,
        (_CONTEXT, FallOff.ABOVE_LARGEST_PREFILL_BUCKET),
    ),
    Rule("chunking", "scheduler", "chunking", lambda config, _step: None if config.scheduler.chunking else "fcfs"),
    Rule("raise_max_batch_size", "scheduler", "max_batch_size", _double("scheduler", "max_batch_size")),
    Rule("raise_max_num_tokens", "scheduler", "max_num_tokens", _double("scheduler", "max_num_tokens")),
    Rule("raise_num_blocks", "kv_cache", "num_blocks", _double("kv_cache", "num_blocks")),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Variation:
    """A change and the configuration with it; None when that refuses the value, and ``refusal`` says why."""

    change: FieldChange
    config: EngineConfig | None
    refusal: str = ""


def variations(config: EngineConfig, step: StepFacts) -> Iterator[Variation]:
    """Yield every change of the set that applies: those that cure the step's reason, then the others, as listed."""
    for rule in sorted(CHANGES, key=lambda rule: step.reason not in rule.cures):
        owner = config if rule.group is None else getattr(config, rule.group)
        if rule.field not in {field.name for field in dataclasses.fields(owner)}:
            continue
        before, after = getattr(owner, rule.field), rule.suggest(config, step)
        if after is None or after == before:
            continue
        change = FieldChange(rule.name, f"{type(owner).__name__}.{rule.field}", before, after)
        try:
            changed = dataclasses.replace(owner, **{rule.field: after})
            whole = changed if rule.group is None else dataclasses.replace(config, **{rule.group: changed})
        except ConfigError as error:
            yield Variation(change, None, str(error))
        else:
            assert isinstance(whole, EngineConfig)
            yield Variation(change, whole)
