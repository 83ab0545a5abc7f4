"""The table of scenarios on CUDA graphs."""

import pytest

from tests.engine.cuda_graphs.scenarios import SCENARIOS
from tests.engine.cuda_graphs.verdicts import judge_in_child

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", SCENARIOS)
def test_cuda_gives_the_verdict_of_the_table(name):
    assert judge_in_child(name, "cuda") == SCENARIOS[name].cuda
