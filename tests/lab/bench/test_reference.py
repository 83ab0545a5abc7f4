import torch

from engine.device import resolve_device
from engine.llm import LLM
from engine.models.registry import load_model
from engine.models.tiny import TINY_CONFIG, tiny_weights
from lab.bench.reference import load_reference, renamed
from tests.lab.tiny_runs import TINY_CONFIG as ENGINE_CONFIG


def test_every_engine_weight_has_its_name_in_transformers():
    reference = load_reference("tiny")
    names = {name for name, _ in renamed(TINY_CONFIG, tiny_weights(0))}
    assert names <= set(reference.state_dict())
    assert not [name for name, parameter in reference.named_parameters() if parameter.is_meta]
    assert not [name for name, buffer in reference.named_buffers() if buffer.is_meta]


def test_another_seed_gives_other_weights():
    first, second = load_reference("tiny"), load_reference("tiny", seed=1)
    assert not torch.equal(first.model.embed_tokens.weight, second.model.embed_tokens.weight)


def test_the_reference_predicts_what_the_engine_predicts():
    ids = [3, 14, 15, 92, 65]
    with torch.no_grad():
        logits = load_reference("tiny")(torch.tensor([ids])).logits[0, -1]
    assert load_model("tiny", resolve_device("cpu", "float32")).config == TINY_CONFIG
    with LLM("tiny", ENGINE_CONFIG) as llm:
        [output] = llm.generate([ids])
    assert output.token_ids[0] == int(logits.argmax())
