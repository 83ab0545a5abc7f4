"""Serving traces: who asked when, how long the prompt was and how long the answer; never what was said.

Two formats. CSV with the columns TIMESTAMP (date and time, or seconds), ContextTokens and GeneratedTokens. JSONL with
timestamp (milliseconds), input_length, output_length and hash_ids: one id for each block of the prompt, equal ids
meaning equal content. A line that cannot be right is refused with its number; lines are put in order of time.

Does not: hold a prompt. A prompt stands as a sequence that can be asked for any of its tokens (``prompt_tokens``).
Source: the CSV is that of Azure's public LLM inference traces, the JSONL that of Mooncake's.
"""

import csv
import dataclasses
import datetime as dt
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn, overload

from engine.errors import TraceError
from engine.fields import cut, shown

CSV_COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
JSONL_KEYS: Final = ("timestamp", "input_length", "output_length", "hash_ids")
HASHED_TOKENS: Final = 512  # of a block that has an id
PLAIN_TOKENS: Final = 16  # of a block where nothing is known of the content
MOST_TOKENS: Final = 1 << 23  # of one prompt or answer
_MOST_ID: Final = 1 << 40
_SPREAD: Final = 1 << 24  # tokens of one request that has no ids, apart from those of the next
_FIRST_KNOWN: Final = 1 << 40  # token of an id; generated tokens lie below
_UNKNOWN: Final = 1 << 80  # above every token that an id stands for
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True, slots=True)
class TracedRequest:
    """One line. index: its place in order of arrival. arrival_us: microseconds after the first one.

    hash_ids: of the prompt's blocks, or () where they are not known.
    """

    line: int
    arrival_us: float
    prompt_len: int
    output_len: int
    hash_ids: tuple[int, ...] = ()
    index: int = 0

    @property
    def num_positions(self) -> int:
        """Tokens whose keys and values are kept at the end: the last one is never fed back."""
        return self.prompt_len + self.output_len - 1


@dataclasses.dataclass(frozen=True, slots=True)
class ServingTrace:
    """A trace in order of arrival. tokens_per_block: of the blocks that hash_ids name, or that suit a plain trace."""

    path: str
    requests: tuple[TracedRequest, ...]
    tokens_per_block: int
    has_hashes: bool

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and answer."""
        return max(request.prompt_len + request.output_len for request in self.requests)

    def num_blocks(self, tokens_per_block: int) -> int:
        """Blocks that hold every request of the trace at the same time."""
        return sum(-(-request.num_positions // tokens_per_block) for request in self.requests)


class PromptTokens(Sequence[int]):
    """The tokens of a prompt of which only the blocks' ids are known: equal ids give equal tokens, all others differ.

    Nothing is stored but the ids; a slice is made when it is asked for.
    """

    __slots__ = ("_first_unknown", "_ids", "_len", "_tokens_per_block")

    def __init__(self, request: TracedRequest, tokens_per_block: int) -> None:
        """Stand for the prompt of a traced request."""
        self._ids, self._len, self._tokens_per_block = request.hash_ids, request.prompt_len, tokens_per_block
        self._first_unknown = _UNKNOWN + request.line * _SPREAD

    def __len__(self) -> int:
        """Count the tokens."""
        return self._len

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> list[int]: ...
    def __getitem__(self, at: int | slice) -> int | list[int]:
        """Return one token, or a list of those of a slice."""
        if isinstance(at, slice):
            return [self._token(position) for position in range(*at.indices(self._len))]
        position = at + self._len if at < 0 else at
        if not 0 <= position < self._len:
            message = f"token {at} of a prompt of {self._len}"
            raise IndexError(message)
        return self._token(position)

    def _token(self, position: int) -> int:
        block, offset = divmod(position, self._tokens_per_block)
        if block < len(self._ids):
            return _FIRST_KNOWN + self._ids[block] * self._tokens_per_block + offset
        return self._first_unknown + position


def prompt_tokens(request: TracedRequest, tokens_per_block: int) -> Sequence[int]:
    """Return a prompt's tokens without making them: by the ids of its blocks, or a range that no other request has."""
    if request.hash_ids:
        return PromptTokens(request, tokens_per_block)
    first = _UNKNOWN + request.line * _SPREAD
    return range(first, first + request.prompt_len)


