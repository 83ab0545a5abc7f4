"""The table of scenarios and faults on CUDA graphs; ``tests/graph_table.py`` prints it."""

import pytest

from lab.faults.catalogue import FAULTS
from lab.faults.children import Task, run_in_children
from lab.faults.examine import GUARDS
from tests.engine.cuda_graphs.scenarios import SCENARIOS
from tests.engine.cuda_graphs.verdicts import judge_all
from tests.lab.faults.expected import VERDICTS

pytestmark = pytest.mark.gpu
TASKS = [Task(name, guards) for name in FAULTS for guards in GUARDS]


@pytest.fixture(scope="module")
def verdicts():
    """Run every scenario, several at once: starting CUDA is most of the time of each."""
    return judge_all(SCENARIOS, "cuda", at_once=8)


@pytest.mark.parametrize("name", SCENARIOS)
def test_cuda_gives_the_verdict_of_the_table(verdicts, name):
    assert verdicts[name] == SCENARIOS[name].cuda


@pytest.fixture(scope="module")
def outcomes():
    """Run every fault, several at once."""
    return dict(run_in_children(TASKS, "cuda"))


@pytest.mark.parametrize("task", TASKS, ids=[f"{task.name}-{task.guards}" for task in TASKS])
def test_a_fault_does_the_same_on_cuda(outcomes, task):
    outcome = outcomes[task]
    assert outcome.verdict == VERDICTS[task.name].verdict(task.guards, "cuda"), outcome
    assert outcome.detected
