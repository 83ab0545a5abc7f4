"""The greedy sample goes to its slot, lowest id first, and touches no other slot."""

import torch

from engine.ops.best_token import best_token_


def test_the_lowest_of_the_best_ids_lands_in_the_rows_slot():
    tokens = torch.full((1, 5, 1), -1, dtype=torch.int32)
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 2.0]])
    best_token_(tokens, logits, torch.tensor([3, 0]))
    assert tokens.view(-1).tolist() == [0, -1, -1, 1, -1]


def test_it_is_known_to_return_nothing_without_computing():
    tokens, logits, slots = (torch.empty(*s, device="meta") for s in ((1, 5, 1), (2, 3), (2,)))
    assert best_token_(tokens, logits, slots) is None
