"""Tokenizers built from GGUF vocabularies, against the library's own and against SentencePiece's rule by hand."""

import dataclasses
import functools
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

from engine.errors import ModelError
from engine.models.loading.tokenizer import BPETokenizer, GGUFVocabulary, SavedTokenizer, tokenizer_from_gguf
from engine.models.tokenizer import SpecialTokens
from tests.engine.models.model_files import CORPUS, small_tokenizer

PIECES = ["\u2581", "t", "h", "e", "c", "a", "\u2581t", "he", "\u2581the", "ca", "\u2581ca", "at", "cat", "ea", "tea"]
TEXT = st.text(st.sampled_from("thecat 1é🙂\n"), max_size=30)


def byte_level_vocabulary(pre: str) -> tuple[Tokenizer, GGUFVocabulary]:
    tokenizer = small_tokenizer()
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokenizer, GGUFVocabulary(
        model="gpt2",
        pre=pre,
        tokens=tuple(tokens),
        token_types=(3, 4, *([1] * (len(tokens) - 2))),
        merges=tuple(" ".join(merge) for merge in model["merges"]),
        scores=(),
        bos_token_id=0,
        eos_token_ids=(1,),
        add_bos=False,
        add_space_prefix=False,
        chat_template="T",
    )


def sentencepiece_vocabulary(**changes) -> GGUFVocabulary:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    vocabulary = GGUFVocabulary(
        model="llama",
        pre="",
        tokens=tuple(tokens),
        token_types=(2, 3, 3, *([6] * 256), *([1] * len(PIECES))),
        merges=(),
        scores=tuple([0.0] * 259 + [-float(i * 7 % len(PIECES)) for i in range(len(PIECES))]),
        bos_token_id=1,
        eos_token_ids=(2,),
        add_bos=True,
        add_space_prefix=True,
        chat_template=None,
    )
    return dataclasses.replace(vocabulary, **changes)


@functools.cache
def byte_level_pair() -> tuple[Tokenizer, BPETokenizer]:
    reference, vocabulary = byte_level_vocabulary("gpt-2")
    return reference, BPETokenizer(tokenizer_from_gguf(vocabulary), len(vocabulary.tokens))


@functools.cache
def sentencepiece_pair() -> tuple[GGUFVocabulary, BPETokenizer]:
    vocabulary = sentencepiece_vocabulary()
    return vocabulary, BPETokenizer(tokenizer_from_gguf(vocabulary), len(vocabulary.tokens))


