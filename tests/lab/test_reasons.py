import re

from engine.reasons import DeferralReason, FallOff
from lab.reasons import REASONS, reason_fix, reason_sentence


def test_every_member_has_words_in_both_languages_and_an_anchor():
    assert set(REASONS) == {*FallOff, *DeferralReason}
    for name, text in REASONS.items():
        assert text.anchor, name
        for english, chinese in ((text.sentence_en, text.sentence_zh), (text.fix_en, text.fix_zh)):
            assert re.search(r"[a-z]", english), name
            assert re.search(r"[\u4e00-\u9fff]", chinese), name


def test_no_two_reasons_share_their_words():
    for language in ("en", "zh"):
        sentences = [reason_sentence(name, language) for name in REASONS]
        assert len(set(sentences)) == len(sentences)


def test_a_name_from_a_newer_engine_stays_readable():
    assert reason_sentence("SOMETHING_NEW") == "SOMETHING_NEW"
    assert reason_fix("SOMETHING_NEW", "zh") == ""
    assert reason_fix("ABOVE_LARGEST_BUCKET") == "add max_batch_size to CudaGraphConfig.batch_sizes"
