"""Put a learner's lists into a packed step: what the adapters of the packing exercises share.

Each of these exercises makes some of the lists that the engine's ``pack`` makes. The engine packs, the learner's
function is asked about the same step, and its lists take the place of the engine's.

Does not: repair a wrong list; the step runs with it.
"""

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from engine.decisions import Decisions
from engine.errors import ExerciseError
from engine.inputs.host_inputs import HostInputs, TokenSource
from engine.inputs.pack import BlockTable, pack, token_source
from engine.scheduled import PaddedBatch, RowKind, Span

Replacement = Callable[[Sequence[Span], HostInputs], dict[str, Any]]
UNKNOWN: Final = 0  # stands for a token that only the device knows


def packing(replacement: Replacement) -> Decisions:
    """Return decisions that pack as the engine does, and then put in the lists which the replacement returns."""

    def own_pack(batch: PaddedBatch, block_table: BlockTable) -> HostInputs:
        host = pack(batch, block_table)
        return dataclasses.replace(host, **replacement(batch.spans, host))

    return dataclasses.replace(Decisions(), pack=own_pack)


def groups(spans: Sequence[Span]) -> tuple[list[Span], list[Span], list[Span], list[Span]]:
    """Return the step's contexts, verified drafts, decodes and dummies. A promoted context counts as a decode."""
    real = [span for span in spans if not span.request.spec.is_dummy]
    contexts = [span for span in real if span.kind is RowKind.CONTEXT]
    others = [span for span in real if span.kind is not RowKind.CONTEXT]
    verifies = [span for span in others if span.draft_tokens]
    decodes = [span for span in others if not span.draft_tokens]
    return contexts, verifies, decodes, [span for span in spans if span.request.spec.is_dummy]


def known_tokens(span: Span) -> list[int]:
    """Return the tokens of a span's rows without its drafts; ``UNKNOWN`` where they lie on the device."""
    if token_source(span) is not TokenSource.HOST:
        return [UNKNOWN] * (span.num_rows - len(span.draft_tokens))
    return list(span.request.token_range(span.start, span.end - len(span.draft_tokens)))


def whole_numbers(values: Sequence[Any], what: str) -> tuple[int, ...]:
    """Return a learner's list as the engine holds lists. Raises: ExerciseError."""
    try:
        return tuple(map(operator.index, values))  # numpy's integers too: the engine's own positions may be such
    except TypeError as error:
        message = f"{what} must be integers, got {list(values)!r:.200}"
        raise ExerciseError(message) from error
