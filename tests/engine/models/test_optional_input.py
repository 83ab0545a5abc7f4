import dataclasses

import pytest
import torch

from engine.models.llama import CausalLM
from engine.models.optional_input import OptionalInput


def test_a_declaration_is_a_value():
    one = OptionalInput("nudge", 0.0)
    assert one == OptionalInput("nudge", 0.0, torch.float32)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.neutral = 1.0


def test_the_models_that_we_ship_declare_none():
    assert CausalLM.optional_inputs == ()
