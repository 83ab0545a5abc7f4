import re

from lab.advice.advise import GraphPrice, advise
from lab.advice.histogram import StepSizes
from lab.advice.page import advice_page, cost_sentences
from lab.replay.cost_model import DEFAULT

SIZES = StepSizes({3: 50, 17: 9}, {300: 5}, 32, 2048, "made up")


def advices():
    return [advise(SIZES, DEFAULT, GraphPrice(), most=4, kind=kind) for kind in ("decode", "prefill")]


def test_the_page_has_histogram_costs_and_lengths_of_both_kinds():
    text = advice_page(advices())
    assert re.findall("<h2>(.*?)</h2>", text) == [
        f"{kind}: {what}"
        for kind in ("Decode", "Prefill")
        for what in ("what came, and which lists there are", "what each list costs", "more buckets, less padding")
    ]
    assert text.count("Plotly.newPlot(") == 6
    assert "<td>3 17 32</td>" in text
    assert "made up" in text


def test_the_cost_model_is_stated():
    first = cost_sentences(advices())[0]
    assert first.startswith(
        "decode: a step on a graph costs 3880 + 10 * bucket us, one that falls off 12000 + 25 * requests us; "
        "a graph costs 300 ms to capture and 4 MiB + 0 a row, at 1 ms a MiB, once a start; these steps are < 0.01 % of "
        "what a start serves (steps: 8B"
    )
    assert first.endswith("graphs: given, not measured)")
