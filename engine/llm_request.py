"""One request: a frozen spec, and one mutable cursor whose fields have one writer each.

States go CONTEXT_INIT -> GENERATION_IN_PROGRESS -> GENERATION_COMPLETE; any live state may go straight to
GENERATION_COMPLETE (abort, error). ``GENERATION_TO_COMPLETE`` (known to finish, sample still on the device)
belongs to the overlap loop.

Does not: hold blocks or tensors, decide when it runs, or know text. Source: TensorRT-LLM's LlmRequest, reduced
to what a decoder needs; names kept.
"""

import dataclasses
import enum
import operator
from collections.abc import Sequence

from engine.config import SamplingParams
from engine.errors import RequestError
from engine.fields import shown


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What an engine can serve; checks a request before anything is enqueued for it.

    is_chunked: whether a prompt may be cut over several steps. Raises of all methods: RequestError.
    """

    vocab_size: int
    max_seq_len: int
    max_num_tokens: int
    is_chunked: bool

    def checked(self, token_ids: Sequence[object]) -> tuple[int, ...]:
        """Return the prompt as plain integers, or name the first thing that is wrong with it."""
        if not token_ids:
            message = "a prompt must hold at least one token, got an empty one; pass text or token ids"
            raise RequestError(message)
        count = len(token_ids)  # before the ids themselves are looked at: there may be millions
        if count >= self.max_seq_len:
            message = (
                f"a prompt must have at most max_seq_len - 1 = {self.max_seq_len - 1} tokens (one is generated), got "
                f"{count}; shorten it or set EngineConfig(max_seq_len={count + 1}) or more"
            )
            raise RequestError(message)
        if not self.is_chunked and count > self.max_num_tokens:
            message = (
                f"without chunking a prompt must fit one step, max_num_tokens={self.max_num_tokens}, got "
                f'{count} tokens; set SchedulerConfig(chunking="fcfs") or max_num_tokens={count}'
            )
            raise RequestError(message)
        return tuple([self._token_id(value, at) for at, value in enumerate(token_ids)])

    def check_params(self, params: SamplingParams) -> None:
        """Refuse more log-probabilities than there are tokens."""
        if params.logprobs is not None and params.logprobs > self.vocab_size:
            message = (
                f"SamplingParams.logprobs must be at most the vocabulary size {self.vocab_size}, got {params.logprobs}"
            )
            raise RequestError(message)

    def _token_id(self, value: object, at: int) -> int:
        try:
            token_id = -1 if isinstance(value, bool) else operator.index(value)  # pyright: ignore[reportArgumentType]
        except TypeError:
            token_id = -1
        if not 0 <= token_id < self.vocab_size:
            message = f"prompt token {at} must be an integer in [0, {self.vocab_size}), got {shown(value)}"
            raise RequestError(message)
        return token_id


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
        cursor = f"{self.context_current_position}/{self.py_prompt_len}, +{self.num_generated}"
        return f"LlmRequest({self.request_id}, {self.state.name}, {cursor})"
