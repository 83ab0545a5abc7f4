"""How long a step takes in virtual time: a stated straight line for each path, not a measurement of this machine.

A step costs ``fixed + per_row * rows + per_kv_token * kv_tokens`` microseconds. rows: those that the device computes,
padding included. kv_tokens: the lengths of all sequences after the step, which attention reads. The default is an 8B
model in bfloat16 on one H200; its numbers say where they come from, and each can be replaced.

Does not: know a step's records (``step_log.py`` counts them), or advance a clock.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

from engine.errors import ConfigError
from engine.fields import number, shown

TERMS: Final = ("fixed", "per_row", "per_kv_token")
PATHS: Final = ("graph", "prefill", "eager")


@dataclasses.dataclass(frozen=True, slots=True)
class PathCost:
    """Units: microseconds a step, a row, a token of KV."""

    fixed: float
    per_row: float
    per_kv_token: float

    def microseconds(self, rows: int, kv_tokens: int) -> float:
        """Cost of one step."""
        return self.fixed + self.per_row * rows + self.per_kv_token * kv_tokens


@dataclasses.dataclass(frozen=True, slots=True)
class CostModel:
    """A line for steps on a decode graph, on a prefill graph, and eager. origin: their source, in words."""

    graph: PathCost
    prefill: PathCost
    eager: PathCost
    origin: str

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Return the terms of each path, by name."""
        return {path: dataclasses.asdict(getattr(self, path)) for path in PATHS}

    def sentences(self) -> tuple[str, ...]:
        """State the model, a line each."""
        lines = [f"cost model, microseconds of a step ({self.origin}):"]
        for path in PATHS:
            terms = self.as_dict()[path]
            fixed, per_row, per_kv_token = (terms[name] for name in TERMS)
            lines.append(f"  {path}: {fixed:g} + {per_row:g} * rows + {per_kv_token:g} * KV tokens")
        return tuple(lines)


# Replays of an 8B Llama shape, LOG.md 2026-11-30: 3.89 ms at batch 1 and 4.87 at 64, KV length 192. A KV token is 131
# kB, read at 4.37 TB/s: 0.03. The rest of the difference is 10 a row. Eager: 30 layers of the 135M shape took 10.5 to
# 12 ms however few the rows (the host's launches), so 32 layers 12. Its rows are mostly prompt: 16 GFLOP each, at 650
# TFLOP/s. A prefill graph has those rows, and launches for attention only, 35 us a layer.
DEFAULT: Final = CostModel(
    PathCost(3_880.0, 10.0, 0.03),
    PathCost(5_000.0, 25.0, 0.03),
    PathCost(12_000.0, 25.0, 0.03),
    "8B, bfloat16, one H200; graph and eager.fixed from LOG.md of 2026-11-30, the rest by arithmetic",
)


def parse_costs(texts: Sequence[str], start: CostModel = DEFAULT) -> CostModel:
    """Replace terms by ``PATH.TERM=MICROSECONDS`` texts, such as graph.fixed=600. Raises: ConfigError."""
    lines = start.as_dict()
    for text in texts:
        name, _, value = text.partition("=")
        path, _, term = name.strip().partition(".")
        if path not in PATHS or term not in TERMS:
            known = ", ".join(f"{path}.{term}" for path in PATHS for term in TERMS)
            message = f"a cost must be NAME=MICROSECONDS with a name of {known}, got {shown(text)}"
            raise ConfigError(message)
        lines[path][term] = _microseconds(name.strip(), value)
    if not texts:
        return start
    given = "given; the rest: " + start.origin if len(texts) < len(PATHS) * len(TERMS) else "given"
    graph, prefill, eager = (PathCost(**lines[path]) for path in PATHS)
    return CostModel(graph, prefill, eager, given)


def _microseconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        message = f"{name} must be a number of microseconds, got {shown(text)}; write for example {name}=100"
        raise ConfigError(message)
    return number(name, value, 0.0, 1e9, refusal=ConfigError)
