import pytest

from lab.bench.bucket_costs import line, measure
from lab.replay.cost_model import PATHS, TERMS, parse_costs


def test_a_line_goes_through_its_two_points():
    assert line({1: 110.0, 8: 180.0}) == pytest.approx((100.0, 10.0))


def test_noise_makes_no_row_cheaper_than_nothing():
    assert line({1: 110.0, 8: 90.0}) == (110.0, 0.0)
    assert line({1: 1.0, 8: 80.0})[0] == 0.0


def test_measuring_gives_every_term_that_the_cost_model_knows_and_says_where_it_is_from():
    found = measure("tiny")
    assert set(found.terms) == {f"{path}.{term}" for path in PATHS for term in TERMS}
    model = parse_costs([f"{name}={value}" for name, value in found.terms.items()])
    assert model.graph.fixed + model.graph.per_row > 0
    assert found.capture_ms > 0
    assert found.graph_mib > 0
    assert found.origin.startswith("measured here: tiny on ")