def sentencepiece_by_hand(vocabulary: GGUFVocabulary, text: str) -> list[int]:
    """Join the best-scored neighbours until none are left, then spell unknown characters in bytes."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    pieces = list(("\u2581" + text).replace(" ", "\u2581")) if text else []
    while True:
        joined = [
            (vocabulary.scores[ids[a + b]], -i) for i, (a, b) in enumerate(itertools.pairwise(pieces)) if a + b in ids
        ]
        if not joined:
            break
        at = -max(joined)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    spelled = [[piece] if piece in ids else [f"<0x{b:02X}>" for b in piece.encode()] for piece in pieces]
    return [ids[token] for tokens in spelled for token in tokens]


@pytest.mark.parametrize(
    ("pre", "steps"),
    [
        ("gpt-2", []),
        ("smollm", [pre_tokenizers.Digits(individual_digits=True)]),
    ],
)
def test_byte_level_tokenizers_cut_as_the_library_s_own(pre: str, steps: list):
    reference, vocabulary = byte_level_vocabulary(pre)
    reference.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    ours = BPETokenizer(tokenizer_from_gguf(vocabulary), len(vocabulary.tokens))
    for text in [*CORPUS, "in 1984 we're 23", "  two  spaces\n\n", "<|bos|>x<|eos|>", "日本語"]:
        ids = ours.encode(text)
        assert ids == reference.encode(text).ids
        assert ours.decode(ids) == text


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("smollm", ["in", " ", "1", "9", "8", " we", "'re"]),
        ("gpt-2", ["in", " 198", " we", "'re"]),
        ("llama-bpe", ["in", " ", "198", " we", "'re"]),
        ("qwen2", ["in", " ", "1", "9", "8", " we", "'re"]),
    ],
)
def test_each_pre_tokenizer_cuts_words_its_own_way(pre: str, words: list[str]):
    saved = tokenizer_from_gguf(byte_level_vocabulary(pre)[1])
    cut = Tokenizer.from_str(saved.definition).pre_tokenizer.pre_tokenize_str("in 198 we're")
    assert [word.replace("Ġ", " ") for word, _ in cut] == words


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_pushed_ids_give_the_text_that_the_library_decodes(text: str):
    reference, ours = byte_level_pair()
    ids = ours.encode(text)
    detokenizer = ours.detokenizer()
    pushed = "".join([detokenizer.push(i) for i in ids]) + detokenizer.finish()
    assert pushed == ours.decode(ids) == reference.decode(ids, skip_special_tokens=False) == text


@settings(deadline=None)
@given(TEXT)
def test_sentencepiece_ids_equal_those_made_by_hand(text: str):
    vocabulary, ours = sentencepiece_pair()
    ids = ours.encode_plain(text)
    assert ids == sentencepiece_by_hand(vocabulary, text)
    assert ours.decode(ids) == text
    assert ours.encode(text) == [1, *ids]


def test_special_tokens_of_the_file_are_kept():
    special = tokenizer_from_gguf(byte_level_vocabulary("smollm")[1]).special
    assert special == SpecialTokens(
        eos_token_ids=frozenset({1}), bos_token_id=0, control_ids=frozenset({0}), chat_template="T"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"merges": ("a nothing",)}, "the file's vocabulary makes no tokenizer: .*nothing"),
        ({"model": "rwkv"}, "tokenizer model 'rwkv' is not supported"),
        (
            {"pre": "tekken"},
            "pre-tokenizer 'tekken' is not supported; supported are 'gpt-2', 'smollm', 'llama-bpe', 'q",
        ),
        ({"merges": ("a b", "ab")}, r"tokenizer.ggml.merges\[1\] must be two texts with a space between, got 'ab'"),
        ({"model": "llama", "scores": ()}, "tokenizer.ggml.scores must hold a number for each token of a 'llama' tok"),
        (
            {"model": "llama", "scores": (0.0,), "tokens": ("x" * 5000,)},
            "tokenizer.ggml.tokens must have at most 4096 characters each, got 'xxx.*[.][.][.]xxx",
        ),
    ],
)
def test_a_vocabulary_that_makes_no_tokenizer_is_named(changes: dict, message: str):
    with pytest.raises(ModelError, match=message):
        tokenizer_from_gguf(dataclasses.replace(byte_level_vocabulary("gpt-2")[1], **changes))


def test_a_definition_at_which_the_library_panics_or_quotes_it_whole_is_a_model_error():
    definition = json.loads(small_tokenizer().to_str())
    definition["model"]["continuing_subword_prefix"] = "x" * 99
    with pytest.raises(ModelError, match=r"^the tokenizer definition cannot be read: "):
        BPETokenizer(SavedTokenizer(json.dumps(definition), SpecialTokens()), 320)
    definition["model"]["continuing_subword_prefix"] = ["x" * 999]
    with pytest.raises(ModelError) as refused:
        BPETokenizer(SavedTokenizer(json.dumps(definition), SpecialTokens()), 320)
    assert len(str(refused.value)) < 300


def test_a_file_that_asks_for_cuts_and_padding_gets_neither():
    tokenizer = small_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=50)
    ids = BPETokenizer(SavedTokenizer(tokenizer.to_str(), SpecialTokens()), 320).encode(
        "The capital of France is Paris."
    )
    assert 3 < len(ids) < 50


def test_more_tokens_than_the_model_knows_are_refused():
    saved = tokenizer_from_gguf(byte_level_vocabulary("gpt-2")[1])
    with pytest.raises(ModelError, match=r"token id 319, but the model's embedding has only 100 rows"):
        BPETokenizer(saved, 100)


def test_a_definition_that_is_none_is_refused():
    with pytest.raises(ModelError, match="the tokenizer definition cannot be read"):
        BPETokenizer(SavedTokenizer("{}", SpecialTokens()), 10)


def test_another_kind_of_decoder_is_named():
    tokenizer = small_tokenizer()
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match=r"ByteLevel or ByteFallback decoders are supported, got \['WordPiece'\]"):
        BPETokenizer(SavedTokenizer(tokenizer.to_str(), SpecialTokens()), 320)


def test_the_word_patterns_are_valid_for_the_library():
    for pre in ("llama-bpe", "qwen2"):
        definition = json.loads(tokenizer_from_gguf(byte_level_vocabulary(pre)[1]).definition)
        pattern = definition["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
        assert pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str("a\n\n b")
