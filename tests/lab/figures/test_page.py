import re

from lab.figures.charts import bars
from lab.figures.page import Section, html_table, page

ROWS = [{"path": "graph", "waste_pct": 1.5}, {"path": "<eager>", "waste_pct": None}]


def figure():
    return bars("T", ["a"], {"steps": [1]}, axis="x", unit="steps")


def test_a_table_has_a_caption_headings_with_a_scope_and_escaped_cells():
    table = html_table(ROWS, "all & every step")
    assert "<caption>all &amp; every step</caption>" in table
    assert '<th scope="col">waste pct</th>' in table
    words = html_table([{"step": "a", "why": "two words"}, {"step": "b", "why": None}], "c")
    assert '<th scope="col" class="words">why</th>' in words
    assert '<td>b</td><td class="words">-</td>' in words
    assert "<td>&lt;eager&gt;</td><td>-</td>" in table


def test_a_table_without_rows_says_so():
    assert html_table([], "steps on a graph") == "<p>steps on a graph: none.</p>"


def test_every_figure_stands_beside_a_table_and_plotlys_script_is_there_once():
    text = page("Title", ["A <lead>."], [Section("One", figure(), ROWS, "one"), Section("Two", figure(), ROWS, "two")])
    assert text.count("Plotly.newPlot(") == 2
    assert len(re.findall(r"\* plotly\.js v", text)) == 1
    assert text.count("<table>") == 2
    assert "<p>A &lt;lead&gt;.</p>" in text
    assert text.count('role="img"') == 2


def test_a_page_loads_nothing_from_anywhere():
    text = page("Title", [], [Section("One", figure(), ROWS, "one")])
    assert not re.findall(r"<(?:script|img|link|iframe)[^>]+(?:src|href)\s*=", text)


def test_a_section_may_be_a_table_alone():
    text = page("Title", [], [Section("Latencies", None, ROWS, "all")])
    assert "Plotly" not in text
    assert "<h2>Latencies</h2>" in text
