import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelError, RequestError
from engine.models.tiny import tiny_tokenizer
from engine.models.tokenizer import ByteTokenizer, Detokenizer, SpecialTokens

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@settings(deadline=None)
@given(TEXT)
def test_bytes_decode_to_the_text_they_encode(text: str):
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(deadline=None)
@given(st.lists(st.integers(0, 258), max_size=60))
def test_pushed_pieces_join_to_the_decoded_text_at_every_moment(ids: list[int]):
    tokenizer = tiny_tokenizer()
    detokenizer, pieces = tokenizer.detokenizer(), []
    for count, token_id in enumerate(ids, start=1):
        pieces.append(detokenizer.push(token_id))
        assert detokenizer.text == tokenizer.decode(ids[:count])
        detokenizer.check()
    pieces.append(detokenizer.finish())
    assert "".join(pieces) == detokenizer.text == tokenizer.decode(ids)


@settings(deadline=None)
@given(TEXT)
def test_a_character_is_held_back_until_it_is_whole(text: str):
    tokenizer = tiny_tokenizer()
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.push(token_id) for token_id in tokenizer.encode(text)]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


def test_one_leading_space_is_dropped_where_the_model_adds_one():
    detokenizer = Detokenizer([b"", b" the", b" cat"], strip_first_space=True)
    assert [detokenizer.push(i) for i in (0, 1, 2)] == ["", "the", " cat"]
    detokenizer.check()


def test_control_tokens_in_the_text_become_single_ids():
    tokenizer = tiny_tokenizer()
    assert tokenizer.encode("a<|im_end|><|im_end|>b") == [97, 258, 258, 98]
    assert tokenizer.control_ids == {256, 257, 258}
    assert tokenizer.eos_token_ids == {256, 258}


def test_bos_comes_first_only_when_the_file_asks_and_the_text_lacks_it():
    asks = ByteTokenizer(["<s>"], SpecialTokens(bos_token_id=256, add_bos=True))
    silent = ByteTokenizer(["<s>"], SpecialTokens(bos_token_id=256))
    assert asks.encode("a") == [256, 97]
    assert asks.encode("<s>a") == [256, 97]
    assert silent.encode("a") == [97]


def test_tokens_print_without_control_characters():
    tokenizer = tiny_tokenizer()
    assert [tokenizer.token_text(i) for i in (10, 97, 0xE4, 257)] == ["\\n", "a", "<0xE4>", "<|im_start|>"]


@pytest.mark.parametrize("token_id", [-1, 259])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int):
    with pytest.raises(RequestError, match=rf"token id must lie in 0\.\.258, got {token_id}"):
        tiny_tokenizer().decode([token_id])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("ab", "ids must be a list of token ids, got 'ab'"),
        (None, "ids must be a list of token ids, got None"),
        ([1.5], r"token id must lie in 0\.\.258, got 1\.5"),
        ([True], r"token id must lie in 0\.\.258, got True"),
        (["x" * 999], r"token id must lie in 0\.\.258, got 'xxx.*\.\.\.x*'"),
    ],
)
def test_what_is_no_list_of_ids_is_refused(ids, message: str):
    with pytest.raises(RequestError, match=message):
        tiny_tokenizer().decode(ids)


def test_ids_of_numpy_and_torch_are_ids():
    assert tiny_tokenizer().decode(np.array([97, 98])) == tiny_tokenizer().decode(torch.tensor([97, 98])) == "ab"


@pytest.mark.parametrize("text", [None, b"ab", 5])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(RequestError, match="the text must be a string, got "):
        tiny_tokenizer().encode(text)


def test_a_lone_surrogate_is_refused_by_place():
    with pytest.raises(RequestError, match=r"must be valid Unicode, got the lone surrogate '\\ud800' at 2"):
        tiny_tokenizer().encode("ab\ud800")


def test_a_model_without_a_template_says_so():
    with pytest.raises(ModelError, match="this model has no chat template; pass plain text"):
        ByteTokenizer([], SpecialTokens()).apply_chat_template([{"role": "user", "content": "hi"}])
