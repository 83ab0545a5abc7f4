"""When a request ends, and which of its text may be shown: decided after each new token, in constant time.

Stop strings are looked for in the incremental text, where one may begin in one token and end in another. Text that
could still be the beginning of a stop string is held back until that is settled, so a stream never has to take a
character back. The search sees only the held text and the new piece, never the whole output.

Rules: an end-of-text or stop id ends with "stop" and contributes no text; a stop string ends with "stop" and the text
leaves it out (of several that one token completes, the one that begins first); max_tokens and max_seq_len end with
"length". Token ids always keep the last token. "stop" is preferred when both apply.

Does not: detokenise (it is given a ``Detokenizer``), free anything, or touch a request. Torch-free.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from engine.config import SamplingParams

StopReason = Literal["stop", "length"]


class Detokenizer(Protocol):
    """Turns ids into text as they come; never hands out half a character."""

    def push(self, token_id: int) -> str:
        """Return the text that this id adds, possibly none."""
        ...

    def push_all(self, token_ids: Sequence[int]) -> str:
        """Return the text that these ids add, possibly none."""
        ...

    def finish(self) -> str:
        """Return what half a character at the end becomes; called once, after the last id."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class StopVerdict:
    """What one new token did. new_text is final: it may be shown, and all of them joined are the request's text."""

    finish_reason: StopReason | None
    new_text: str


@dataclasses.dataclass(frozen=True, slots=True)
class StopScan:
    """A search for stop strings: text that is settled, text held back, and whether one was found."""

    settled: str
    held: str
    found: bool


def scan_for_stop(text: str, stops: Sequence[str]) -> StopScan:
    """Split text at the earliest stop string, or else before the longest tail that could begin one.

    text is the held tail and the new piece; a match that begins earlier would have been held or found before.
    """
    starts = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    if starts:
        return StopScan(text[: min(starts)], "", found=True)
    num_held = max((longest_open_tail(text, stop) for stop in stops), default=0)
    cut = len(text) - num_held
    return StopScan(text[:cut], text[cut:], found=False)


def longest_open_tail(text: str, stop: str) -> int:
    """Return the length of the longest tail of text that begins the stop string without completing it."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0


class StopChecker:
    """The end conditions of one request and the text it may show; one writer, its request's executor.

    Order: ``push`` once per generated token, in order, until it returns a finish reason, or ``skip`` for stretches that
    are known to end nothing; ``end`` when the request ends for another reason (abort, error).
    State is bounded by the longest stop string plus the text itself.
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        prompt_len: int,
        max_seq_len: int,
        eos_token_ids: Collection[int],
        detokenizer: Detokenizer,
    ) -> None:
        """Start before the first generated token. max_seq_len bounds prompt plus generated tokens."""
        self._stops = params.stop
        eos_ids = frozenset(() if params.ignore_eos else eos_token_ids)
        self._stop_ids = eos_ids.union(params.stop_token_ids)
        self._max_new_tokens = max(1, min(params.max_tokens, max_seq_len - prompt_len))
        self._detokenizer = detokenizer
        self._pieces: list[str] = []
        self._held = ""
        self.num_generated = 0
        self.finish_reason: StopReason | None = None
        self._has_ended = False

    @property
    def text(self) -> str:
        """The settled text so far; after the end, the request's text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end the request."""
        return self._stop_ids

    @property
    def reads_text(self) -> bool:
        """Whether the text can end the request, so that every token has to be looked at when it comes."""
        return bool(self._stops)

    def push(self, token_id: int) -> StopVerdict:
        """Take the next generated token and say whether the request ends with it, and what may be shown."""
        assert not self._has_ended, "a token after the end"
        self.num_generated += 1
        is_stop_id = token_id in self._stop_ids
        is_last = is_stop_id or self.num_generated >= self._max_new_tokens
        piece = "" if is_stop_id else self._detokenizer.push(token_id)
        if is_last:
            piece += self._detokenizer.finish()
        if self._stops:
            scan = scan_for_stop(self._held + piece, self._stops)
            piece, self._held = scan.settled, scan.held
            if scan.found:
                return self._finish("stop", piece)
        if is_last:
            return self._finish("stop" if is_stop_id else "length", piece + self._held)
        if piece:
            self._pieces.append(piece)
        return StopVerdict(None, piece)

    def skip(self, token_ids: Sequence[int]) -> None:
        """Take tokens that end nothing: none is a stop id or the last one, and no stop string is looked for."""
        assert not self._has_ended, "tokens after the end"
        assert not self._stops, "the text of these tokens has to be looked at"
        assert self._stop_ids.isdisjoint(token_ids), "a stop id ends the request"
        self.num_generated += len(token_ids)
        if piece := self._detokenizer.push_all(token_ids):
            self._pieces.append(piece)

    def end(self) -> str:
        """Give out what was held back, because the request ends without a verdict; "" after one."""
        if self._has_ended:
            return ""
        settled = self._held + self._detokenizer.finish()
        self._close(settled)
        return settled

    def _finish(self, reason: StopReason, settled: str) -> StopVerdict:
        self.finish_reason = reason
        self._close(settled)
        return StopVerdict(reason, settled)

    def _close(self, settled: str) -> None:
        self._has_ended = True
        self._held = ""
        if settled:
            self._pieces.append(settled)

    def check(self) -> None:
        """Recompute the invariants: what is held could begin a stop string, and no settled text contains one."""
        longest = max((longest_open_tail(self._held, stop) for stop in self._stops), default=0)
        assert len(self._held) == longest
        assert self.num_generated <= self._max_new_tokens
        assert self.finish_reason is None or self._has_ended
        if self._has_ended:
            assert not self._held
        else:
            assert not any(stop in self.text for stop in self._stops)
