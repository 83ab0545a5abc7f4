"""The door from the widget to the proof: by name, on request, and never through an import."""

import dataclasses
import re

import pytest

from engine.errors import ConfigError, TraceError
from lab.counterfactuals.search import counterfactual
from lab.widgets import whatif
from lab.widgets.strings import translate
from tests.lab.sample_steps import sample_trace

SLOT = re.compile(r"\{(\w+)")


@pytest.mark.parametrize("name", whatif.WHAT_IF_WORDS)
def test_both_languages_take_the_same_arguments(name):
    english, chinese = whatif.WHAT_IF_WORDS[name]
    assert english != chinese
    assert set(SLOT.findall(chinese)) <= set(SLOT.findall(english))
    assert set(SLOT.findall(english)) - set(SLOT.findall(chinese)) <= {"n"}


@dataclasses.dataclass
class Known:
    say: tuple = (("whatif.change", {"field": "A.b", "before": "1", "after": "2"}),)


def test_nothing_is_proved_unless_asked(monkeypatch):
    monkeypatch.setattr(whatif, "_PROVER", "lab.no_such_module")
    trace = sample_trace(3)
    assert whatif.wanted(trace, False) == {}
    assert whatif.wanted(trace, {2: Known()}) == {"2": list(Known.say)}
    with pytest.raises(ModuleNotFoundError):
        whatif.wanted(trace, True)


def test_asked_for_all_it_answers_every_eager_step_of_a_real_trace(light_trace):
    answers = whatif.wanted(light_trace, True)
    eager = [step for step in light_trace.steps if step.graph.path == "eager"]
    assert sorted(answers) == sorted(str(step.step) for step in eager)
    first = eager[0]
    said = answers[str(first.step)]
    own = counterfactual(light_trace, light_trace.steps.index(first))
    assert said == list(own.say)
    for language in ("en", "zh"):
        words = [translate(name, arguments, language) for name, arguments in said]
        assert all(words)
        assert not any("{" in text or "whatif." in text for text in words)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("all", "counterfactuals must be True, False, or answers by index into the steps, got 'all'"),
        (None, "counterfactuals must be True, False, or answers by index into the steps, got None"),
        ({0: "add a bucket"}, "counterfactuals[0] must be an answer of lab.counterfactual, got 'add a bucket'"),
        ({9: Known()}, "step must be an index from -3 to 2, got 9"),
    ],
)
def test_what_is_no_choice_is_one_clear_error(choice, words):
    with pytest.raises((ConfigError, TraceError)) as caught:
        whatif.wanted(sample_trace(3), choice)
    assert str(caught.value) == words
