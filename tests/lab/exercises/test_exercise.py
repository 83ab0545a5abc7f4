"""The records of an exercise."""

from lab.exercises.catalogue import load
from lab.exercises.exercise import Checks, Example


def test_examples_hold_for_every_rule_or_for_theirs():
    checks = Checks(returns=int, examples=(Example({"a": 1}, 2), Example({"a": 2}, 3, rule="b")))
    assert [example.answer for example in checks.examples_for("a")] == [2]
    assert [example.answer for example in checks.examples_for("b")] == [2, 3]


def test_properties_stand_in_the_order_of_their_decorators():
    checks = Checks(returns=int, examples=())

    @checks.visible("first", "cases")
    def first(_):
        return None

    @checks.hidden("second", "cases")
    def second(_):
        return "no"

    assert [(one.name, one.is_hidden, one.check) for one in checks.properties] == [
        ("first", False, first),
        ("second", True, second),
    ]


def test_the_spec_states_the_rule_that_applies():
    exercise = load("ex16")
    assert exercise.rule("b").text in exercise.spec("b")
    assert exercise.rule("a").text not in exercise.spec("b")
    assert "Walkthrough 07; in the article: Padding" in exercise.spec("a")
    assert "sgl-project/sglang#30752" in exercise.spec("a")
    assert exercise.world is None
    assert exercise.has_adapter
