"""The lists that frameworks come with, against the counts that their rules are known to give."""

import pytest

from engine.cuda_graphs.buckets import default_batch_sizes
from lab.advice.default_lists import DECODE, PREFILL, completed, sglang_decode, sglang_prefill, tensorrt_llm, vllm


@pytest.mark.parametrize(("largest", "count"), [(16, 5), (128, 19), (512, 51), (1024, 51)])
def test_vllm_has_as_many_sizes_as_its_rule_gives_for_a_ceiling(largest, count):
    assert len(vllm(largest)) == count


@pytest.mark.parametrize(("largest", "count"), [(160, 24), (256, 36), (512, 52)])
def test_sglang_has_as_many_decode_sizes_as_its_rule_gives(largest, count):
    assert len(sglang_decode(largest)) == count


@pytest.mark.parametrize(("largest", "count"), [(2048, 42), (4096, 50), (8192, 58)])
def test_sglang_has_as_many_prefill_sizes_as_its_rule_gives(largest, count):
    assert len(sglang_prefill(largest)) == count


def test_tensorrt_llm_stops_at_128_unless_told_and_the_engines_own_list_goes_on():
    assert tensorrt_llm(256)[-1] == 128
    assert tensorrt_llm(128) == default_batch_sizes(128, padding=True)


@pytest.mark.parametrize("rules", [DECODE, PREFILL])
@pytest.mark.parametrize("largest", [1, 7, 64, 300, 8192])
def test_every_list_ascends_stays_below_the_largest_and_can_be_completed(rules, largest):
    for rule in rules.values():
        sizes = rule(largest)
        assert list(sizes) == sorted(set(sizes))
        assert all(size <= largest for size in sizes)
        assert completed(sizes, largest)[-1] == largest
        assert completed(completed(sizes, largest), largest) == completed(sizes, largest)
