"""Workloads of adapters."""

from lab.exercises.workload import MOST_REQUESTS, decode_workload


def test_a_workload_holds_its_requests_in_one_step():
    workload = decode_workload(5, sizes=(4, 8))
    assert len(workload.prompts) == 5
    assert workload.config.scheduler.max_batch_size == 8
    assert workload.config.cuda_graph.batch_sizes == (4, 8)


def test_a_huge_case_becomes_a_small_workload():
    assert len(decode_workload(1000).prompts) == MOST_REQUESTS
    assert len(decode_workload(0).prompts) == 1
