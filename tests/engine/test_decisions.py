"""The decisions of a step can be swapped by constructor, one at a time."""

import dataclasses

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams
from engine.cuda_graphs.select import select_graph
from engine.decisions import Decisions
from engine.inputs.pack import pack
from engine.inputs.padding import num_padding_requests
from engine.inputs.steady import SteadyRefusal


def test_the_defaults_are_the_engines_own_functions():
    assert Decisions() == Decisions(num_padding_requests=num_padding_requests, select_graph=select_graph, pack=pack)


def test_the_record_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Decisions().pack = None


def test_a_swapped_decision_is_the_one_that_runs():
    calls = []

    def counting_pack(batch, block_table):
        calls.append(batch.num_tokens)
        return pack(batch, block_table)

    config = EngineConfig(device="cpu", max_seq_len=64, cuda_graph=CudaGraphConfig(enabled=False))
    with LLM("tiny", config, decisions=Decisions(pack=counting_pack)) as llm:
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4))
    assert calls == [1, 3, 1], "warm-up, the prompt, the first decode step; later ones are derived"


def test_a_steady_path_that_never_may_packs_every_step():
    calls = []

    def counting_pack(batch, block_table):
        calls.append(batch.num_tokens)
        return pack(batch, block_table)

    decisions = Decisions(pack=counting_pack, why_not_use_steady=lambda _record, _facts: SteadyRefusal.NOTHING_RECORDED)
    config = EngineConfig(device="cpu", max_seq_len=64, cuda_graph=CudaGraphConfig(enabled=False))
    with LLM("tiny", config, decisions=decisions) as llm:
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=4))
    assert calls == [1, 3, 1, 1, 1]
