"""The committed trace of a real GPU: what the walkthroughs say about it is in it, and it can be recorded again."""

from lab.trace import Trace
from walkthroughs.record_gpu import OUT, record


def _paths(trace):
    return [(step.graph.path, step.path.key, step.graph.steady) for step in trace.steps]


def test_the_committed_trace_comes_from_real_graphs_and_holds_full_and_steady_replays():
    trace = Trace.load(OUT)
    assert trace.header.device.graph_backend == "cuda"
    assert not trace.header.device.simulated
    replays = [steady for path, _, steady in _paths(trace) if path == "replay"]
    assert "" in replays
    assert "NOTHING_RECORDED" in replays
    assert all(step.graph.flight.device_us is not None for step in trace.steps)
    assert trace.header.warmup.captures[0].num_bytes > 0, "the largest bucket fills the pool, the others share it"


def test_the_same_requests_take_the_same_paths_here():
    """What decides is the same code on both devices."""
    assert _paths(record("cpu")) == _paths(Trace.load(OUT))
