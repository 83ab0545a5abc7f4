"""The stepper says of a reason what lab/reasons.py says, in both languages."""

import pytest

from engine.reasons import DeferralReason, FallOff
from lab import reasons
from lab.widgets.reason_words import REASON_WORDS
from lab.widgets.strings import LANGUAGES, translate

NUMBERS = {
    "requests": 9,
    "bucket": 8,
    "largest": 8,
    "rows": 90,
    "largest_rows": 64,
    "drafts": 4,
    "contexts": 2,
    "mode": "full",
    "captured": "greedy",
}


@pytest.mark.parametrize("reason", list(FallOff))
def test_a_fall_off_has_its_sentence_its_fix_and_its_condition(reason):
    for language in LANGUAGES:
        assert translate(f"why.{reason}", NUMBERS, language) == reasons.sentence(reason, language, **NUMBERS)
        fix = reasons.fix(reason, language, **NUMBERS)
        assert translate(f"fix.{reason}", NUMBERS, language) == (fix or f"fix.{reason}")
    assert (f"fix.{reason}" in REASON_WORDS) == (reasons.row_of(reason).fix is not None)
    assert f"cond.{reason}" in REASON_WORDS
    assert REASON_WORDS[f"note.{reason}"][0].startswith(f"Article section “{reasons.row_of(reason).section}”: ")


@pytest.mark.parametrize("reason", list(DeferralReason))
def test_a_deferral_has_its_clause(reason):
    for language in LANGUAGES:
        assert translate(f"defer.{reason}", {}, language) == reasons.reason_sentence(reason, language)


def test_what_was_got_is_worded_where_the_bare_value_answers_nothing():
    assert translate("got.NO_DUMMY_SLOT", {"got": "no"}) == "a dummy is ready: no"
    assert translate("got.SAMPLER_MODE_NOT_CAPTURED", {"got": "greedy"}) == "captured for this bucket: greedy"
    assert translate("got.SAMPLER_MODE_NOT_CAPTURED", {"got": "greedy"}, "zh") == "这个桶已捕获：greedy"
