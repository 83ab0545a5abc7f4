"""One request: a frozen spec, and one mutable cursor whose fields have one writer each.

States go CONTEXT_INIT -> GENERATION_IN_PROGRESS -> GENERATION_COMPLETE; any live state may go straight to
GENERATION_COMPLETE (abort, error). ``GENERATION_TO_COMPLETE`` (known to finish, sample still on the device)
belongs to the overlap loop. A paused request goes back to CONTEXT_INIT and computes its generated tokens again, as part
of its prompt.

Does not: hold blocks or tensors, decide when it runs, or know text. Source: TensorRT-LLM's LlmRequest, reduced
to what a decoder needs; names kept.
"""

import dataclasses
import enum
import operator
from collections.abc import Hashable, Sequence

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
        {RequestState.GENERATION_IN_PROGRESS, RequestState.GENERATION_TO_COMPLETE, RequestState.GENERATION_COMPLETE},
    ),
    RequestState.GENERATION_IN_PROGRESS: frozenset(
        {RequestState.GENERATION_TO_COMPLETE, RequestState.GENERATION_COMPLETE, RequestState.CONTEXT_INIT},
    ),
    RequestState.GENERATION_TO_COMPLETE: frozenset(
        {RequestState.GENERATION_COMPLETE, RequestState.GENERATION_IN_PROGRESS, RequestState.CONTEXT_INIT},
    ),
    RequestState.GENERATION_COMPLETE: frozenset(),
}


@dataclasses.dataclass(frozen=True, slots=True)
class RequestSpec:
    """What the user asked for; never changes.

    Units: token ids. ``is_dummy`` marks padding and warm-up requests; nothing else identifies them.
    prompt_token_ids: a tuple; of a replayed trace any sequence, such as a range, which is never copied whole.
    max_new_tokens: params.max_tokens cut to what max_seq_len leaves; None takes params.max_tokens.
    draft_tokens: the caller's guess of the whole continuation; drafts after n generated tokens start at index n.
    block_keys: identities of the prompt's full blocks where a trace gives them; None derives them from the tokens.
    cache_salt: requests of different salts share no block.
    """

    request_id: int
    prompt_token_ids: Sequence[int]
    params: SamplingParams
    is_dummy: bool = False
    max_new_tokens: int | None = None
    draft_tokens: tuple[int, ...] = ()
    block_keys: tuple[Hashable, ...] | None = None
    cache_salt: str | None = None


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

    def checked_drafts(self, token_ids: object) -> tuple[int, ...]:
        """Return the guess as plain integers; what lies behind the last position that could be generated is dropped."""
        if isinstance(token_ids, str | bytes) or not isinstance(token_ids, Sequence):
            message = f"draft_tokens must be a list of token ids, got {shown(token_ids)}"
            raise RequestError(message)
        return tuple([self._token_id(value, at, "draft") for at, value in enumerate(token_ids[: self.max_seq_len])])

    def check_params(self, params: SamplingParams) -> None:
        """Refuse more log-probabilities than there are tokens."""
        if params.logprobs is not None and params.logprobs > self.vocab_size:
            message = (
                f"SamplingParams.logprobs must be at most the vocabulary size {self.vocab_size}, got {params.logprobs}"
            )
            raise RequestError(message)

    def _token_id(self, value: object, at: int, kind: str = "prompt") -> int:
        try:
            token_id = -1 if isinstance(value, bool) else operator.index(value)  # pyright: ignore[reportArgumentType]
        except TypeError:
            token_id = -1
        if not 0 <= token_id < self.vocab_size:
            message = f"{kind} token {at} must be an integer in [0, {self.vocab_size}), got {shown(value)}"
            raise RequestError(message)
        return token_id


