"""The seam of graphs: outputs are rebuilt whatever holds them."""

import dataclasses
from typing import NamedTuple

import pytest
import torch

from engine.cuda_graphs.graph_backend import GraphBackend, map_tensors


@dataclasses.dataclass(frozen=True)
class Outputs:
    logits: torch.Tensor
    extra: dict[str, list[torch.Tensor]]
    note: str = "kept"


class Pair(NamedTuple):
    first: torch.Tensor
    second: int


def test_tensors_are_replaced_in_every_container_and_nothing_else_is():
    one = torch.ones(1)
    value = Outputs(one, {"a": [one, one]})
    got = map_tensors((value, Pair(one, 7), None, "text"), lambda tensor: tensor + 1)
    assert got[0].logits.item() == 2
    assert [tensor.item() for tensor in got[0].extra["a"]] == [2, 2]
    assert got[0].note == "kept"
    assert (got[1].first.item(), got[1].second, got[2:]) == (2, 7, (None, "text"))
    assert isinstance(got[1], Pair)
    assert value.logits is one


def test_a_class_that_is_a_dataclass_is_no_value_of_it():
    assert map_tensors(Outputs, torch.neg) is Outputs


def test_the_backend_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        GraphBackend()
