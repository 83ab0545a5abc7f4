"""Another engine's step statistics as a trace: the formats by name, and the one way in.

Does not: parse a line (a file a format does), or show anything.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from engine.errors import ConfigError, TraceError
from engine.fields import cut, shown
from lab.imports.csv_steps import read_csv
from lab.imports.logged import MOST_STEPS, Log
from lab.imports.outline_steps import Limits, make_snapshot
from lab.imports.trtllm_iter_log import read_iter_log
from lab.imports.vllm_cudagraph_log import read_cudagraph_log
from lab.outline import IMPORTED
from lab.trace import DeviceFacts, ModelFacts, Trace, TraceHeader, WarmupFacts

FORMATS: Final = ("csv", "trtllm-iter-log", "vllm-cudagraph-log")
_NO_LIMITS: Final = Limits()
_NOWHERE: Final = DeviceFacts("another engine", "", "", "", simulated=False)
_SEARCHED: Final = {
    "csv": "one line a step below a heading",
    "trtllm-iter-log": "lines with `iter = ` and `num_scheduled_requests`; serve with print_iter_log: true",
    "vllm-cudagraph-log": "the table `| Unpadded Tokens | Padded Tokens | ...`; serve with --cudagraph-metrics",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """What the file does not say. name: shown for the model. rank: of a TensorRT-LLM log. limit: steps at most."""

    limits: Limits = _NO_LIMITS
    name: str | None = None
    rank: int = 0
    limit: int | None = None


def import_log(path: str | os.PathLike[str], form: str, settings: ImportSettings = ImportSettings()) -> Trace:
    """Read a file of one of FORMATS into a trace of outlines.

    Raises: ConfigError for an unknown format; TraceError for a file that cannot be read, holds no step, or has a line
    that makes no sense (file, line, what was required, what was got).
    """
    if form not in FORMATS:
        message = f"the format must be one of {', '.join(FORMATS)}, got {shown(form)}"
        raise ConfigError(message)
    log = _read(Path(path), form, settings)
    if not log.steps:
        message = f"{path} holds no step in the format {form}, which is {_SEARCHED[form]}"
        raise TraceError(message)
    limits = settings.limits
    if limits.buckets is None and log.buckets:
        limits = dataclasses.replace(limits, buckets=log.buckets)
    return Trace(
        _header(form, settings.name or Path(path).name, limits), [make_snapshot(step, limits) for step in log.steps]
    )


def _read(path: Path, form: str, settings: ImportSettings) -> Log:
    limit = settings.limit or MOST_STEPS
    readers: dict[str, Callable[[Iterator[str], str], Log]] = {
        "csv": lambda lines, name: read_csv(lines, name, limit=limit),
        "trtllm-iter-log": lambda lines, name: read_iter_log(
            lines, name, buckets=settings.limits.buckets or (), rank=settings.rank, limit=limit
        ),
        "vllm-cudagraph-log": lambda lines, name: read_cudagraph_log(lines, name, limit=limit),
    }
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            log = readers[form](lines, str(path))
    except (OSError, ValueError) as error:
        if isinstance(error, TraceError):
            raise
        message = f"{path} cannot be read: {getattr(error, 'strerror', None) or cut(error)}"
        raise TraceError(message) from error
    if settings.limit is None and len(log.steps) >= MOST_STEPS:
        message = f"{path} holds {MOST_STEPS} steps or more; say with --limit N how many to take"
        raise TraceError(message)
    return log


def _header(form: str, name: str, limits: Limits) -> TraceHeader:
    """Return a header that says where the numbers come from, and of the configuration what was given."""
    scheduler = {"max_batch_size": limits.max_batch_size, "max_num_tokens": limits.max_num_tokens}
    config = {
        "scheduler": {key: value for key, value in scheduler.items() if value},
        "cuda_graph": {
            "enable_padding": limits.padding,
            "prefill_num_tokens": list(limits.prefill_buckets),
            **({} if not limits.buckets else {"batch_sizes": list(limits.buckets)}),
        },
    }
    return TraceHeader(
        mode=IMPORTED,
        config=config,
        model=ModelFacts(name, ""),
        device=_NOWHERE,
        warmup=WarmupFacts(),
        requests=(),
        buckets=tuple(limits.buckets or ()),
        versions={"imported from": form},
        pieces={},
    )