class LlmRequest:
    """A live request.

    Writers: the executor alone, ``py_seq_slot`` from the slot manager's answer. Schedulers, managers and the runner
    only read.
    """

    __slots__ = (
        "cached_tokens",
        "context_current_position",
        "error",
        "finish_reason",
        "generated",
        "num_in_flight",
        "py_batch_idx",
        "py_prompt_len",
        "py_seq_slot",
        "spec",
        "state",
    )

    def __init__(self, spec: RequestSpec) -> None:
        """Start at the first prompt token."""
        self.spec = spec
        self.generated: list[int] = []  # every sample that the host has read, also those from before a pause
        self.num_in_flight = 0  # samples on the device that the host has not read
        self.py_prompt_len = len(spec.prompt_token_ids)  # after a pause, what was generated counts too
        self.context_current_position = 0  # prompt tokens whose KV is computed (or reused)
        self.cached_tokens: int | None = None  # prompt tokens found in the cache when it was first let in
        self.state = RequestState.CONTEXT_INIT
        self.py_seq_slot: int | None = None  # stable until the request ends or is paused
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
    def py_orig_prompt_len(self) -> int:
        """Tokens of the prompt as submitted."""
        return len(self.spec.prompt_token_ids)

    @property
    def num_generated(self) -> int:
        """Tokens generated so far, as far as the host knows."""
        return len(self.generated)

    @property
    def num_tokens(self) -> int:
        """Prompt and generated tokens, as far as the host knows."""
        return len(self.spec.prompt_token_ids) + len(self.generated)

    @property
    def tokens(self) -> list[int]:
        """A copy of prompt and generated tokens; the hot path takes ``token_range``."""
        return [*self.spec.prompt_token_ids, *self.generated]

    def token_range(self, start: int, end: int) -> Sequence[int]:
        """Return the tokens at positions [start, end), prompt and generated, without copying the rest."""
        prompt_len = len(self.spec.prompt_token_ids)
        if end <= prompt_len:
            return self.spec.prompt_token_ids[start:end]
        if start >= prompt_len:
            return self.generated[start - prompt_len : end - prompt_len]
        return [*self.spec.prompt_token_ids[start:], *self.generated[: end - prompt_len]]

    @property
    def context_remaining_length(self) -> int:
        """Prompt tokens not yet computed."""
        return self.py_prompt_len - self.context_current_position

    @property
    def max_new_tokens(self) -> int:
        """Tokens that it generates at most, pauses or not."""
        limit = self.spec.max_new_tokens
        return self.spec.params.max_tokens if limit is None else limit

    @property
    def max_total_tokens(self) -> int:
        """Prompt plus generated tokens at the latest possible end."""
        return len(self.spec.prompt_token_ids) + self.max_new_tokens

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

    def pause(self) -> None:
        """Go back to the start: whatever was generated is now part of the prompt that is computed again.

        Only when every sample has been read: a token that arrived later would be missing in the prompt.
        """
        assert not self.num_in_flight, f"request {self.request_id} is paused with samples on the device"
        if self.state is not RequestState.CONTEXT_INIT:
            self.move_to(RequestState.CONTEXT_INIT)
        self.py_prompt_len = self.num_tokens
        self.context_current_position = 0
        self.py_batch_idx = None
        self.py_seq_slot = None

    def check(self) -> None:
        """Recompute the invariants of the cursor."""
        assert 0 <= self.context_current_position <= self.py_prompt_len <= self.num_tokens
        assert 0 <= self.num_generated <= self.max_new_tokens
        assert self.num_in_flight >= 0
        if self.state is RequestState.GENERATION_IN_PROGRESS:
            assert self.context_remaining_length == 0
            assert self.num_generated + self.num_in_flight >= 1
        assert (self.finish_reason is not None) == self.is_finished

    def __repr__(self) -> str:
        """Show the identity and the cursor."""
        cursor = f"{self.context_current_position}/{self.py_prompt_len}, +{self.num_generated}"
        return f"LlmRequest({self.request_id}, {self.state.name}, {cursor})"
