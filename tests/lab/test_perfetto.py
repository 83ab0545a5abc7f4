import dataclasses
import itertools
import json

import numpy as np
import pytest

from engine.errors import TraceError
from lab.flight import FlightView
from lab.perfetto import DEVICE, EVENT_LANE, HOST, REQUESTS, STAGE_LANE, TimelineFacts, place, timeline
from lab.snapshot import STAGES
from lab.trace import Trace
from tests.lab.sample_steps import decode_step, sample_trace

FACTS = TimelineFacts("tiny", "cpu", simulated=True)


def _read(path):
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def _lane(events, pid, tid, phase="X"):
    return [event for event in events if (event["pid"], event["tid"], event["ph"]) == (pid, tid, phase)]


def test_a_recorded_run_becomes_a_file_that_a_trace_viewer_reads(light_trace, tmp_path):
    path = light_trace.to_perfetto(tmp_path / "run.json")
    events = _read(path)
    for event in events:
        assert event["ph"] in {"X", "i", "C", "b", "e", "M"}
        assert isinstance(event["pid"], int)
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    begun = [event["id"] for event in events if event["ph"] == "b"]
    assert begun == [event["id"] for event in events if event["ph"] == "e"] == [step.step for step in light_trace.steps]


@pytest.mark.parametrize("pid", [HOST, REQUESTS])
def test_slices_of_one_lane_never_overlap(light_trace, pid):
    events = timeline(light_trace.steps, FACTS, {})["traceEvents"]
    lanes = {event["tid"] for event in events if event["pid"] == pid and event["ph"] == "X"}
    assert lanes
    for tid in lanes:
        slices = sorted((event["ts"], event["ts"] + event["dur"]) for event in _lane(events, pid, tid))
        assert all(end <= begin + 1e-2 for (_, end), (begin, _) in itertools.pairwise(slices))


def test_the_stages_are_as_long_as_they_were_recorded(light_trace):
    events = timeline(light_trace.steps, FACTS, {})["traceEvents"]
    drawn = sum(event["dur"] for event in _lane(events, HOST, STAGE_LANE))
    assert drawn == pytest.approx(sum(float(np.nansum(step.host_us)) for step in light_trace.steps), rel=1e-3)
    assert {event["name"] for event in _lane(events, HOST, STAGE_LANE)} <= set(STAGES)


def test_every_fall_off_is_an_instant_with_its_reason_in_words(light_trace):
    events = timeline(light_trace.steps, FACTS, {})["traceEvents"]
    found = [event for event in _lane(events, HOST, EVENT_LANE, "i") if event["cat"] == "fall-off"]
    eager = [step for step in light_trace.steps if step.graph.path == "eager" and step.schedule.spans]
    assert [event["args"]["step"] for event in found] == [step.step for step in eager]
    assert found[0]["name"] == "fall-off: HAS_CONTEXT_UNPROMOTED"
    assert found[0]["args"]["words"] == "a prompt is being computed"


def test_a_reason_of_another_version_is_said_to_be_unknown():
    step = sample_trace(1).steps[0]
    strange = dataclasses.replace(step, path=dataclasses.replace(step.path, reason="FULL_MOON"))
    events = timeline([strange], FACTS, {})["traceEvents"]
    words = [event["args"]["words"] for event in events if event.get("cat") == "fall-off"]
    assert words == ["FULL_MOON, a reason unknown to this Stepscope"]


def test_what_the_tape_simulates_says_so_on_the_lanes():
    def named(facts):
        events = timeline(sample_trace(3).steps, facts, {})["traceEvents"]
        return [event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]]

    assert "host: tiny on cpu (graphs simulated)" in named(FACTS)
    assert not any("simulated" in name for name in named(TimelineFacts("tiny", "cuda:0", simulated=False)))


def test_each_request_has_a_lane_with_its_tokens(light_trace):
    events = timeline(light_trace.steps, FACTS, {})["traceEvents"]
    for request in light_trace.header.requests:
        lane = request.request_id + 1
        steps = [s for s in light_trace.steps if request.request_id in {span.request_id for span in s.schedule.spans}]
        assert [event["args"]["step"] for event in _lane(events, REQUESTS, lane)] == [step.step for step in steps]
        instants = _lane(events, REQUESTS, lane, "i")
        assert sum(event["name"] == "token" for event in instants) == 6
        assert instants[-1]["name"] == "finished: length"


def test_with_overlap_the_next_step_is_laid_out_before_the_samples_are_read():
    def flown(at, order):
        return dataclasses.replace(
            decode_step(at),
            host_us=np.full(10, 10.0, np.float32),
            graph=dataclasses.replace(decode_step(at).graph, flight=FlightView(order)),
        )

    first = flown(1, (*range(8), 16, 17))
    second = flown(2, (*range(8, 16), 18, 19))
    one, two = place([first, second])
    assert two.begin == 80.0 < one.last == 180.0
    assert one.end == two.begin
    assert [stage for stage, _, _ in one.stages] == list(range(10))
    assert two.last == 200.0


def test_the_device_has_a_lane_only_where_its_events_measured_it():
    plain, step = decode_step(1), decode_step(2)
    flight = dataclasses.replace(step.graph.flight, device_us=(100, 350))
    timed = dataclasses.replace(step, graph=dataclasses.replace(step.graph, flight=flight))
    assert not [event for event in timeline([plain], FACTS, {})["traceEvents"] if event["pid"] == DEVICE]
    lane = _lane(timeline([plain, timed], FACTS, {})["traceEvents"], DEVICE, 1)
    assert [(event["ts"], event["dur"], event["name"]) for event in lane] == [(100, 250, "step 2")]


def test_a_stage_that_did_not_come_is_not_drawn():
    step = dataclasses.replace(decode_step(1), host_us=np.array([5, *[np.nan] * 8, 7], np.float32))
    assert [(stage, us) for stage, _, us in place([step])[0].stages] == [(0, 5.0), (9, 7.0)]
    assert place([dataclasses.replace(step, host_us=np.full(10, np.nan, np.float32))])[0].last == 0.0


def test_no_step_is_no_event_but_the_lanes_names(tmp_path):
    trace = Trace(sample_trace().header, [])
    assert {event["ph"] for event in _read(trace.to_perfetto(tmp_path / "empty.json"))} == {"M"}


def test_a_folder_is_no_file_to_write_a_timeline_to(light_trace, tmp_path):
    with pytest.raises(TraceError, match="it exists and is no regular file"):
        light_trace.to_perfetto(tmp_path)
