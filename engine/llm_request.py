"""One request: a frozen spec, and one mutable cursor whose fields have one writer each.

States go CONTEXT_INIT -> GENERATION_IN_PROGRESS -> GENERATION_COMPLETE; any live state may go straight to
GENERATION_COMPLETE (abort, error). ``GENERATION_TO_COMPLETE`` (known to finish, sample still on the device)
belongs to the overlap loop.

Does not: hold blocks or tensors, decide when it runs, or know text. Source: TensorRT-LLM's LlmRequest, reduced
to what a decoder needs; names kept.
"""

import dataclasses
import enum

from engine.config import SamplingParams


class RequestState(enum.IntEnum):
    """Where a request stands; the order is that of its life."""

    CONTEXT_INIT = 2
    GENERATION_IN_PROGRESS = 3
    GENERATION_TO_COMPLETE = 4
    GENERATION_COMPLETE = 5


LEGAL_TRANSITIONS: dict[RequestState, frozenset[RequestState]] = {
    RequestState.CONTEXT_INIT: frozenset(
        {RequestState.GENERATION_IN_PROGRESS, RequestState.GENERATION_COMPLETE},
    ),
    RequestState.GENERATION_IN_PROGRESS: frozenset(
        {RequestState.GENERATION_TO_COMPLETE, RequestState.GENERATION_COMPLETE, RequestState.CONTEXT_INIT},
    ),
    RequestState.GENERATION_TO_COMPLETE: frozenset({RequestState.GENERATION_COMPLETE}),
    RequestState.GENERATION_COMPLETE: frozenset(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class RequestSpec:
    """What the user asked for; never changes.

    Units: token ids. ``is_dummy`` marks padding and warm-up requests; nothing else identifies them.
    max_new_tokens: params.max_tokens cut to what max_seq_len leaves; None takes params.max_tokens.
    """

    request_id: int
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    is_dummy: bool = False
    max_new_tokens: int | None = None


class LlmRequest:
    """A live request.

    Writers: ``tokens``, ``context_current_position``, ``state``, ``finish_reason``, ``error`` and
    ``py_batch_idx`` by the executor at commit (``py_executor.py``); ``py_seq_slot`` by the executor from the
    slot manager's answer. Schedulers, managers and the runner only read.
    """

    __slots__ = (
        "context_current_position",
        "error",
        "finish_reason",
        "py_batch_idx",
        "py_seq_slot",
        "spec",
        "state",
        "tokens",
    )

    def __init__(self, spec: RequestSpec) -> None:
        """Start at the first prompt token."""
        self.spec = spec
        self.tokens: list[int] = list(spec.prompt_token_ids)  # prompt, then generated
        self.context_current_position = 0  # prompt tokens whose KV is computed (or reused)
        self.state = RequestState.CONTEXT_INIT
        self.py_seq_slot: int | None = None  # stable for the request's life
        self.py_batch_idx: int | None = None  # slot where its previous sample lies on the device; None: no sample yet
        self.finish_reason: str | None = None
        self.error: str | None = None

    @property
    def request_id(self) -> int:
        """The id given at submission."""
        return self.spec.request_id

    @property
    def is_dummy(self) -> bool:
        """Whether this is a padding or warm-up request."""
        return self.spec.is_dummy

    @property
    def py_prompt_len(self) -> int:
        """Tokens of the prompt."""
        return len(self.spec.prompt_token_ids)

    @property
    def num_generated(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.py_prompt_len

    @property
    def context_remaining_length(self) -> int:
        """Prompt tokens not yet computed."""
        return self.py_prompt_len - self.context_current_position

    @property
    def max_total_tokens(self) -> int:
        """Prompt plus generated tokens at the latest possible end."""
        limit = self.spec.max_new_tokens
        return self.py_prompt_len + (self.spec.params.max_tokens if limit is None else limit)

    @property
    def is_context(self) -> bool:
        """Whether its next rows are prompt rows."""
        return self.state is RequestState.CONTEXT_INIT

    @property
    def is_finished(self) -> bool:
        """Whether it will never run again."""
        return self.state is RequestState.GENERATION_COMPLETE

    def move_to(self, state: RequestState) -> None:
        """Change the state; an illegal transition is a bug of ours, hence the assertion."""
        assert state in LEGAL_TRANSITIONS[self.state], f"request {self.request_id}: {self.state.name} -> {state.name}"
        self.state = state

    def check(self) -> None:
        """Recompute the invariants of the cursor."""
        assert 0 <= self.context_current_position <= self.py_prompt_len
        assert 0 <= self.num_generated <= self.spec.params.max_tokens
        if self.state is RequestState.GENERATION_IN_PROGRESS:
            assert self.context_remaining_length == 0
            assert self.num_generated >= 1
        assert (self.finish_reason is not None) == self.is_finished

    def __repr__(self) -> str:
        """Show the identity and the cursor."""
        return f"LlmRequest({self.request_id}, {self.state.name}, {self.context_current_position}/{self.py_prompt_len}, +{self.num_generated})"
