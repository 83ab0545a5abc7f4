import dataclasses

import pytest

from engine.config import CudaGraphConfig, SamplingParams
from lab.faults.fault import FOUR, THREE, Joining, Workload, small_config
from lab.faults.runs import first_difference, run_workload
from tests.lab.faults.expected import healthy_run

WARM = SamplingParams(max_tokens=6, temperature=1.0, repetition_penalty=1.2, seed=3, ignore_eos=True)
SOON = SamplingParams(max_tokens=3, ignore_eos=True)
MIXED = (Joining("Hello there"), Joining("abc", 1, WARM), Joining("xyz!?", 2, SOON), Joining("a" * 30, 4))
ALIKE = (Joining("a long beginning, one"), Joining("a long beginning, two", 2), Joining("a long beginning", 3))
EAGER = dataclasses.replace(small_config(), cuda_graph=CudaGraphConfig(enabled=False))
WORKLOADS = {
    "steady": Workload(FOUR, small_config()),
    "padded": Workload(THREE, small_config()),
    "mixed": Workload(MIXED, small_config(batch_sizes=(1, 2, 4), sample_modes=("greedy", "full"))),
    "interrupted": Workload(MIXED, small_config(), interrupts=(2, 5)),
    "late": Workload(MIXED, small_config(), lag=40),
    "vanilla": Workload(THREE, small_config(attention_backend="vanilla")),
    "eager": Workload(MIXED, EAGER),
    "sharing": Workload(ALIKE, small_config()),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_audit_finds_nothing_in_a_healthy_run_and_changes_nothing(name):
    audited, plain = healthy_run(WORKLOADS[name], True), run_workload(WORKLOADS[name], "cpu", guarded=False)
    assert audited.raised is None
    assert plain.raised is None
    assert len(audited.steps) == len(plain.steps) > 8
    assert first_difference(plain, audited) == first_difference(plain, plain)
