import dataclasses
import re

from lab.replay.page import replay_page
from lab.replay.serve import replay
from lab.replay.settings import ReplaySettings
from tests.lab.replay.traces import plain


def served():
    trace = plain(*[(30 * at, 40, 12) for at in range(12)])
    settings = ReplaySettings()
    return replay(trace, settings.config(trace), settings.costs)


def test_the_page_shows_each_overview_beside_its_table():
    found = served()
    text = replay_page(found, ("served like this",))
    headings = re.findall("<h2>(.*?)</h2>", text)
    assert headings == [
        "Requests that run and that wait", "Batch sizes", "Decode buckets and their padding",
        "Paths, and why steps fell off", "KV blocks", "Host time of a step", "Latencies",
    ]  # fmt: skip
    assert text.count("Plotly.newPlot(") == 6
    assert text.count("<table>") == 7
    assert "<p>served like this</p>" in text
    assert f"steps {found.summary()['steps']}" in text
    assert "HAS_CONTEXT_UNPROMOTED" in text


def test_an_interrupted_replay_says_so():
    text = replay_page(dataclasses.replace(served(), is_interrupted=True))
    assert "<p>The replay was interrupted: these are its steps so far.</p>" in text
