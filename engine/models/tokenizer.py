"""Text to token ids and back: the interface, the byte tokenizer, and the incremental detokenizer.

A token is a string of bytes; text is the UTF-8 decoding of the joined bytes, malformed parts shown as U+FFFD. So
decoding a list and pushing its ids one by one give the same text. Does not: read files (``loading/tokenizer.py``
builds tokenizers from them).
"""

import abc
import codecs
import dataclasses
import operator
import re
from collections.abc import Iterable, Sequence

from engine.errors import ModelError, RequestError
from engine.fields import shown

ChatMessage = dict[str, str]


def _join(parts: Iterable[bytes], *, strip_first_space: bool) -> str:
    data = b"".join(parts)
    return (data.removeprefix(b" ") if strip_first_space else data).decode("utf-8", "replace")


class Detokenizer:
    """Turns ids into text as they come, in constant time a token.

    Holds back the bytes of a character until the character is whole.
    """

    def __init__(self, token_bytes: Sequence[bytes], *, strip_first_space: bool = False) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._strip_first_space = self._is_at_start = strip_first_space
        self._ids: list[int] = []
        self._pieces: list[str] = []

    def push(self, token_id: int) -> str:
        """Take the next id and give the text that became certain, perhaps ""."""
        data = self._token_bytes[token_id]
        self._ids.append(token_id)
        if self._is_at_start and data:
            data = data.removeprefix(b" ")
            self._is_at_start = False
        piece = self._decoder.decode(data)
        if piece:
            self._pieces.append(piece)
        return piece

    def push_all(self, token_ids: Sequence[int]) -> str:
        """Take the next ids, at the cost of one, and give the text that became certain."""
        data = b"".join([self._token_bytes[token_id] for token_id in token_ids])
        self._ids.extend(token_ids)
        if self._is_at_start and data:
            data = data.removeprefix(b" ")
            self._is_at_start = False
        piece = self._decoder.decode(data)
        if piece:
            self._pieces.append(piece)
        return piece

    def finish(self) -> str:
        """Give what was held back, as U+FFFD; call it once, after the last id. Then ``text`` is the whole text."""
        piece = self._decoder.decode(b"", final=True)
        if piece:
            self._pieces.append(piece)
        return piece

    @property
    def text(self) -> str:
        """All text so far; an unfinished character at the end shows as U+FFFD, as ``Tokenizer.decode`` shows it."""
        held_back = self._decoder.getstate()[0]
        return "".join(self._pieces) + held_back.decode("utf-8", "replace")

    def check(self) -> None:
        """Decode all ids from scratch and compare."""
        expected = _join(map(self._token_bytes.__getitem__, self._ids), strip_first_space=self._strip_first_space)
        assert self.text == expected, f"pushed text {self.text!r} differs from the decoded {expected!r}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpecialTokens:
    """What the model file says about tokens that are no text.

    add_bos: whether ``encode`` puts bos_token_id in front. control_ids: tokens that stand for structure, such as
    <|im_start|>. chat_template: jinja2 source, None when the file has none.
    """

    eos_token_ids: frozenset[int] = frozenset()
    bos_token_id: int | None = None
    add_bos: bool = False
    control_ids: frozenset[int] = frozenset()
    chat_template: str | None = None


class Tokenizer(abc.ABC):
    """One model's tokens. Subclasses say how text is cut; everything else follows from the bytes of each token."""

    def __init__(
        self, token_bytes: Sequence[bytes], special: SpecialTokens, *, strip_first_space: bool = False
    ) -> None:
        self._token_bytes = token_bytes
        self._special = special
        self._strip_first_space = strip_first_space

    @abc.abstractmethod
    def encode_plain(self, text: str) -> list[int]:
        """Cut text into ids, nothing added; control tokens written out in the text are recognised."""

    def encode(self, text: str) -> list[int]:
        """Cut text into ids. A BOS comes first only if the model file asks for it and the text does not bring it.

        Raises: RequestError for text with lone surrogates, which no tokenizer can represent.
        """
        if not isinstance(text, str):
            message = f"the text must be a string, got {shown(text)}"
            raise RequestError(message)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"the text must be valid Unicode, got the lone surrogate {text[error.start]!r} at {error.start}"
            raise RequestError(message) from error
        ids = self.encode_plain(text)
        bos = self._special.bos_token_id
        if self._special.add_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of ids, control tokens spelled out. Raises: RequestError for an id outside the vocabulary."""
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            message = f"ids must be a list of token ids, got {shown(ids)}"
            raise RequestError(message)
        return _join(map(self._bytes_of, ids), strip_first_space=self._strip_first_space)

    def token_text(self, token_id: int) -> str:
        """Give a token in printable form: newlines and other invisible characters escaped, odd bytes as <0xE4>."""
        data = self._bytes_of(token_id)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(f"<0x{byte:02X}>" for byte in data)
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

    def detokenizer(self) -> Detokenizer:
        """Start an incremental decoding."""
        return Detokenizer(self._token_bytes, strip_first_space=self._strip_first_space)

    def apply_chat_template(self, messages: Sequence[ChatMessage]) -> str:
        """Write a conversation as the prompt that the model was trained on, ready for the assistant's answer.

        messages: dicts with "role" and "content". Raises: ModelError when the model has no template; RequestError
        when the template refuses the messages.
        """
        if self._special.chat_template is None:
            message = "this model has no chat template; pass plain text instead of a conversation"
            raise ModelError(message)
        from engine.models.chat import render_chat

        bos, eos = self._special.bos_token_id, sorted(self._special.eos_token_ids)
        spelled = {
            "bos_token": "" if bos is None else self.decode([bos]),
            "eos_token": self.decode(eos[:1]),
        }
        return render_chat(self._special.chat_template, messages, spelled)

    @property
    def vocab_size(self) -> int:
        """Ids run from 0 to vocab_size - 1."""
        return len(self._token_bytes)

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end a generation."""
        return self._special.eos_token_ids

    @property
    def bos_token_id(self) -> int | None:
        """Id that the model knows as the beginning of text, if any."""
        return self._special.bos_token_id

    @property
    def add_bos(self) -> bool:
        """Whether ``encode`` puts a BOS in front; only the model file decides."""
        return self._special.add_bos

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids of tokens that are structure and no text."""
        return self._special.control_ids

    def _bytes_of(self, token_id: int) -> bytes:
        try:
            at = -1 if isinstance(token_id, bool) else operator.index(token_id)  # numpy's and torch's integers, too
        except TypeError:
            at = -1
        if not 0 <= at < len(self._token_bytes):
            message = f"token id must lie in 0..{len(self._token_bytes) - 1}, got {shown(token_id)}"
            raise RequestError(message)
        return self._token_bytes[at]


class ByteTokenizer(Tokenizer):
    """Every byte of the text is a token; control tokens come after the 256 bytes and are found in the text too."""

    def __init__(self, control_tokens: Sequence[str], special: SpecialTokens) -> None:
        super().__init__([*(bytes([i]) for i in range(256)), *(t.encode() for t in control_tokens)], special)
        self._control = {token: 256 + i for i, token in enumerate(control_tokens)}
        self._cut = re.compile("(" + "|".join(map(re.escape, control_tokens)) + ")")

    def encode_plain(self, text: str) -> list[int]:
        """Cut at control tokens first, then into bytes."""
        ids: list[int] = []
        for part in self._cut.split(text):
            ids.extend([self._control[part]] if part in self._control else part.encode())
        return ids
