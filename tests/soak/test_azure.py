"""The soak: 5,000 requests of real traffic, ten times as fast as they came, through a pool of 60 % of demand.

*Demand* is the most blocks in use at one time when the pool holds the whole trace. Ten times as fast, the queue grows
to thousands, and the pool is what everybody waits for.

Nobody starves, and the bound is this. Call *serial steps* of request j, with p prompt and g generated tokens, the
steps that it takes when it always gets a row: s(j) = ceil((p + g) / u) + g + 1, u being the chunk unit.
A request waits for at most the sum of s(j) over the older requests j that are live when it arrives.

Proof, for first-come admission. (1) Running requests are the oldest of the live ones: the queue is let in from its
front and stops at the first that does not fit, and a pause takes the youngest that runs and puts it back in its place
of arrival. (2) So the oldest live request runs: if nothing runs, it is let in, because the whole pool holds any one
request that was accepted; and it is never paused, because a pause that would take the oldest finds it alone, with the
whole pool. (3) In every step the oldest gets a row: a generation gets its row before any context (max_num_tokens is at
least max_batch_size), and the oldest context is first to what is left, which is at least one chunk unit (the
configuration demands max_batch_size + u - 1 rows). (4) From then on it loses nothing, so it ends after at most s(j)
steps: its prompt, with all that it may have generated before a pause, in chunks of u or more; one step a token; and one
step in which its last token is on the way (overlap). (5) Until our request is the oldest itself, each step is one of
the s(j) steps of an older one, one after another; then it has a row in every step. A step in which it has a row only
shortens the wait. So its steps without one are at most the sum, and those in a row even more so.
"""

import bisect
import itertools
import sys
from pathlib import Path

import pytest

from lab.replay.outcome import num_usable_blocks
from lab.replay.serve import replay
from lab.replay.serving_trace import read_serving_trace
from lab.replay.settings import ReplaySettings

pytestmark = pytest.mark.soak

TRACE = Path(__file__).parents[2] / "data" / "azure_llm_conv_2023_first_5000.csv"
SHARE = 0.6
CHUNK_UNIT = 16
PAGE = 4096  # bytes
MEMORY_SLACK = 8 << 20

CASES = {
    "guaranteed_no_evict": {"policy": "guaranteed_no_evict"},
    "max_utilization": {"policy": "max_utilization"},
    "max_utilization, overlap, reuse": {"policy": "max_utilization", "overlap": True, "reuse": True},
}


@pytest.fixture(scope="module")
def trace():
    found = ReplaySettings(speed=10.0).timed(read_serving_trace(TRACE))
    assert len(found.requests) == 5000
    return found


def serve(trace, progress=None, **settings):
    settings = ReplaySettings(**settings)
    return replay(trace, settings.config(trace), settings.costs, progress=progress)


@pytest.fixture(scope="module")
def demand(trace):
    found = serve(trace)
    assert found.summary()["finished"] == 5000
    return int((num_usable_blocks(found) - found.columns["free_blocks"]).max()), found.summary()["steps"]


class Memory:
    """Resident bytes as requests finish."""

    def __init__(self):
        self.finished, self.samples = 0, []

    def __call__(self, num_finished):
        self.finished += num_finished
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.samples.append((self.finished, pages * PAGE))

    def most(self, first, last):
        return max(size for at, size in self.samples if first <= at < last)


def serial_steps(request):
    return -(-(request.prompt_len + request.output_len) // CHUNK_UNIT) + request.output_len + 1


def bounds(trace, endings):
    """The bound of each request: the serial steps of all older ones that were live when it arrived."""
    left = {ending.index: trace.requests[ending.index].arrival_us + ending.finished_us for ending in endings}
    found, live, steps = [], [], 0
    for request in trace.requests:
        while live and live[0][0] <= request.arrival_us:
            steps -= live.pop(0)[1]
        found.append(steps)
        bisect.insort(live, (left[request.index], serial_steps(request)))
        steps += serial_steps(request)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_pool_of_sixty_percent_serves_everybody_exactly_and_keeps_nothing(trace, demand, case):
    most_blocks, steps_without_want = demand
    memory, num_blocks = Memory(), int(SHARE * most_blocks)
    found = serve(trace, progress=memory, num_blocks=num_blocks, **CASES[case])
    summary = found.summary()
    sys.stdout.write(f"\n{case}, {num_blocks} of {most_blocks} blocks: {summary}\n")

    assert summary["finished"] == 5000, found.refusals
    assert found.totals.failed == 0, "a request ended with an error, or not at its exact length"
    assert summary["generated_tokens"] == sum(request.output_len for request in trace.requests)
    assert summary["blocks_leaked"] == 0
    assert summary["steps"] > 1.2 * steps_without_want, "the pool was never short: this proves nothing"
    assert (summary["paused"] > 0) == (CASES[case]["policy"] == "max_utilization")
    assert summary["computed_prompt_tokens"] >= summary["prompt_tokens"]

    endings = sorted(found.endings, key=lambda ending: ending.index)
    for ending, bound in zip(endings, bounds(trace, endings), strict=True):
        assert ending.max_wait_steps <= bound, f"request {ending.index}"
    assert max(ending.max_wait_steps for ending in endings) == summary["max_wait_steps"]
    begun = [ending.first_step for ending in endings]
    assert all(older <= younger for older, younger in itertools.pairwise(begun)), "somebody overtook"

    second, last = memory.most(1250, 2500), memory.most(3750, 5001)
    assert last <= second + MEMORY_SLACK, f"resident memory grew by {last - second} bytes between two quarters"
