import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import TraceError
from lab.advice.advise import GraphPrice, advise, bucket_costs
from lab.advice.histogram import StepSizes
from lab.advice.optimum import list_cost
from lab.replay.cost_model import DEFAULT

HISTOGRAMS = st.dictionaries(st.integers(1, 200), st.integers(1, 5000), min_size=1, max_size=40)


def sizes_of(decode, *, max_batch_size=256, prefill=None):
    return StepSizes(decode, prefill or {}, max_batch_size, 2048, "made up")


def advised(sizes, *, most, kind="decode", **price):
    return advise(sizes, DEFAULT, GraphPrice(**price), most=most, kind=kind)


@given(HISTOGRAMS, st.integers(1, 40))
def test_no_default_beats_the_optimum_of_its_own_length(histogram, most):
    advice = advised(sizes_of(histogram), most=most)
    assert len(advice.optimal.sizes) <= most
    for default in advice.defaults:
        assert default.optimum.cost <= default.priced.cost + 1e-6
        assert len(default.optimum.sizes) <= len(default.priced.sizes)
        if len(default.priced.sizes) <= most:
            assert advice.optimal.cost <= default.priced.cost + 1e-6


@given(HISTOGRAMS)
def test_every_list_covers_the_largest_legal_batch(histogram):
    advice = advised(sizes_of(histogram), most=8)
    lists = [advice.optimal, *(d.priced for d in advice.defaults), *(d.optimum for d in advice.defaults)]
    assert {found.sizes[-1] for found in lists} == {256}


def test_a_list_as_it_is_shipped_pays_for_the_steps_that_fall_off():
    advice = advised(sizes_of({20: 100, 200: 7}), most=8)
    shipped = {default.name: default.as_shipped for default in advice.defaults}
    assert shipped["tensorrt_llm"].sizes[-1] == 128
    assert shipped["tensorrt_llm"].fall_off == 7 * (advice.costs.eager_us(200) - advice.costs.step_us(200))
    assert shipped["sglang"].fall_off == 0.0


def test_dear_graphs_make_the_list_short_and_cheap_ones_long():
    histogram = dict.fromkeys(range(1, 33), 1000)
    dear = advised(sizes_of(histogram), most=32, capture_ms=1e7).optimal
    cheap = advised(sizes_of(histogram), most=33, capture_ms=0, mib=0).optimal
    assert len(dear.sizes) < len(cheap.sizes) == 33
    assert cheap.padding == 0.0


def test_the_report_has_the_promised_keys_and_costs_that_add_up():
    histogram = {3: 10, 7: 5}
    advice = advised(sizes_of(histogram, max_batch_size=16), most=2)
    report = advice.report()
    assert list(report) == ["optimal", "defaults", "histogram", "cost_model"]
    assert report["histogram"] == {"3": 10, "7": 5}
    assert set(report["defaults"]) == {"tensorrt_llm", "vllm", "sglang", "powers_of_two"}
    for found in (report["optimal"], *report["defaults"].values()):
        priced = list_cost(histogram, found["sizes"], advice.costs)
        assert found["cost"] == pytest.approx(priced.cost, abs=1e-3)
    assert set(report["optimal"]) == {"sizes", "cost"}
    for default in report["defaults"].values():
        assert set(default) == {"sizes", "cost", "optimal_at_same_count"}
        assert set(default["optimal_at_same_count"]) == {"sizes", "cost"}
    assert report["cost_model"]["capture_us"] == 300_000.0


def test_prefill_buckets_are_advised_from_rows_with_the_prefill_line():
    sizes = sizes_of({1: 1}, prefill={300: 5, 1500: 2})
    advice = advised(sizes, most=4, kind="prefill")
    assert advice.optimal.sizes == (300, 1500, 2048)
    assert advice.costs.fixed == DEFAULT.prefill.fixed
    assert {default.name for default in advice.defaults} == {"vllm", "sglang", "powers_of_two"}
    vllm = next(default for default in advice.defaults if default.name == "vllm")
    assert vllm.as_shipped.sizes[-1] == 512
    assert vllm.as_shipped.fall_off > 0


def test_a_trace_without_such_steps_is_refused():
    with pytest.raises(TraceError, match="made up: there are no steps with prompts"):
        advised(sizes_of({1: 1}), most=4, kind="prefill")


def test_the_table_says_what_each_list_costs_above_the_optimum():
    advice = advised(sizes_of({20: 100, 200: 7}), most=3)
    rows = {row["list"]: row for row in advice.rows()}
    assert rows["optimum, at most 3"]["above_optimum_ms"] == 0.0
    assert "tensorrt_llm, as shipped" in rows
    assert rows["powers_of_two"]["padding_ms"] > 0


def test_a_histogram_pays_for_the_part_of_a_start_that_its_own_steps_are():
    histogram = {10: 1000}
    busy_us = 1000 * (DEFAULT.graph.fixed + 10 * DEFAULT.graph.per_row)
    day, hour = (bucket_costs(DEFAULT, GraphPrice(hours=hours), "decode", histogram) for hours in (24, 1))
    assert day.starts == pytest.approx(busy_us / (24 * 3.6e9))
    assert hour.graph_us(10) == pytest.approx(24 * day.graph_us(10))
    twice = bucket_costs(DEFAULT, GraphPrice(), "decode", {10: 2000})
    assert twice.graph_us(10) == pytest.approx(2 * day.graph_us(10)), "twice the steps, twice the part of a start"
