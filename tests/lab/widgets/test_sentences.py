"""What is said of a step and its stages, complete and punctuated in both languages."""

import pytest

from engine.reasons import PathKind
from lab.snapshot import STAGES
from lab.widgets.sentences import SENTENCES


@pytest.mark.parametrize("stage", range(len(STAGES)))
def test_every_stage_says_what_it_does(stage):
    english, chinese = SENTENCES[f"stage.{stage}.what"]
    assert english.endswith(".")
    assert chinese.endswith("。")


@pytest.mark.parametrize("path", list(PathKind))
def test_every_path_has_a_sentence_for_the_step_and_for_the_run(path):
    for name in (f"say.{path}", f"run.say.{path}"):
        english, chinese = SENTENCES[name]
        assert english.endswith(".")
        assert chinese.endswith("。")


def test_what_is_simulated_is_never_called_fast():
    english, chinese = SENTENCES["run.simulated"]
    assert "speed is not" in english
    assert "速度不是" in chinese
