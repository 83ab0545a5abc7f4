"""Real traces of the tiny model, recorded once for all lab tests."""

import pytest

from tests.lab.tiny_runs import TINY_CONFIG, run_workload


@pytest.fixture(scope="session")
def tiny_llm():
    """One engine that every test may attach to; each leaves it idle and without a probe."""
    from engine.llm import LLM

    with LLM("tiny", TINY_CONFIG) as llm:
        yield llm


@pytest.fixture(scope="session")
def full_trace():
    """The workload recorded with buffer contents, from step and request 0 of an engine of its own."""
    from engine.llm import LLM

    with LLM("tiny", TINY_CONFIG) as llm:
        return run_workload(llm, "full").trace


@pytest.fixture(scope="session")
def light_trace(tiny_llm):
    """The workload recorded from host records only."""
    return run_workload(tiny_llm, "light").trace
