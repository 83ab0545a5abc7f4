"""RequestQueue: the live requests, who runs and who waits, each in arrival order.

A request runs from the step that gives it a slot until it ends or is paused; the others wait. Each list has a version
that goes up when the list changes, so that whoever decided something about a list need not look at it again.

Does not: decide who runs (``scheduler/``), or hold blocks and slots. Torch-free.
"""

import bisect
import dataclasses
import operator
from collections.abc import Sequence
from typing import Final, overload

from engine.llm_request import LlmRequest
from engine.sampling.stopping import StopChecker

LogProbs = dict[int, float]
_ID = operator.attrgetter("request_id")
_FEW_GONE: Final = 64  # requests that wait no more and are still in the list; more than half of it never are, beyond


@dataclasses.dataclass(slots=True, eq=False)
class LiveRequest:
    """A request of the loop with its end conditions and collected log-probabilities.

    is_plain: nothing but a stop id or its length can end it, and nobody collects anything with its tokens.
    """

    request: LlmRequest
    stop_checker: StopChecker
    logprobs: list[LogProbs] = dataclasses.field(default_factory=list[LogProbs])
    is_plain: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Look at the parameters once."""
        self.is_plain = not self.stop_checker.reads_text and self.request.spec.params.logprobs is None

    def takes_blindly(self, token: int) -> bool:
        """Whether the next token ends nothing and need not be looked at further."""
        request = self.request
        is_last = len(request.generated) + 1 >= request.max_new_tokens
        return self.is_plain and not is_last and token not in self.stop_checker.stop_ids

    def catch_up(self) -> None:
        """Give the stop checker the text of tokens that needed no check when they came."""
        missing = self.request.generated[self.stop_checker.num_generated :]
        if missing:
            self.stop_checker.skip(missing)


class WaitingLine(Sequence[LlmRequest]):
    """Those who waited at one moment. The list behind it is shared and only ever gets longer, so nobody is copied."""

    __slots__ = ("_end", "_items", "_start")

    def __init__(self, items: list[LlmRequest], start: int, end: int) -> None:
        """Hold a stretch of the list."""
        self._items, self._start, self._end = items, start, end

    @overload
    def __getitem__(self, index: int) -> LlmRequest: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[LlmRequest, ...]: ...

    def __getitem__(self, index: int | slice) -> LlmRequest | tuple[LlmRequest, ...]:
        """Look at one place, or some."""
        if isinstance(index, slice):
            return tuple([self[at] for at in range(*index.indices(len(self)))])
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            message = f"place {index} in a line of {len(self)}"
            raise IndexError(message)
        return self._items[self._start + at]

    def __len__(self) -> int:
        """Count those who waited."""
        return self._end - self._start


class RequestQueue:
    """Every live request, by id and in two lists. Order of everything: arrival."""

    def __init__(self) -> None:
        """Start empty."""
        self.live: dict[int, LiveRequest] = {}
        self.num_guessing = 0  # live requests that came with drafts
        self.running: list[LlmRequest] = []
        self._line: list[LlmRequest] = []  # those that wait, behind some that do no more; only its end is changed
        self._num_gone = 0
        self._snapshot: tuple[int, WaitingLine] = (0, WaitingLine(self._line, 0, 0))  # with its version
        self.running_version = 0
        self.waiting_version = 0

    @property
    def waiting(self) -> WaitingLine:
        """Those that wait now; the same object until that changes, and what it holds stays as it is."""
        if self._snapshot[0] != self.waiting_version:
            self._snapshot = (self.waiting_version, WaitingLine(self._line, self._num_gone, len(self._line)))
        return self._snapshot[1]

    def add(self, live: LiveRequest) -> None:
        """Put a new request at the end of those that wait."""
        assert live.request.request_id not in self.live
        self.live[live.request.request_id] = live
        self.num_guessing += bool(live.request.spec.draft_tokens)
        self._line.append(live.request)
        self.waiting_version += 1

    def remove(self, request: LlmRequest) -> None:
        """Take a request out, wherever it stands."""
        del self.live[request.request_id]
        self.num_guessing -= bool(request.spec.draft_tokens)
        if request.py_seq_slot is None:
            self._leave_line(request)
        else:
            self.running.remove(request)
            self.running_version += 1

    def admit(self, request: LlmRequest, slot: int) -> None:
        """Let a request run that has just got its slot."""
        self._leave_line(request)
        request.py_seq_slot = slot
        bisect.insort(self.running, request, key=_ID)
        self.running_version += 1

    def withdraw(self, request: LlmRequest) -> None:
        """Let a running request wait again, at its arrival place; its slot is no longer its own."""
        self.running.remove(request)
        request.py_seq_slot = None
        self._renew_line()
        bisect.insort(self._line, request, key=_ID)
        self.running_version += 1
        self.waiting_version += 1

    def _leave_line(self, request: LlmRequest) -> None:
        """Let a request wait no more; the first of the line goes at no cost, whoever waits behind it."""
        if self._line[self._num_gone] is request:
            self._num_gone += 1
            if self._num_gone > _FEW_GONE + len(self._line) // 2:
                self._renew_line()
        else:
            self._renew_line()
            self._line.remove(request)
        self.waiting_version += 1

    def _renew_line(self) -> None:
        """Go on with a list of one's own: lines that were handed out keep the old one."""
        self._line, self._num_gone = self._line[self._num_gone :], 0

    def check(self) -> None:
        """Recompute both lists from the live requests."""
        running = [live.request for live in self.live.values() if live.request.py_seq_slot is not None]
        waiting = [live.request for live in self.live.values() if live.request.py_seq_slot is None]
        assert self.running == sorted(running, key=_ID), "the running requests are not those with a slot, in order"
        assert list(self.waiting) == self._line[self._num_gone :] == sorted(waiting, key=_ID), (
            "the waiting requests are not those without a slot"
        )
        assert self.num_guessing == len([None for live in self.live.values() if live.request.spec.draft_tokens])
        for request_id, live in self.live.items():
            assert live.request.request_id == request_id
            assert not live.request.is_finished
            live.request.check()
