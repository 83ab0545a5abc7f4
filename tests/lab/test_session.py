import dataclasses
import signal
from types import SimpleNamespace

import pytest

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams
from engine.errors import ClosedError, ConfigError, RequestError
from engine.llm import LLM
from lab.counterfactuals import workload
from lab.session import Planned, Session, attach, plan
from lab.trace import Trace
from tests.lab.tiny_runs import TINY_CONFIG, WORKLOAD

SHORT = SamplingParams(max_tokens=3, ignore_eos=True)


class Bystander:
    def emit(self, stage, step, value):
        raise AssertionError(stage)


def test_requests_join_at_their_steps(full_trace):
    base = full_trace.steps[0].step
    arrivals = [request.arrival_step - base for request in full_trace.header.requests]
    assert arrivals == [step for step, _ in WORKLOAD]
    assert [request.prompt_text for request in full_trace.header.requests] == [prompt for _, prompt in WORKLOAD]


def test_a_request_may_join_with_a_guess_which_is_verified_and_recorded():
    with Session("tiny", prompts=[[5, 6]], config=TINY_CONFIG, params=SHORT) as session:
        session.run()
        text = session.outputs[0].token_ids
    with Session("tiny", prompts=[(0, [5, 6], SHORT, text)], config=TINY_CONFIG) as session:
        trace = session.run()
        assert session.outputs[0].token_ids == text
    assert trace.header.requests[0].draft_tokens == text
    assert [step.schedule.draft_len for step in trace.steps] == [0, 4], "one step for what took two"


def test_a_session_by_name_owns_its_engine_and_saves_a_trace(tmp_path):
    with Session(
        "tiny", prompts=["hi", [1, 2, 3]], params=[SHORT, SamplingParams(max_tokens=2)], config=TINY_CONFIG
    ) as s:
        first = s.step()
        assert first.step == 0
        assert [span.request_id for span in first.schedule.spans] == [0, 1]
        trace = s.run()
        llm = s.llm
    with pytest.raises(Exception, match="closed"):
        llm.step()
    assert s.is_finished
    assert s.step() is None
    assert [len(output.token_ids) for output in s.outputs] == [3, 2]
    header = Trace.load(trace.save(tmp_path / "s.trace.json.gz")).header
    assert header.model.name == "tiny"
    assert header.buckets == (1, 2, 4)
    assert header.device.graph_backend == "tape"
    assert header.device.simulated
    assert len(header.warmup.captures) == 6
    assert header.config["max_seq_len"] == 128
    assert [request.params["max_tokens"] for request in header.requests] == [3, 2]
    assert header.pieces[ord("h")] == "h"


def test_an_idle_session_lets_the_next_request_join_early(tiny_llm):
    with Session(tiny_llm, prompts=[(0, "a"), (50, "b")], params=SamplingParams(max_tokens=1)) as s:
        trace = s.run()
    assert len(trace) == 2
    assert len(s.outputs) == 2


def test_run_stops_at_its_cap(tiny_llm):
    with Session(tiny_llm, prompts=["abc"], params=SHORT) as s:
        assert len(s.run(max_steps=2)) == 2
        assert len(s.run()) == 3


def test_show_in_the_static_profile_leaves_no_widget(tiny_llm, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.publish_display_data", lambda data, **_: shown.append(data))
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel="a kernel"))
    monkeypatch.setenv("LAB_STATIC", "1")
    with Session(tiny_llm, prompts=["abc"], params=SHORT) as s:
        s.run()
        assert s.show(step=1) is None
    assert "image/png" in shown[0]


def test_plan_reads_texts_ids_and_arrivals():
    own = SamplingParams(max_tokens=9)
    prompts = ["text", [1, 2], (7, 8, 9), (4, "late"), (5, (1, 2)), (6, "own", own)]
    assert plan(prompts, SHORT) == [
        Planned(0, "text", SHORT),
        Planned(0, [1, 2], SHORT),
        Planned(0, (7, 8, 9), SHORT),
        Planned(4, "late", SHORT),
        Planned(5, (1, 2), SHORT),
        Planned(6, "own", own),
    ]


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ([], None, "at least one prompt"),
        ("hello", None, r"write \['hello'\]"),
        (["a", "b"], [SHORT], "one for each of 2 prompts, got 1"),
        ([(-1, "a")], None, "an arrival step must be an integer of at least 0, got -1"),
        ([(True, "a")], None, "an arrival step must be an integer of at least 0, got True"),
    ],
)
def test_a_plan_that_does_not_fit_is_one_clear_error(prompts, params, message):
    with pytest.raises(RequestError, match=message):
        plan(prompts, params)


