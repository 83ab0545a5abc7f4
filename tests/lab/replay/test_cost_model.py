import pytest

from engine.errors import ConfigError
from lab.replay.cost_model import DEFAULT, CostModel, PathCost, parse_costs


def test_a_step_costs_a_fixed_part_its_rows_and_its_kv_tokens():
    assert PathCost(100.0, 2.0, 0.5).microseconds(rows=8, kv_tokens=40) == 100 + 16 + 20


def test_the_model_is_stated_line_by_line():
    model = CostModel(PathCost(1, 2, 3), PathCost(4, 5, 6), PathCost(7, 8, 0.25), "a guess")
    assert model.sentences() == (
        "cost model, microseconds of a step (a guess):",
        "  graph: 1 + 2 * rows + 3 * KV tokens",
        "  prefill: 4 + 5 * rows + 6 * KV tokens",
        "  eager: 7 + 8 * rows + 0.25 * KV tokens",
    )


def test_a_graph_saves_what_it_is_for_in_the_default():
    for rows in (1, 64, 256):
        assert DEFAULT.graph.microseconds(rows, 192 * rows) < DEFAULT.eager.microseconds(rows, 192 * rows)


def test_terms_are_replaced_by_name_and_the_origin_says_so():
    model = parse_costs(["graph.fixed=600", "eager.per_row = 1.5"])
    assert model.graph == PathCost(600.0, DEFAULT.graph.per_row, DEFAULT.graph.per_kv_token)
    assert model.eager == PathCost(DEFAULT.eager.fixed, 1.5, DEFAULT.eager.per_kv_token)
    assert model.origin.startswith("given; the rest: 8B")
    assert parse_costs([]) is DEFAULT


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("graph=5", r"a cost must be NAME=MICROSECONDS with a name of graph.fixed, .*, got 'graph=5'"),
        ("cpu.fixed=5", r"got 'cpu.fixed=5'"),
        ("graph.fixed=x", r"graph.fixed must be a number of microseconds, got 'x'; write for example graph.fixed=100"),
        ("graph.fixed", r"graph.fixed must be a number of microseconds, got ''"),
        ("eager.per_row=-1", r"eager.per_row must be a finite number in \[0, 1e\+09\], got -1.0"),
        ("eager.per_row=inf", r"eager.per_row must be a number of microseconds, got 'inf'"),
    ],
)
def test_a_wrong_cost_is_refused_with_the_names(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_costs([text])
