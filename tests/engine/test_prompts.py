import numpy as np
import pytest
import torch

from engine.config import SamplingParams
from engine.errors import RequestError
from engine.prompts import listed_ids, pair

PARAMS = SamplingParams()


class Odd:
    def tolist(self):
        raise RuntimeError

    def __repr__(self):
        return "Odd()"


@pytest.mark.parametrize(
    "prompt", [[1, 2], (1, 2), range(1, 3), np.array([1, 2]), torch.tensor([1, 2]), torch.tensor([[1], [2]])]
)
def test_any_sequence_and_array_gives_its_items(prompt):
    assert len(listed_ids(prompt)) == 2


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (None, "got None"),
        (5, "got 5"),
        (b"ab", "got b'ab'; decode() it first"),
        (bytearray(b"ab"), "got bytearray(b'ab'); decode() it first"),
        ({1: 2}, "got {1: 2}"),
        (np.array(5), "got array(5)"),
        (torch.empty(2, device="meta"), "got tensor(..., device='meta', size=(2,))"),
        (Odd(), "got Odd()"),
    ],
)
def test_what_is_no_prompt_is_refused_with_what_was_got(prompt, text):
    with pytest.raises(RequestError) as refused:
        listed_ids(prompt)
    assert str(refused.value) == f"a prompt must be text or a list of token ids, {text}"


def test_prompts_get_one_params_or_one_each():
    assert pair("a", None) == [("a", None)]
    assert pair(["a", [1]], PARAMS) == [("a", PARAMS), ([1], PARAMS)]
    assert pair(("a", "b"), (PARAMS, PARAMS)) == [("a", PARAMS), ("b", PARAMS)]
    assert pair([], None) == []


@pytest.mark.parametrize(
    ("prompts", "params", "text"),
    [
        (None, None, "prompts must be text or a list of prompts (each a text or a list of token ids), got None"),
        (b"ab", None, "(each a text or a list of token ids), got b'ab'; make it a list"),
        ({"a": 1}, None, "(each a text or a list of token ids), got {'a': 1}; make it a list"),
        (np.array([1, 2]), None, "(each a text or a list of token ids), got array([1, 2]); make it a list"),
        ([1, 2], None, "a list of prompts, got the token ids [1, 2]; write [[...]] for one"),
        (["a"], {"max_tokens": 2}, "params must be a SamplingParams or a list of them, got {'max_tokens': 2}"),
        (["a"], [PARAMS] * 3, "params must be one SamplingParams or as many as there are prompts, 1, got 3"),
        (["a"], 7, "params must be a SamplingParams or a list of them, got 7"),
    ],
)
def test_what_does_not_pair_is_refused(prompts, params, text):
    with pytest.raises(RequestError) as refused:
        pair(prompts, params)
    assert str(refused.value).endswith(text)


def test_a_generator_of_prompts_is_told_to_be_a_list():
    with pytest.raises(RequestError, match=r"got <generator object .*; make it a list"):
        pair((text for text in "ab"), None)
