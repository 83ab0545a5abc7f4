"""Every reason has its words, in both languages, with the same numbers, and names fields that exist."""

import dataclasses
import re
import subprocess
import sys

import pytest

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.errors import ConfigError
from engine.reasons import DeferralReason, FallOff, PathKind
from lab.reason_rows import LANGUAGES, SECTION_NOTES, Section, placeholders
from lab.reasons import (
    NOT_RECORDED,
    REASONS,
    fix,
    fix_arguments,
    reason_sentence,
    recorded_clause,
    recorded_sentence,
    row_of,
    sentence,
)
from lab.widgets.strings import translate

MEMBERS = (*FallOff, *DeferralReason, *PathKind)
CONFIGS = {c.__name__: c for c in (EngineConfig, SchedulerConfig, KVCacheConfig, CudaGraphConfig, SamplingParams)}
NUMBERS = {
    "request": 7, "needed": 5, "available": 3, "requests": 9, "largest": 8, "rows": 90, "largest_rows": 64, "drafts": 4,
    "contexts": 2, "bucket": 16, "mode": "full", "captured": "greedy", "key": "(batch 4, draft 0, greedy)",
}  # fmt: skip
HAN = re.compile("[\u4e00-\u9fff]")


def test_the_table_has_exactly_the_members_of_the_engine():
    assert list(REASONS) == [member.value for member in MEMBERS]
    assert all(row_of(member).reason is member for member in MEMBERS)


@pytest.mark.parametrize("member", MEMBERS)
def test_both_languages_take_the_same_arguments_and_are_not_the_same_text(member):
    row = row_of(member)
    for words in filter(None, (row.clause, row.sentence, row.fix, SECTION_NOTES[row.section])):
        assert placeholders(words.en) == placeholders(words.zh)
        assert not HAN.search(words.en)
        assert HAN.search(words.zh)
    assert not placeholders(row.clause.en)
    if row.fix is not None:
        assert placeholders(row.fix.en) <= placeholders(row.sentence.en)


@pytest.mark.parametrize("member", MEMBERS)
def test_clauses_fit_into_a_sentence_and_sentences_stand_alone(member):
    row = row_of(member)
    assert row.clause.en[0].islower()
    assert row.clause.en[-1] not in ".!"
    assert row.clause.zh[-1] != "。"
    for language, stop in (("en", "."), ("zh", "。")):
        text = sentence(member, language, **NUMBERS)
        assert text.endswith(stop)
        assert "{" not in text
        change = fix(member, language, **NUMBERS)
        assert change is None or (change.endswith(stop) and "{" not in change)


@pytest.mark.parametrize("member", MEMBERS)
def test_one_of_a_thing_takes_the_singular(member):
    counts = ("needed", "available", "requests", "largest", "rows", "largest_rows", "drafts", "contexts")
    ones = {**NUMBERS, **dict.fromkeys(counts, 1)}
    text = sentence(member, **ones)
    assert not re.search(r"\b1 (?!is\b|was\b)(\w+s|are|were|running requests)\b", text), text
    assert "|" not in text
    assert translate(f"{'held' if isinstance(member, DeferralReason) else 'why'}.{member.value}", ones) in {
        text,
        f"why.{member.value}",  # a path that is no reason has no sentence in the stepper
    }


@pytest.mark.parametrize("member", MEMBERS)
def test_a_fix_names_fields_that_exist_in_both_languages(member):
    row = row_of(member)
    for config, field in row.fields:
        assert field in {f.name for f in dataclasses.fields(CONFIGS[config])}
        assert re.search(rf"{config}[.(]{field}", row.fix.zh)
    names_another_reason = member is DeferralReason.BEHIND_BLOCKED_REQUEST
    is_of_released_graphs = member in (FallOff.NO_DUMMY_SLOT, FallOff.CAPTURE_NOT_ALLOWED_NOW)  # a call, not a field
    assert is_of_released_graphs == ("LLM.release_graphs" in (row.fix.en if row.fix else ""))
    assert row.fix is None or bool(row.fields) != (names_another_reason or is_of_released_graphs)


