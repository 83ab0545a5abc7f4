"""Every control of the playground has its words."""

from lab.widgets.play_settings import Batching, Settings
from lab.widgets.play_words import PLAY_WORDS


def test_every_field_has_a_label_in_both_languages():
    fields = {*Batching.__dataclass_fields__, *Settings.__dataclass_fields__} - {"batching"}
    assert {f"play.{name}" for name in fields} <= PLAY_WORDS.keys()
    assert all(english and chinese for english, chinese in PLAY_WORDS.values())
