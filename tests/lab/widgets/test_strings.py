"""One table: both languages complete, every word that the browser asks for is there, and none is idle."""

import re
from pathlib import Path

import pytest

from engine.reasons import DeferralReason, FallOff
from lab.widgets import narration
from lab.widgets.strings import STRINGS, table, told, translate

ESM = Path(narration.__file__).parent / "esm"
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(ESM.glob("*.js")))
WRITERS = (
    *sorted(ESM.parent.glob("*.py")),
    ESM.parents[1] / "counterfactuals" / "search.py",
    ESM.parents[1] / "outline.py",
)
PYTHON = "\n".join(path.read_text(encoding="utf-8") for path in WRITERS)
PYTHON = re.sub(r'"[\w.]+": ', "", PYTHON)  # the table's own keys are no use of them
SLOT = re.compile(r"\{(\w+)")
# An id in the source: a quoted dotted word (after # where a column holds numbers), whole ("a.b") or
# the beginning of one ("a." + ..., `a.${...}`).
WHOLE = set(re.findall(r'"#?([a-z_]+\.[\w.]+)"', SOURCE)) | set(re.findall(r'"([a-z]+\.[\w.]+)"', PYTHON))
PREFIXES = set(re.findall(r'"([a-z_.]+\.)"', SOURCE)) | set(re.findall(r'"([a-z_.]+\.)\{', PYTHON))


def test_both_languages_take_the_same_arguments():
    for name, (english, chinese) in STRINGS.items():
        assert english, name
        assert chinese, name
        assert set(SLOT.findall(english)) >= set(SLOT.findall(chinese)), name


def test_chinese_says_every_number_that_english_says():
    plural_only = {"n", "tokens", "silent", "contexts", "dummies"}
    for name, (english, chinese) in STRINGS.items():
        assert set(SLOT.findall(english)) - set(SLOT.findall(chinese)) <= plural_only, name


def test_every_word_that_the_browser_asks_for_is_in_the_table():
    asked = {name for name in re.findall(r'"#?([a-z_]+\.[\w.]+)"', SOURCE) if not name.endswith((".js", "."))}
    assert asked - STRINGS.keys() == set()
    assert len(asked) > 150


def test_no_word_is_idle():
    starts = (*PREFIXES, "fact.")  # facts are recognised, not chosen: ``lab/condition_words.py``
    idle = {name for name in STRINGS if name not in WHOLE and not name.startswith(starts)}
    assert idle == set()


def test_a_verb_behind_names_goes_by_their_number():
    singular = re.compile(r"\b(starts|begins|is|has|it)\b")
    for name, (english, _) in STRINGS.items():
        if "{who}" in english:
            assert not singular.search(translate(name, {"who": "r1, r2", "n": 2})), name


def test_promoted_requests_are_counted():
    assert translate("pad.promoted", {"who": "r3", "n": 1}) == (
        "Promoted: r3 has one prompt token left, so it runs as a decode row."
    )
    assert translate("pad.promoted", {"who": "r3, r4", "n": 2}) == (
        "Promoted: r3, r4 have one prompt token left each, so they run as decode rows."
    )
    assert translate("rows.promoted", {"who": "r3, r4", "n": 2}).startswith(
        "Promoted: the last prompt tokens of r3, r4 are laid out as decode rows (E)"
    )


def test_every_reason_has_its_words():
    for reason in FallOff:
        assert {f"why.{reason}", f"cond.{reason}", f"note.{reason}"} <= STRINGS.keys()
    for reason in DeferralReason:
        assert f"defer.{reason}" in STRINGS


def test_arguments_plurals_and_sentences_inside_sentences():
    assert translate("what.decode", {"n": 1}) == "1 request decodes"
    assert translate("what.decode", {"n": 3}) == "3 requests decode"
    inner = ("what.context", {"c": 1, "tokens": 2})
    assert (
        translate("say.eager", {"step": 5, "what": inner}) == "Step 5 runs eagerly: 1 request computes 2 prompt tokens."
    )
    assert (
        translate("say.eager", {"step": 5, "what": inner}, "zh") == "第 5 步以 eager 运行：1 个请求计算 2 个提示词元。"
    )


def test_an_unknown_id_is_shown_and_a_missing_argument_is_empty():
    assert translate("no.such") == "no.such"
    assert translate("bar.step") == "Step "


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_table_has_every_id_once(language):
    assert table(language).keys() == STRINGS.keys()


def test_sentences_stand_one_behind_the_other():
    said = [("say.idle", {"step": 1}), ("say.gap", {})]
    assert told(said).startswith("Step 1 has nothing to run. Steps between")
    assert told(said, "zh").startswith("第 1 步没有可运行的请求。上一个")
