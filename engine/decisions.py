"""The pure decisions of a step as one frozen record, so that a caller can swap one.

The defaults are the engine's own functions. A lesson, a fault or a learner's solution passes another record to the
engine's constructor; nothing is patched. Every function here is torch-free and reads only its arguments.

Does not: contain a decision. Capacity and micro-batch scheduling are objects and go to the executor directly.
"""

import dataclasses
from collections.abc import Callable

from engine.cuda_graphs.promote import promote_final_contexts
from engine.cuda_graphs.select import GraphFacts, Selection, select_graph
from engine.inputs.host_inputs import HostInputs
from engine.inputs.pack import BlockTable, pack
from engine.inputs.padding import num_padding_requests
from engine.inputs.steady import (
    RecordingFacts,
    SteadyRecord,
    SteadyRefusal,
    UseFacts,
    why_not_record,
    why_not_use,
)
from engine.scheduled import PaddedBatch, Span


@dataclasses.dataclass(frozen=True, slots=True)
class Decisions:
    """Which function decides what.

    promote_final_contexts: contexts that may run as decode rows. num_padding_requests: dummies for a batch.
    select_graph: key or reason. why_not_use_steady, why_not_record_steady: the two tests of the steady path, None when
    passed. pack: spans to host lists.
    """

    promote_final_contexts: Callable[..., tuple[Span, ...]] = promote_final_contexts
    num_padding_requests: Callable[..., int] = num_padding_requests
    select_graph: Callable[[GraphFacts], Selection] = select_graph
    why_not_use_steady: Callable[[SteadyRecord | None, UseFacts], SteadyRefusal | None] = why_not_use
    why_not_record_steady: Callable[[RecordingFacts], SteadyRefusal | None] = why_not_record
    pack: Callable[[PaddedBatch, BlockTable], HostInputs] = pack