def test_a_fall_off_or_deferral_without_a_fix_is_the_warm_up_alone():
    assert {m for m in (*FallOff, *DeferralReason) if row_of(m).fix is None} == {FallOff.WARMUP}


def test_the_numbers_appear_in_the_words():
    assert sentence(FallOff.ABOVE_LARGEST_BUCKET, requests=9, largest=8) == (
        "The batch has 9 requests; the largest captured size is 8."
    )
    assert fix("ABOVE_LARGEST_BUCKET", "zh", requests=9) == "在 CudaGraphConfig.batch_sizes 中加入 9。"
    assert sentence(DeferralReason.NO_FREE_BLOCKS, request=4, needed=6, available=2) == (
        "Request 4 needs 6 blocks to reach its end; 2 are free and not promised."
    )
    assert reason_sentence("HAS_CONTEXT_UNPROMOTED") == "a prompt is being computed"
    assert reason_sentence("HAS_CONTEXT_UNPROMOTED", "zh") == "批次中有正在计算的提示"


def test_after_a_release_no_bucket_is_named_as_the_fix():
    assert sentence(FallOff.CAPTURE_NOT_ALLOWED_NOW, requests=3, rows=24) == (
        "No graph is left for this step (3 requests, 24 rows), and capturing is allowed in warm-up only."
    )
    assert fix(FallOff.CAPTURE_NOT_ALLOWED_NOW) == (
        "Keep the engine's graphs: LLM.release_graphs gives all of them back, and only a new engine captures again."
    )
    assert fix(FallOff.NO_DUMMY_SLOT) == (
        "Keep the engine's graphs: LLM.release_graphs gives all of them back, and the dummy with them; only a new "
        "engine captures again."
    )


def test_a_fix_without_numbers_is_told_from_one_for_a_certain_step():
    assert fix_arguments(FallOff.ABOVE_LARGEST_BUCKET) == {"requests"}
    assert fix_arguments("COMPILE_NOT_RECORDED") == fix_arguments("GRAPHS_DISABLED") == frozenset()
    assert fix_arguments(FallOff.WARMUP) == frozenset()


def test_every_section_explains_a_reason_and_has_a_note():
    assert set(SECTION_NOTES) == set(Section) == {row.section for row in REASONS.values()}


def test_a_missing_number_an_unknown_reason_and_an_unknown_language_are_named():
    with pytest.raises(ConfigError, match="the words of ABOVE_LARGEST_BUCKET need largest, got requests"):
        sentence(FallOff.ABOVE_LARGEST_BUCKET, requests=9)
    with pytest.raises(ConfigError, match="need available, needed, request, got nothing"):
        sentence(DeferralReason.TOKEN_BUDGET)
    with pytest.raises(ConfigError, match=r"reason must be one of GRAPHS_DISABLED, .*, got 'BAD_LUCK'"):
        reason_sentence("BAD_LUCK")
    with pytest.raises(ConfigError, match="language must be one of en, zh, got 'fr'"):
        reason_sentence(FallOff.WARMUP, "fr")
    assert LANGUAGES == ("en", "zh")


def test_a_reason_that_a_trace_brings_from_another_version_is_said_to_be_unknown():
    assert recorded_clause("WARMUP") == reason_sentence("WARMUP")
    assert recorded_clause("BAD_LUCK") == "BAD_LUCK, a reason unknown to this Stepscope"
    assert recorded_clause("BAD_LUCK", "zh") == "BAD_LUCK（这个 Stepscope 不认识这个原因）"
    assert recorded_sentence("WARMUP") == sentence("WARMUP")
    assert recorded_sentence("BAD_LUCK", requests=1) == (
        "This reason is unknown to this Stepscope; the version that recorded the trace has its words."
    )
    assert HAN.search(recorded_sentence("BAD_LUCK", "zh"))


def test_a_step_without_a_reason_is_said_to_have_none_in_the_trace():
    assert recorded_clause(NOT_RECORDED) == "the trace does not say why"
    assert recorded_sentence(NOT_RECORDED) == "The trace does not say why."
    assert recorded_sentence(NOT_RECORDED, "zh") == f"{recorded_clause(NOT_RECORDED, 'zh')}。"


def test_importing_the_words_leaves_torch_out():
    code = "import lab.reasons, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
