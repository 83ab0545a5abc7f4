"""RequestQueue: the live requests, who runs and who waits, each in arrival order.

A request runs from the step that gives it a slot until it ends or is paused; the others wait. Each list has a version
that goes up when the list changes, so that whoever decided something about a list need not look at it again.

Does not: decide who runs (``scheduler/``), or hold blocks and slots. Torch-free.
"""

import bisect
import collections
import dataclasses
import operator

from engine.llm_request import LlmRequest
from engine.sampling.stopping import StopChecker

LogProbs = dict[int, float]
_ID = operator.attrgetter("request_id")


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


class RequestQueue:
    """Every live request, by id and in two lists. Order of everything: arrival."""

    def __init__(self) -> None:
        """Start empty."""
        self.live: dict[int, LiveRequest] = {}
        self.running: list[LlmRequest] = []
        self.waiting: collections.deque[LlmRequest] = collections.deque()
        self._snapshot: tuple[int, tuple[LlmRequest, ...]] = (0, ())  # of those that wait, and its version
        self.running_version = 0
        self.waiting_version = 0

    @property
    def waiting_now(self) -> tuple[LlmRequest, ...]:
        """Those that wait; the same tuple until that changes."""
        if self._snapshot[0] != self.waiting_version:
            self._snapshot = (self.waiting_version, tuple(self.waiting))
        return self._snapshot[1]

    def add(self, live: LiveRequest) -> None:
        """Put a new request at the end of those that wait."""
        assert live.request.request_id not in self.live
        self.live[live.request.request_id] = live
        self.waiting.append(live.request)
        self.waiting_version += 1

    def remove(self, request: LlmRequest) -> None:
        """Take a request out, wherever it stands."""
        del self.live[request.request_id]
        if request.py_seq_slot is None:
            self.waiting.remove(request)
            self.waiting_version += 1
        else:
            self.running.remove(request)
            self.running_version += 1

    def admit(self, request: LlmRequest, slot: int) -> None:
        """Let a request run that has just got its slot."""
        if self.waiting[0] is request:
            self.waiting.popleft()
        else:
            self.waiting.remove(request)
        request.py_seq_slot = slot
        bisect.insort(self.running, request, key=_ID)
        self.running_version += 1
        self.waiting_version += 1

    def withdraw(self, request: LlmRequest) -> None:
        """Let a running request wait again, at its arrival place; its slot is no longer its own."""
        self.running.remove(request)
        request.py_seq_slot = None
        self.waiting.insert(bisect.bisect(self.waiting, request.request_id, key=_ID), request)
        self.running_version += 1
        self.waiting_version += 1

    def check(self) -> None:
        """Recompute both lists from the live requests."""
        running = [live.request for live in self.live.values() if live.request.py_seq_slot is not None]
        waiting = [live.request for live in self.live.values() if live.request.py_seq_slot is None]
        assert self.running == sorted(running, key=_ID), "the running requests are not those with a slot, in order"
        assert list(self.waiting) == sorted(waiting, key=_ID), "the waiting requests are not those without a slot"
        for request_id, live in self.live.items():
            assert live.request.request_id == request_id
            assert not live.request.is_finished
            live.request.check()
