"""The stated set of changes: each touches one field, and only where it means something."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SchedulerConfig
from engine.reasons import FallOff
from lab.counterfactuals.changes import CHANGES, StepFacts, variations

STEP = StepFacts(FallOff.ABOVE_LARGEST_BUCKET, num_requests=3, num_rows=12, sample_mode="full", buckets=(1, 2))


def config(**graphs):
    return EngineConfig(
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
        kv_cache=KVCacheConfig(num_blocks=32),
        cuda_graph=CudaGraphConfig(**graphs),
    )


def found(config_, step=STEP):
    return {one.change.name: one for one in variations(config_, step)}


def different_fields(left, right):
    names = []
    for field in dataclasses.fields(left):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if a != b:
            names += different_fields(a, b) if dataclasses.is_dataclass(a) else [field.name]
    return names


@given(
    st.tuples(st.booleans(), st.booleans()),
    st.none() | st.sets(st.integers(1, 4), min_size=1).map(lambda sizes: tuple(sorted(sizes))),
    st.sampled_from([("greedy",), ("full",), ("greedy", "full")]),
    st.sampled_from(list(FallOff)),
    st.integers(1, 4),
)
def test_each_change_is_of_one_field_and_named_with_both_values(flags, sizes, modes, reason, requests):
    enabled, padding = flags
    base = config(enabled=enabled, enable_padding=padding, batch_sizes=sizes, sample_modes=modes)
    step = dataclasses.replace(STEP, reason=reason, num_requests=requests)
    for one in variations(base, step):
        if one.config is None:
            assert one.refusal
            continue
        rule = next(rule for rule in CHANGES if rule.name == one.change.name)
        assert different_fields(base, one.config) == [rule.field]
        assert one.change.field.split(".")[1] == rule.field
        assert one.change.before != one.change.after


def test_a_bucket_and_a_sampler_come_from_the_step():
    changes = found(config(batch_sizes=(1, 2), sample_modes=("greedy",)))
    assert changes["add_bucket"].config.cuda_graph.batch_sizes == (1, 2, 3)
    assert str(changes["add_bucket"].change) == "CudaGraphConfig.batch_sizes: (1, 2) → (1, 2, 3)"
    assert changes["capture_mode"].config.cuda_graph.sample_modes == ("greedy", "full")
    assert changes["raise_max_num_tokens"].config.scheduler.max_num_tokens == 128


def test_what_is_so_already_is_no_change():
    changes = found(config(), dataclasses.replace(STEP, num_requests=2))
    assert not {"graphs_on", "padding_on", "capture_mode", "add_bucket", "compile_off"} & changes.keys()


def test_without_graphs_there_is_no_bucket_to_add():
    changes = found(config(enabled=False))
    assert "graphs_on" in changes
    assert "add_bucket" not in changes


@pytest.mark.parametrize("reason", list(FallOff))
def test_the_changes_that_the_reason_reads_come_first(reason):
    step = dataclasses.replace(STEP, reason=reason)
    base = config(enabled=False, enable_padding=False, sample_modes=("greedy",))
    direct = [
        reason in rule.cures for rule in CHANGES for one in variations(base, step) if one.change.name == rule.name
    ]
    order = [
        reason in next(rule for rule in CHANGES if rule.name == one.change.name).cures for one in variations(base, step)
    ]
    assert order == sorted(direct, reverse=True)


def test_a_value_that_the_configuration_refuses_is_said():
    narrow = EngineConfig(scheduler=SchedulerConfig(max_batch_size=8, max_num_tokens=8))
    chunking = found(narrow)["chunking"]
    assert chunking.config is None
    assert "chunking needs SchedulerConfig.max_num_tokens" in chunking.refusal
