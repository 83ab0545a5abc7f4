"""Tokenizers out of model files, by the ``tokenizers`` library.

A GGUF file holds vocabulary, merges (or scores) and the name of a pre-tokenizer; a Hugging Face folder holds a
finished ``tokenizer.json``. Both become a ``SavedTokenizer``, which the converted cache can keep. Does not:
train, or decode through the library: a token's bytes decide its text (``engine/models/tokenizer.py``).
Source: the pre-tokenizer rules that llama.cpp and the models' own tokenizer.json files name.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from engine.errors import ModelError
from engine.fields import cut, shown
from engine.models.tokenizer import SpecialTokens, Tokenizer

if TYPE_CHECKING:
    import tokenizers

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # GGUF's token types
_SPACE_MARK = "\u2581"  # how SentencePiece writes a space
_LONGEST_TOKEN = 4096  # a vocabulary has some of a hundred; every cut of every token is tried
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Pre-tokenizer name -> pattern that cuts text into words; "" is GPT-2's, which the library carries.
_WORD_PATTERNS: Final[dict[str, str]] = {
    "gpt-2": "",
    "smollm": "",
    "llama-bpe": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GGUFVocabulary:
    """The tokenizer part of a GGUF file. Order: tokens, token_types and scores by token id; merges by rank."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    scores: tuple[float, ...]
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool
    add_space_prefix: bool
    chat_template: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class SavedTokenizer:
    """A tokenizer that can be written down. definition: JSON of the ``tokenizers`` library."""

    definition: str
    special: SpecialTokens


@contextlib.contextmanager
def _library_errors(what: str) -> Generator[None]:
    """Word what the library raises: plain Exception, or for a panic of its own a BaseException without a public name.

    Raises: ModelError.
    """
    try:
        yield
    except (ModelError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        message = f"{what}: {cut(error)}"
        raise ModelError(message) from error


class BPETokenizer(Tokenizer):
    """Byte-pair encoding, either over bytes (GPT-2's way) or over characters with a space mark (SentencePiece's)."""

    def __init__(self, saved: SavedTokenizer, vocab_size: int) -> None:
        """Build from the definition. vocab_size: the model's; ids without a token decode to nothing.

        Raises: ModelError for a definition that cannot be read, or one with more tokens than the model knows.
        """
        import tokenizers

        with _library_errors("the tokenizer definition cannot be read"):
            self._encoder = tokenizers.Tokenizer.from_str(saved.definition)
        self._encoder.no_truncation()  # a file may ask for both, and a cut prompt is no answer to a long one
        self._encoder.no_padding()
        decoder = json.loads(saved.definition).get("decoder") or {}
        is_byte_level, strips = _decoder_kind(decoder)
        vocabulary = self._encoder.get_vocab(with_added_tokens=True)
        highest = max(vocabulary.values(), default=-1)
        if highest >= vocab_size:
            message = f"the tokenizer has token id {highest}, but the model's embedding has only {vocab_size} rows"
            raise ModelError(message)
        to_bytes = _byte_level_bytes if is_byte_level else _sentencepiece_bytes
        token_bytes = [b""] * vocab_size
        for token, token_id in vocabulary.items():
            token_bytes[token_id] = to_bytes(token)
        super().__init__(token_bytes, saved.special, strip_first_space=strips)

    def encode_plain(self, text: str) -> list[int]:
        """Cut text into ids by the library."""
        with _library_errors("the model's tokenizer cannot cut this text"):
            return self._encoder.encode(text, add_special_tokens=False).ids


def _decoder_kind(decoder: dict[str, Any]) -> tuple[bool, bool]:
    """Say whether tokens are byte-level, and whether the first space of a text is an artefact."""
    parts = decoder.get("decoders", [decoder])
    kinds = {part.get("type") for part in parts}
    if "ByteLevel" in kinds:
        return True, False
    if "ByteFallback" in kinds:
        return False, any(part.get("type") == "Strip" and part.get("start") for part in parts)
    message = f"tokenizers with ByteLevel or ByteFallback decoders are supported, got {sorted(map(str, kinds))}"
    raise ModelError(message)


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: a visible Latin-1 byte is itself, the others follow from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes([_BYTE_OF[character] for character in token])
    except KeyError:  # an added token, spelled as it is
        return token.encode()


def _sentencepiece_bytes(token: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_SPACE_MARK, " ").encode()


def tokenizer_from_gguf(vocabulary: GGUFVocabulary) -> SavedTokenizer:
    """Build a tokenizer.

    Raises: ModelError for a tokenizer model or pre-tokenizer that is not supported, and for merges or scores that
    do not fit the vocabulary.
    """
    builders = {"gpt2": _byte_level_encoder, "llama": _sentencepiece_encoder}
    if vocabulary.model not in builders:
        message = f"tokenizer model {vocabulary.model!r} is not supported; supported are 'gpt2' and 'llama'"
        raise ModelError(message)
    with _library_errors("the file's vocabulary makes no tokenizer"):
        encoder = builders[vocabulary.model](vocabulary)
        special = _add_special_tokens(encoder, vocabulary)
    return SavedTokenizer(encoder.to_str(), special)


def _byte_level_encoder(vocabulary: GGUFVocabulary) -> "tokenizers.Tokenizer":
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    if vocabulary.pre not in _WORD_PATTERNS:
        message = (
            f"pre-tokenizer {vocabulary.pre!r} is not supported; supported are {', '.join(map(repr, _WORD_PATTERNS))}"
        )
        raise ModelError(message)
    odd = next((i for i, merge in enumerate(vocabulary.merges) if not all(merge.partition(" "))), None)
    if odd is not None:
        message = (
            f"tokenizer.ggml.merges[{odd}] must be two texts with a space between, got {shown(vocabulary.merges[odd])}"
        )
        raise ModelError(message)
    pairs = (merge.partition(" ") for merge in vocabulary.merges)
    model = models.BPE(
        vocab={token: i for i, token in enumerate(vocabulary.tokens)},
        merges=[(left, right) for left, _, right in pairs],
        ignore_merges=vocabulary.pre == "llama-bpe",
    )
    encoder = Tokenizer(model)
    pattern = _WORD_PATTERNS[vocabulary.pre]
    steps: list[pre_tokenizers.PreTokenizer] = []
    if vocabulary.pre == "smollm":
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern))
    encoder.pre_tokenizer = pre_tokenizers.Sequence(steps)
    encoder.decoder = decoders.ByteLevel()
    if vocabulary.pre == "qwen2":
        encoder.normalizer = normalizers.NFC()
    return encoder


