import pytest
import torch

from lab.bench import clock
from lab.bench.clock import elapsed, median_of, read_bandwidths

CPU = torch.device("cpu")


def test_the_first_burst_does_not_count(monkeypatch):
    ran, times = [], iter([8.0, 2.0, 4.0])
    monkeypatch.setattr(clock, "elapsed", lambda fn, device: (fn(), next(times))[1])
    assert median_of(lambda: ran.append(1), CPU, rounds=3, calls=2) == 2.0
    assert len(ran) == 2 * (1 + 3)


def test_the_median_of_rounds_as_long_as_asked_gives_the_bandwidth_of_each_pass(monkeypatch):
    seen = []

    def timed(fn, device, *, rounds, calls):
        seen.append((rounds, calls))
        return {4: 0.5, 8: 0.25}[calls]

    monkeypatch.setattr(clock, "median_of", timed)
    found = read_bandwidths(CPU, nbytes=1 << 20, rounds=2, seconds=4.0)
    assert found == dict.fromkeys(("sum", "maximum", "product"), (1 << 20) / 0.25)
    assert seen == [(1, 4), (2, 8)] * 3, "one burst tells how many passes fill a round"


def test_time_passes_and_every_pass_reads_real_numbers():
    seen = []
    assert elapsed(lambda: seen.append(torch.ones(8).sum()), CPU) > 0
    assert seen
    assert min(read_bandwidths(CPU, nbytes=1 << 20, rounds=1).values()) > 0


@pytest.mark.gpu
def test_events_time_the_device_and_not_the_launch():
    assert max(read_bandwidths(torch.device("cuda"), nbytes=1 << 30).values()) < 20e12
