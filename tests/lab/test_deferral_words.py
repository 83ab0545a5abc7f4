import pytest

from engine.reasons import DeferralReason
from lab.deferral_words import DEFERRALS
from lab.reason_rows import placeholders
from lab.reasons import fix, sentence


def test_every_deferral_has_one_row_in_the_order_of_the_engine():
    assert [row.reason for row in DEFERRALS] == list(DeferralReason)


@pytest.mark.parametrize("row", DEFERRALS, ids=lambda row: row.reason.value)
def test_a_deferral_is_told_by_its_own_numbers_alone(row):
    assert placeholders(row.sentence.en) <= {"request", "needed", "available"}
    assert row.fix is not None


def test_a_pause_names_the_numbers_and_both_ways_out():
    assert sentence(DeferralReason.PAUSED, request=3, needed=2, available=1) == (
        "Request 3 gives its blocks back and will be computed again: 2 blocks were needed, 1 was free."
    )
    assert fix(DeferralReason.PAUSED) == (
        'Raise KVCacheConfig.num_blocks, or set SchedulerConfig(capacity_policy="guaranteed_no_evict").'
    )


def test_an_awaited_prefix_says_what_is_saved():
    text = sentence(DeferralReason.AWAITS_SHARED_PREFIX, request=3, needed=32, available=16)
    assert text.startswith("The first 32 tokens of request 3 begin another prompt, too, which is being computed; 16 ")