def _sentencepiece_encoder(vocabulary: GGUFVocabulary) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers

    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    if not vocabulary.scores:
        message = "tokenizer.ggml.scores must hold a number for each token of a 'llama' tokenizer, got none"
        raise ModelError(message)
    longest = max(ids, key=len)
    if len(longest) > _LONGEST_TOKEN:
        message = f"tokenizer.ggml.tokens must have at most {_LONGEST_TOKEN} characters each, got {shown(longest)}"
        raise ModelError(message)
    unknown = next(
        (t for t, kind in zip(vocabulary.tokens, vocabulary.token_types, strict=False) if kind == _UNKNOWN), None
    )
    model = models.BPE(
        vocab=ids, merges=_merges_by_score(ids, vocabulary.scores), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    encoder = Tokenizer(model)
    prefix = [normalizers.Prepend(_SPACE_MARK)] if vocabulary.add_space_prefix else []
    encoder.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", _SPACE_MARK)])
    strip = [decoders.Strip(" ", 1, 0)] if vocabulary.add_space_prefix else []
    encoder.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return encoder


def _merges_by_score(ids: dict[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Derive merges: every way to join two tokens into a third, the best-scored result first."""
    joins = [
        (-scores[whole], ids[token[:cut]], ids[token[cut:]], token[:cut], token[cut:])
        for token, whole in ids.items()
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    return [(left, right) for *_, left, right in sorted(joins)]


def _add_special_tokens(encoder: "tokenizers.Tokenizer", vocabulary: GGUFVocabulary) -> SpecialTokens:
    from tokenizers import AddedToken

    kinds = vocabulary.token_types
    marked = [
        (i, t) for i, t in enumerate(vocabulary.tokens) if i < len(kinds) and kinds[i] in (_CONTROL, _USER_DEFINED)
    ]
    control = {i for i, _ in marked if kinds[i] == _CONTROL}
    encoder.add_tokens([AddedToken(t, special=i in control, normalized=False) for i, t in marked])
    return SpecialTokens(
        eos_token_ids=frozenset(vocabulary.eos_token_ids),
        bos_token_id=vocabulary.bos_token_id,
        add_bos=vocabulary.add_bos,
        control_ids=frozenset(control),
        chat_template=vocabulary.chat_template,
    )
