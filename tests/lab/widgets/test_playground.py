"""Playground: runs of the tiny model under settings, compared; refusals in place; a session stepped by hand."""

import pytest

import lab
from engine.errors import ConfigError
from lab.widgets import playground as module
from lab.widgets.compare_view import CompareView
from lab.widgets.stepper import Stepper


@pytest.fixture
def play():
    made = lab.playground(prompts="0: The capital of France\n1: Hi\n2: more", max_tokens=4)
    yield made
    made.close()


def ask(play, have):
    play.viewer._handle_custom_msg({"type": "run", "have": have, "view": "a", "seq": 1}, [])


def test_a_run_is_shown_and_the_next_is_compared_with_it(play):
    play.run_button.click()
    assert play.alert.value == ""
    first = play.trace
    assert isinstance(play.viewer, Stepper)
    eager = sum(step.graph.path == "eager" for step in first.steps)
    assert f"Run 1: {len(first)} steps, {eager} of them eager" in play.said.value
    play.controls["buckets"].value = "1, 2"
    play.run()
    assert play.trace is not first
    assert "Run 2: " in play.said.value
    assert "Against the last run (A): The first difference is in step" in play.said.value
    assert "cuda_graph.batch_sizes (1, 2, 4) → (1, 2)" in play.said.value
    play.beside.value = True
    play.run()
    assert isinstance(play.viewer, CompareView)
    assert "The two runs are the same" in play.said.value
    assert not play.run_button.disabled


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("buckets", "1, x", "buckets must be whole numbers"),
        ("buckets", "4, 2", "must be ascending"),
        ("max_num_tokens", 2, "max_num_tokens must be at least max_batch_size"),
        ("prompts", "", "at least one prompt"),
        ("max_tokens", 0, "max_tokens"),
        ("blocks", "1", "num_blocks"),
    ],
)
def test_settings_that_do_not_fit_are_said_in_place_and_nothing_runs(play, field, value, said):
    play.controls[field].value = value
    play.run()
    assert 'role="alert"' in play.alert.value
    assert said in play.alert.value
    assert (play.trace, play.viewer, play.session) == (None, None, None)
    assert not play.run_button.disabled


def test_a_live_session_takes_and_aborts_requests(play):
    assert play.live_bar.layout.display == "none"
    play.live.value = True
    play.run()
    assert play.viewer.is_live
    assert play.live_bar.layout.display == "flex"
    assert play.who.options == (("r0", 0),)
    ask(play, -1)
    play.new_prompt.value = "late"
    play.add()
    assert "r1 joins before the next step." in play.said.value
    ask(play, 0)
    assert {span.request_id for span in play.session.trace.steps[-1].schedule.spans} >= {0, 1}
    play.who.value = 0
    play.abort()
    assert "r0 ends with the next step." in play.said.value
    for have in range(1, 20):
        ask(play, have)
    ended = dict(end for step in play.session.trace.steps for end in step.outcome.finished)
    assert play.session.is_finished
    assert play.viewer.finished
    assert (play.session.outputs[0].finish_reason, ended.get(1)) == ("abort", "length")
    assert play.session.running == ()
    play.abort()
    assert "No request is running" in play.alert.value
    play.add()
    assert not play.viewer.finished
    trace, session = play.session.trace, play.session
    play.live.value = False
    play.run()
    assert play.session is None
    assert session.trace.steps[-1].step == trace.steps[-1].step
    assert play.live_bar.layout.display == "none"


def test_a_prompt_that_cannot_join_is_said_and_the_session_goes_on(play):
    play.live.value = True
    play.run()
    play.new_prompt.value = ""
    play.add()
    assert 'role="alert"' in play.alert.value
    ask(play, -1)
    assert play.viewer.num_steps == 1


def test_a_run_that_is_too_long_is_cut_and_that_is_said(play, monkeypatch):
    monkeypatch.setattr(module, "MAX_STEPS", 2)
    play.run()
    assert len(play.trace) == 2
    assert "It was ended after 2 steps" in play.said.value


def test_it_speaks_chinese():
    made = lab.playground(lang="zh")
    assert made.run_button.description == "运行"
    made.close()


def test_what_it_does_not_have_is_said():
    with pytest.raises(ConfigError, match=r"the playground has max_batch_size, .*got 'bucket'"):
        lab.playground(bucket=3)
    with pytest.raises(ConfigError, match="lang must be one of en, zh, got 'fr'"):
        lab.playground(lang="fr")
    with pytest.raises(ConfigError, match="configures a model by name, got int"):
        lab.playground(3)
