"""The table of scenarios on the tape; ``tests/gpu/test_graph_scenarios.py`` runs the same rows on CUDA."""

import pytest

from tests.engine.cuda_graphs.scenarios import SCENARIOS
from tests.engine.cuda_graphs.verdicts import judge_in_child, severity


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_tape_gives_the_verdict_of_the_table(name):
    assert judge_in_child(name, "cpu") == SCENARIOS[name].tape


def test_the_tape_is_never_laxer_than_cuda():
    assert not [name for name, row in SCENARIOS.items() if severity(row.tape) < severity(row.cuda)]


def test_every_difference_is_explained_and_nothing_else_is():
    assert all((row.tape != row.cuda) == bool(row.difference) for row in SCENARIOS.values())


def test_every_kind_of_verdict_occurs():
    assert {row.tape.split("(")[0] for row in SCENARIOS.values()} == {"ok", "wrong", "refused", "raised"}