def test_a_bad_prompt_takes_the_recorder_off_again(tiny_llm):
    with pytest.raises(RequestError, match="at least one token"):
        Session(tiny_llm, prompts=[""])
    assert tiny_llm.probe is None


def test_a_config_beside_an_engine_is_refused(tiny_llm):
    with pytest.raises(ConfigError, match="leave config out"):
        Session(tiny_llm, prompts=["a"], config=TINY_CONFIG)


def test_attach_records_what_somebody_else_runs(tiny_llm):
    with attach(tiny_llm) as recorder:
        tiny_llm.generate(["one", "two"], SHORT)
    tiny_llm.generate("three", SHORT)
    assert tiny_llm.probe is None
    assert len(recorder.trace) == 3
    assert [request.prompt_text for request in recorder.trace.header.requests] == ["one", "two"]


def test_attach_is_taken_off_after_an_exception(tiny_llm):
    with pytest.raises(KeyError), attach(tiny_llm):
        raise KeyError
    assert tiny_llm.probe is None


def test_attaching_twice_shares_the_recorder_until_the_outer_block_ends(tiny_llm):
    with attach(tiny_llm) as outer:
        with attach(tiny_llm) as inner:
            assert inner is outer
        assert tiny_llm.probe is outer
    assert tiny_llm.probe is None


def test_another_observer_is_never_pushed_aside(tiny_llm):
    bystander = Bystander()
    tiny_llm.set_probe(bystander)
    try:
        with pytest.raises(ConfigError, match="an engine has one observer"), attach(tiny_llm):
            raise AssertionError
        assert tiny_llm.probe is bystander
    finally:
        tiny_llm.set_probe(None)


def test_another_mode_needs_its_own_block(tiny_llm):
    light, full = attach(tiny_llm, "light"), attach(tiny_llm, "full")
    with light, pytest.raises(ConfigError, match="a recorder in light mode"), full:
        raise AssertionError


def test_closing_the_engine_inside_the_block_is_fine():
    from engine.llm import LLM

    llm = LLM("tiny", TINY_CONFIG)
    with attach(llm):
        llm.close()
    assert llm.has_unfinished is False


def test_a_session_that_cannot_start_leaves_nothing_on_a_shared_engine():
    with LLM("tiny", EngineConfig(device="cpu", max_seq_len=64)) as llm:
        with pytest.raises(RequestError):
            Session(llm, prompts=["ok", [-1]])
        outputs = [out for _ in range(4) for out in llm.step()]
        assert [out.finish_reason for out in outputs] == ["abort"]
        assert not llm.has_unfinished


def test_a_closed_session_runs_no_step_on_a_shared_engine():
    with LLM("tiny", EngineConfig(device="cpu", max_seq_len=64)) as llm:
        session = Session(llm, prompts=["ok"])
        session.step()
        session.close()
        with pytest.raises(ClosedError, match="this session was closed"):
            session.step()
        assert llm.num_steps == 1


def test_a_session_ends_when_somebody_else_took_its_last_output():
    with LLM("tiny", EngineConfig(device="cpu", max_seq_len=64)) as llm, Session(llm, prompts=["ok"]) as session:
        session.step()
        while llm.has_unfinished:
            llm.step()
        session.run()
        assert session.is_finished


@pytest.mark.parametrize(
    ("prompts", "text"),
    [
        ("ab", "prompts must be a list, got 'ab'; write ['ab']"),
        (5, "prompts must be a list, got 5"),
        (None, "prompts must be a list, got None"),
        (b"ab", "prompts must be a list, got b'ab'"),
        ({"a": 1}, "prompts must be a list, got {'a': 1}"),
        ([], "a session needs at least one prompt, got an empty list"),
        ([("x" * 999, "a")], f"an arrival step must be an integer of at least 0, got '{'x' * 37}...{'x' * 38}'"),
    ],
)
def test_what_is_no_list_of_prompts_is_refused(prompts, text):
    with pytest.raises(RequestError) as refused:
        plan(prompts, None)
    assert str(refused.value) == text


