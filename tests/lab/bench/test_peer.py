import dataclasses
import sys

import pytest

from engine import LLM, EngineConfig, SamplingParams
from engine.device import resolve_device
from engine.errors import ConfigError
from engine.models.config import RopeConfig, RopeScalingKind
from engine.models.tiny import TINY_CONFIG
from lab.bench import shapes
from lab.bench.decode import prompt_ids
from lab.bench.peer import StaticCachePeer
from lab.bench.shapes import random_model, random_weights

CPU = resolve_device("cpu", "float32")
PROMPTS = prompt_ids(2, 6, 256)
STRETCHED = dataclasses.replace(
    TINY_CONFIG,
    rope=RopeConfig(theta=500.0, kind=RopeScalingKind.LLAMA3, factor=8.0, original_max_position=32),
)


@pytest.fixture(scope="module")
def weights():
    return random_weights(TINY_CONFIG, CPU)


def test_the_peer_reads_the_engines_own_memory(weights):
    with StaticCachePeer(TINY_CONFIG, weights) as peer:
        layer = peer._model.model.layers[0]
        assert layer.self_attn.q_proj.weight.data_ptr() == weights["layers.0.qkv.weight"].data_ptr()
        assert peer._model.lm_head.weight.data_ptr() == weights["lm_head.weight"].data_ptr()


@pytest.mark.parametrize("config", [TINY_CONFIG, STRETCHED], ids=["plain", "llama3 rope"])
def test_the_engines_tokens_are_the_peers_choice_and_others_are_not(config, weights, monkeypatch):
    monkeypatch.setitem(shapes.SHAPES, "tiny", config)
    loaded = random_model("tiny", weights, CPU, max_seq_len=64)
    with LLM(loaded, EngineConfig(device="cpu", max_seq_len=64)) as llm:
        outputs = llm.generate(PROMPTS, SamplingParams(max_tokens=40, ignore_eos=True))
    tokens = [list(output.token_ids) for output in outputs]
    with StaticCachePeer(config, weights) as peer:
        assert peer.shortfall(PROMPTS[0], tokens[0]) < 0.01
        wrong = [*tokens[0][:20], (tokens[0][20] + 1) % 256, *tokens[0][21:]]
        assert peer.shortfall(PROMPTS[0], wrong) > 0.5


def test_generate_gives_the_peers_own_choice_at_a_rate(weights):
    with StaticCachePeer(TINY_CONFIG, weights) as peer:
        rates, tokens = peer.generate_rates(PROMPTS, 6, rounds=1)
        assert min(rates.decode, rates.whole) > 0
        assert [len(row) for row in tokens] == [6, 6]
        assert peer.shortfall(PROMPTS[1], tokens[1]) < 0.01


def test_a_peer_that_cannot_run_is_an_error_with_the_fix(weights, monkeypatch):
    def refuse(*_args, **_kwargs):
        message = "Failed to find C compiler\nmore"
        raise RuntimeError(message)

    with StaticCachePeer(TINY_CONFIG, weights) as peer:
        monkeypatch.setattr(peer._model, "generate", refuse)
        with pytest.raises(ConfigError, match=r"it raised RuntimeError: Failed to find C compiler; .*gcc on the PATH"):
            peer.generate_rates(PROMPTS, 4, rounds=1)


def test_without_transformers_there_is_no_peer(weights, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="needs the package transformers"):
        StaticCachePeer(TINY_CONFIG, weights)