def read_serving_trace(
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    tokens_per_block: int | None = None,
    wanted: str = "a CSV or JSONL file",
) -> ServingTrace:
    """Read a trace, or its first ``limit`` lines.

    tokens_per_block: of the blocks that hash_ids name (512). wanted: what to give instead of what cannot be read.
    Raises: TraceError, which names the file and the line.
    """
    source = Path(path)
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            is_jsonl = _is_jsonl(source, file.readline())
            file.seek(0)
            size = tokens_per_block or (HASHED_TOKENS if is_jsonl else PLAIN_TOKENS)
            found = _read_jsonl(file, str(source), size) if is_jsonl else _read_csv(file, str(source))
            requests = sorted(itertools.islice(found, limit), key=lambda request: request.arrival_us)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or cut(error)
        why = "it is a folder" if source.is_dir() else why
        message = f"{source} cannot be read as a serving trace: {why}; give {wanted}"
        raise TraceError(message) from error
    if not requests:
        message = f"{source} has no requests; a serving trace has one a line, after a heading if it is CSV"
        raise TraceError(message)
    first = requests[0].arrival_us
    requests = [
        dataclasses.replace(request, index=at, arrival_us=request.arrival_us - first)
        for at, request in enumerate(requests)
    ]
    return ServingTrace(str(source), tuple(requests), size, has_hashes=is_jsonl)


def _is_jsonl(source: Path, first_line: str) -> bool:
    suffix = source.suffix.lower()
    return suffix in (".jsonl", ".ndjson") or (suffix != ".csv" and first_line.lstrip().startswith("{"))


def _read_csv(lines: Iterable[str], path: str) -> Iterator[TracedRequest]:
    reader = csv.reader(lines)
    try:
        heading = next(reader, [])
        names = [name.strip().replace("_", "").replace(" ", "").lower() for name in heading]
        places = [names.index(name.lower()) if name.lower() in names else -1 for name in CSV_COLUMNS]
        if -1 in places:
            missing = ", ".join(name for name, place in zip(CSV_COLUMNS, places, strict=True) if place < 0)
            _refuse(path, 1, f"the heading must name the columns {', '.join(CSV_COLUMNS)}", heading, f"add {missing}")
        for values in reader:
            if values:  # an empty line ends many files
                line = reader.line_num
                if len(values) <= max(places):
                    _refuse(path, line, f"a line must have {len(heading)} values, as the heading has", values)
                when, prompt, answer = (values[place].strip() for place in places)
                yield TracedRequest(
                    line,
                    _microseconds(path, line, when),
                    _count(path, line, CSV_COLUMNS[1], _plain(prompt)),
                    _count(path, line, CSV_COLUMNS[2], _plain(answer)),
                )
    except csv.Error as error:
        _refuse(path, reader.line_num, "a line must be CSV", str(error))


def _read_jsonl(lines: Iterable[str], path: str, tokens_per_block: int) -> Iterator[TracedRequest]:
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:
            _refuse(path, line, f"a line must be one JSON object ({cut(error, 80)})", text.strip())
        if not isinstance(entry, dict) or not all(key in entry for key in JSONL_KEYS):
            _refuse(path, line, f"a line must be a JSON object with {', '.join(JSONL_KEYS)}", entry)
        when, prompt, answer, ids = (entry[key] for key in JSONL_KEYS)
        if isinstance(when, bool) or not isinstance(when, int | float) or not 0 <= when < 1e15:
            _refuse(path, line, "timestamp must be milliseconds, 0 or more", when)
        prompt_len = _count(path, line, "input_length", prompt)
        hash_ids = _hash_ids(path, line, ids, prompt_len, tokens_per_block)
        yield TracedRequest(line, when * 1000.0, prompt_len, _count(path, line, "output_length", answer), hash_ids)


def _hash_ids(path: str, line: int, ids: object, prompt_len: int, tokens_per_block: int) -> tuple[int, ...]:
    """Take one id a block; the last block, when it is not full, may have one or not."""
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < _MOST_ID for i in ids):
        _refuse(path, line, f"hash_ids must be a list of integers in [0, {_MOST_ID})", ids)
    full, all_blocks = prompt_len // tokens_per_block, -(-prompt_len // tokens_per_block)
    if len(ids) not in (full, all_blocks):
        wanted = (
            f"hash_ids must have one id for each {tokens_per_block} tokens of input_length {prompt_len}: {all_blocks}"
        )
        _refuse(path, line, wanted, len(ids), "where blocks are of another size, give --tokens-per-block")
    return tuple(ids)


def _plain(text: str) -> int | str:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else text


def _count(path: str, line: int, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
        _refuse(path, line, f"{name} must be an integer from 1 to {MOST_TOKENS}", value)
    return value


def _microseconds(path: str, line: int, text: str) -> float:
    """Read a date and time (UTC where it does not say), or plain seconds."""
    if re.fullmatch(r"\d{1,12}(\.\d*)?", text, re.ASCII):
        return float(text) * 1e6
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        _refuse(path, line, "TIMESTAMP must be a date and time such as 2023-11-16 18:15:46.68, or seconds", text)
    since = (when if when.tzinfo is not None else when.replace(tzinfo=dt.UTC)) - _EPOCH
    return since / dt.timedelta(microseconds=1)


def _refuse(path: str, line: int, wanted: str, got: object, hint: str = "") -> NoReturn:
    message = f"{path}, line {line}: {wanted}, got {shown(got)}{f'; {hint}' if hint else ''}"
    raise TraceError(message)
