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


def costs(kind="decode", **price):
    return bucket_costs(DEFAULT, GraphPrice(**price), kind)


@given(HISTOGRAMS, st.integers(1, 40))
def test_no_default_beats_the_optimum_of_its_own_length(histogram, most):
    advice = advise(sizes_of(histogram), costs(), most=most, kind="decode")
    assert len(advice.optimal.sizes) <= most
    for default in advice.defaults:
        assert default.optimum.cost <= default.priced.cost + 1e-6
        assert len(default.optimum.sizes) <= len(default.priced.sizes)
        if len(default.priced.sizes) <= most:
            assert advice.optimal.cost <= default.priced.cost + 1e-6


@given(HISTOGRAMS)
def test_every_list_covers_the_largest_legal_batch(histogram):
    advice = advise(sizes_of(histogram), costs(), most=8, kind="decode")
    lists = [advice.optimal, *(d.priced for d in advice.defaults), *(d.optimum for d in advice.defaults)]
    assert {found.sizes[-1] for found in lists} == {256}


def test_a_list_as_it_is_shipped_pays_for_the_steps_that_fall_off():
    advice = advise(sizes_of({20: 100, 200: 7}), costs(), most=8, kind="decode")
    shipped = {default.name: default.as_shipped for default in advice.defaults}
    assert shipped["tensorrt_llm"].sizes[-1] == 128
    assert shipped["tensorrt_llm"].fall_off == 7 * (costs().eager_us(200) - costs().step_us(200))
    assert shipped["sglang"].fall_off == 0.0


def test_dear_graphs_make_the_list_short_and_cheap_ones_long():
    histogram = dict.fromkeys(range(1, 33), 1000)
    dear = advise(sizes_of(histogram), costs(capture_ms=1e5), most=32, kind="decode").optimal
    cheap = advise(sizes_of(histogram), costs(capture_ms=0, mib=0), most=33, kind="decode").optimal
    assert len(dear.sizes) < len(cheap.sizes) == 33
    assert cheap.padding == 0.0


def test_the_report_has_the_promised_keys_and_costs_that_add_up():
    histogram = {3: 10, 7: 5}
    advice = advise(sizes_of(histogram, max_batch_size=16), costs(), most=2, kind="decode")
    report = advice.report()
    assert list(report) == ["optimal", "defaults", "histogram", "cost_model"]
    assert report["histogram"] == {"3": 10, "7": 5}
    assert set(report["defaults"]) == {"tensorrt_llm", "vllm", "sglang", "powers_of_two"}
    for found in (report["optimal"], *report["defaults"].values()):
        priced = list_cost(histogram, found["sizes"], advice.costs)
        assert found["cost"] == pytest.approx(priced.cost, abs=1e-3)
    assert set(report["defaults"]["vllm"]) == {"sizes", "cost", "optimal_at_same_count", "as_shipped"}
    assert report["cost_model"]["capture_us"] == 300_000.0


def test_prefill_buckets_are_advised_from_rows_with_the_prefill_line():
    sizes = sizes_of({1: 1}, prefill={300: 5, 1500: 2})
    advice = advise(sizes, costs("prefill", capture_ms=1, mib=0), most=4, kind="prefill")
    assert advice.optimal.sizes == (300, 1500, 2048)
    assert advice.costs.fixed == DEFAULT.prefill.fixed
    assert {default.name for default in advice.defaults} == {"vllm", "sglang", "powers_of_two"}
    vllm = next(default for default in advice.defaults if default.name == "vllm")
    assert vllm.as_shipped.sizes[-1] == 512
    assert vllm.as_shipped.fall_off > 0


def test_a_trace_without_such_steps_is_refused():
    with pytest.raises(TraceError, match="made up: there are no steps with prompts"):
        advise(sizes_of({1: 1}), costs("prefill"), most=4, kind="prefill")


def test_the_table_says_what_each_list_costs_above_the_optimum():
    advice = advise(sizes_of({20: 100, 200: 7}), costs(), most=3, kind="decode")
    rows = {row["list"]: row for row in advice.rows()}
    assert rows["optimum, at most 3"]["above_optimum_ms"] == 0.0
    assert "tensorrt_llm, as shipped" in rows
    assert rows["powers_of_two"]["padding_ms"] > 0