def test_a_number_of_steps_that_is_none_is_refused():
    with Session("tiny", prompts=["a"]) as session:
        with pytest.raises(RequestError, match="max_steps must be an integer of at least 0, got 'x'"):
            session.run("x")
        with pytest.raises(RequestError, match="max_steps must be an integer of at least 0, got -1"):
            session.run(-1)


def test_a_live_stepper_proves_a_step_with_the_session_s_own_model(monkeypatch):
    config = dataclasses.replace(TINY_CONFIG, cuda_graph=CudaGraphConfig(batch_sizes=(1,)))
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    with Session("tiny", prompts=["abc", "de"], config=config, params=params) as session:
        session.step()
        session.step()
        widget = session.show(profile="live")
        models = []

        def watched(model, *args, **options):
            models.append(model)
            return LLM(model, *args, **options)

        monkeypatch.setattr(workload, "LLM", watched)
        widget._handle_custom_msg({"type": "prove", "step": 1}, [])
        assert widget.whatifs["1"][0] == (
            "whatif.change",
            {"field": "CudaGraphConfig.batch_sizes", "before": "(1,)", "after": "(1, 2)"},
        )
        assert all(model is session.llm.loaded for model in models)
        session.run()
        session.llm.check()
        assert [len(output.token_ids) for output in session.outputs] == [4, 4]
        widget.close()


def test_with_overlap_every_step_of_a_session_gives_a_snapshot_from_the_first_on():
    with Session(
        "tiny", prompts=[[5, 6], [7]], config=dataclasses.replace(TINY_CONFIG, overlap=True), params=SHORT
    ) as s:
        first = s.step()
        assert (first.step, first.graph.flight.unread) == (0, ())
        assert s.step().graph.flight.unread == (0,)
        s.run()
        assert [len(output.token_ids) for output in s.outputs] == [3, 3]
        assert [step.step for step in s.trace.steps] == list(range(len(s.trace)))


def test_a_second_interrupt_comes_out_when_a_session_has_ended_its_requests(tiny_llm, monkeypatch):
    real, aborted = tiny_llm.abort, []

    def abort(request_id):
        signal.raise_signal(signal.SIGINT)
        real(request_id)
        aborted.append(request_id)

    def open_and_interrupt():
        with Session(tiny_llm, prompts=["abc", "de"], params=SamplingParams(max_tokens=9, ignore_eos=True)) as session:
            session.step()
            monkeypatch.setattr(tiny_llm, "abort", abort)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as raised:
        open_and_interrupt()
    assert isinstance(raised.value.__context__, KeyboardInterrupt), "the first one"
    assert len(aborted) == 2
    assert tiny_llm.probe is None
    assert {output.finish_reason for output in tiny_llm.step()} == {"abort"}
    assert not tiny_llm.has_unfinished


@pytest.mark.parametrize("later", [False, True])
def test_an_interrupt_right_behind_a_submission_leaves_no_request_that_the_session_does_not_know(
    tiny_llm, monkeypatch, later
):
    real = tiny_llm.submit

    def submit(*args, **options):
        request_id = real(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return request_id

    prompts = [(0, "abc"), *[(1, "de")] * (not later)]
    with Session(tiny_llm, prompts=prompts, params=SamplingParams(max_tokens=9, ignore_eos=True)) as session:
        session.step()
        with monkeypatch.context() as patch:
            patch.setattr(tiny_llm, "submit", submit)
            with pytest.raises(KeyboardInterrupt):
                session.add("de") if later else session.step()
        assert len(session.running) == 2
        session.step()
        assert len(session.trace.header.requests) == 2
    assert len(tiny_llm.step()) == 2
    assert not tiny_llm.has_unfinished


def test_a_request_joins_later_and_another_is_aborted(tiny_llm):
    with Session(tiny_llm, prompts=["first"], params=SamplingParams(max_tokens=6, ignore_eos=True)) as session:
        session.step()
        late = session.add("late", SamplingParams(max_tokens=2, ignore_eos=True))
        first = session.running[0]
        assert session.running == (first, late)
        session.abort(first)
        session.run()
        assert [output.finish_reason for output in session.outputs] == ["abort", "length"]
        assert session.running == ()
    with pytest.raises(ClosedError, match="no request can join it"):
        session.add("after")
