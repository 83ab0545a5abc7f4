import dataclasses
import re

import pytest

from engine.errors import ConfigError
from engine.reasons import FallOff
from lab.explain import LANGUAGES, SENTENCES, Sentence, explain_step, render, sentences
from lab.ledger import CopyView
from lab.reason_numbers import reason_arguments
from lab.reason_rows import placeholders
from lab.reasons import fix
from lab.snapshot import CheckView, GraphView, OriginView, PathView, SpanView
from tests.lab.sample_steps import decode_step, eager_step


def ids(step):
    return [sentence.id for sentence in sentences(step)]


def test_both_languages_word_the_same_sentences_with_the_same_arguments():
    english, chinese = (SENTENCES[language] for language in LANGUAGES)
    assert english.keys() == chinese.keys()
    for name, template in english.items():
        assert placeholders(template) == placeholders(chinese[name]), name
        assert re.search(r"[\u4e00-\u9fff]", chinese[name]), name


def test_a_replayed_step_is_told_from_schedule_to_samples():
    step = decode_step(1, batch=2)
    assert ids(step) == [
        "runs.many", "generations.many", "exact", "chosen.replay", "simulated", "sampled", "sampled",
    ]  # fmt: skip
    text = explain_step(step, {step.outcome.tokens[0][1]: "the"})
    assert text.startswith(
        "Step 1 runs 2 requests. Requests 0, 1 are in generation: one row each. The batch of 2 fits a bucket"
    )
    assert "“the”" in text


def test_an_eager_step_gives_its_reason_and_the_numbers():
    text = explain_step(eager_step(0))
    assert "Request 0 computes its whole prompt of 12 tokens and samples its first token." in text
    assert "(needed: 0 contexts; got: 1)" in text
    assert "Request 0 finishes (length). Request 0 gives its blocks and its slot back." in text


def test_chinese_says_the_numbers_and_the_end_in_chinese():
    text = explain_step(eager_step(0), language="zh")
    assert "（需要：0 个上下文；实际：1）" in text
    assert "请求 0 结束（长度已到）。" in text
    check = CheckView(
        "metadata object", "the metadata object of (batch 2, draft 0, greedy)", "another metadata object", passed=False
    )
    step = decode_step(1, batch=2)
    refused = dataclasses.replace(step, graph=dataclasses.replace(step.graph, check=(check,)))
    assert (
        "重放前的检查拒绝了它：元数据对象 为 另一个元数据对象，捕获时为 (batch 2, draft 0, greedy) 的元数据对象。"
        in explain_step(refused, language="zh")
    )


def test_an_eager_step_gives_its_smallest_fix():
    text = explain_step(eager_step(0))
    assert "got: 1). Smallest fix: Add 12 to CudaGraphConfig.prefill_num_tokens for a prefill graph. " in text
    assert "最小的改动：在 CudaGraphConfig.prefill_num_tokens 中加入 12，" in explain_step(eager_step(0), language="zh")


def with_failed(reason):
    step = eager_step(0)
    conditions = (dataclasses.replace(step.path.conditions[1], reason=reason),)
    return dataclasses.replace(step, path=dataclasses.replace(step.path, conditions=conditions))


@pytest.mark.parametrize("reason", FallOff)
def test_every_reason_that_has_a_fix_is_told_with_it(reason):
    step = with_failed(reason)
    words = fix(reason, **reason_arguments(step))
    assert ("fix" in ids(step)) == (words is not None)
    assert words is None or f"Smallest fix: {words}" in explain_step(step)


def test_a_reason_of_another_version_has_no_fix_here():
    text = explain_step(with_failed("FULL_MOON"))
    assert "It runs eagerly: FULL_MOON, a reason unknown to this Stepscope (needed: 0 contexts; got: 1)." in text
    assert "Smallest fix" not in text


def test_one_request_is_named_as_a_request_and_not_as_a_bare_number():
    step = decode_step(1, batch=1)
    step = dataclasses.replace(step, outcome=dataclasses.replace(step.outcome, freed=(0,)))
    text = explain_step(step)
    assert "Request 0 is in generation: one row." in text
    assert "Request 0 gives its blocks and its slot back." in text
    assert not re.search(r": [\d, ]+\.", text), "a colon and a number read as a count"
    assert "请求 0 处于生成阶段，占一行。" in explain_step(step, language="zh")
    several = dataclasses.replace(decode_step(1, batch=3).outcome, freed=(0, 2))
    text = explain_step(dataclasses.replace(decode_step(1, batch=3), outcome=several))
    assert "Requests 0, 2 give their blocks and slots back." in text


@pytest.mark.parametrize(
    ("name", "count", "one", "two"),
    [
        ("context.whole", "end", "its whole prompt of 1 token and samples", "its whole prompt of 2 tokens and samples"),
        ("refitted", "rows", "was to run 1 row from", "was to run 2 rows from"),
        ("accepted", "drafts", "keeps 0 of 1 draft; the", "keeps 0 of 2 drafts; the"),
        ("verify.one", "drafts", "token and the draft behind it.", "token and the drafts behind it."),
        ("accepted.all", "drafts", "keeps 0 of 1 draft.", "keeps 0 of 2 drafts."),
        ("copied", "tokens", "(1 token, to the host)", "(2 tokens, to the host)"),
        ("reused", "tokens", "finds 1 prompt token in", "finds 2 prompt tokens in"),
    ],
)
def test_one_of_a_thing_takes_the_singular(name, count, one, two):
    numbers = dict.fromkeys(("request", "requests", "start", "accepted", "source", "target"), 0) | {"copy": "OFFLOAD"}
    told = [render(Sentence(name, 0, (*numbers.items(), (count, n)))) for n in (1, 2)]
    assert one in told[0]
    assert two in told[1]
    for n in (1, 2):
        assert f"{n} " in render(Sentence(name, 0, (*numbers.items(), (count, n))), "zh")


def test_a_chunk_of_one_token_and_one_stale_row_are_one():
    step = eager_step(0)
    for span, words, chinese in (
        (SpanView(0, "C", 5, 1, 0), "computes prompt token 5 and samples nothing yet.", "计算提示词元 5，暂不采样。"),
        (SpanView(0, "C", 5, 1, 1), "computes its last prompt token, 5, and samples.", "计算最后的提示词元 5，"),
    ):
        part = dataclasses.replace(step, schedule=dataclasses.replace(step.schedule, spans=(span,)))
        assert f"Request 0 {words}" in explain_step(part)
        assert f"请求 0 {chinese}" in explain_step(part, language="zh")
    step = decode_step(4, batch=2)
    stale = (OriginView(0, 1, 3, "host_copy"), OriginView(1, 2, 4, "host_copy"))
    views = (dataclasses.replace(step.buffers[0], origins=stale), *step.buffers[1:])
    text = explain_step(dataclasses.replace(step, buffers=views))
    assert "Row 0 of input_ids was read although this step did not write it." in text


def test_a_reason_is_put_into_words():
    text = explain_step(eager_step(0))
    assert "HAS_CONTEXT_UNPROMOTED" not in text


def test_chunks_say_whether_they_sample():
    base = eager_step(0)
    for span, kind in (
        (SpanView(0, "C", 0, 8, 0), "context.part"),
        (SpanView(0, "C", 8, 4, 1), "context.last"),
        (SpanView(0, "C", 0, 12, 1), "context.whole"),
    ):
        schedule = dataclasses.replace(base.schedule, spans=(span,))
        assert kind in ids(dataclasses.replace(base, schedule=schedule))
    part = dataclasses.replace(base, schedule=dataclasses.replace(base.schedule, spans=(SpanView(0, "C", 16, 16, 0),)))
    assert "Request 0 computes prompt tokens 16 to 31 and samples nothing yet." in explain_step(part)


def test_padding_deferrals_and_promotion_are_told():
    step = decode_step(7, batch=3)
    path = PathView("(batch 4, draft 0, greedy)", None, 4, 3, 1, step.path.conditions)
    schedule = dataclasses.replace(step.schedule, promoted=(2,), paused=(5,))
    told = ids(dataclasses.replace(step, path=path, schedule=schedule))
    assert {"padding.one", "deferral", "promoted", "paused"} <= set(told)
    assert "needs 4, available 3" in explain_step(step)


def test_a_context_that_was_to_be_promoted_and_ran_without_a_graph_is_not_told_as_a_decode_row():
    step = decode_step(7, batch=3)
    schedule = dataclasses.replace(step.schedule, promoted=(2,))
    path = dataclasses.replace(step.path, key=None)
    assert "promoted" in ids(dataclasses.replace(step, schedule=schedule))
    assert "promoted" not in ids(dataclasses.replace(step, schedule=schedule, path=path))


def test_a_stale_live_row_is_pointed_out_and_an_old_metadata_row_is_not():
    step = decode_step(4, batch=4)
    assert not [name for name in ids(step) if name.startswith("stale")]
    stale = (OriginView(0, 1, 4, "device_gather"), OriginView(1, 3, 2, "host_copy"), OriginView(3, 4, 4, "zero_fill"))
    views = tuple(
        dataclasses.replace(view, origins=stale) if view.name in ("input_ids", "kv_lens") else view
        for view in step.buffers
    )
    text = explain_step(dataclasses.replace(step, buffers=views))
    assert text.count("did not write") == 1
    assert "Rows 1-2 of input_ids were read although this step did not write them." in text


def test_a_failed_replay_check_names_both_sides():
    step = decode_step(1)
    graph = GraphView("replay", False, step.graph.key, 0, (CheckView("kv_lens", "0x10", "0x20", False),))
    text = explain_step(dataclasses.replace(step, graph=graph))
    assert "kv_lens was 0x20, captured with 0x10" in text
    assert "simulated" not in text


def test_an_idle_step_says_so():
    step = decode_step(3)
    idle = dataclasses.replace(step, schedule=dataclasses.replace(step.schedule, spans=()))
    assert explain_step(idle).startswith("Step 3 has nothing to run.")


def test_an_unknown_language_names_those_that_exist():
    with pytest.raises(ConfigError, match="language must be one of en, zh, got 'fr'"):
        render(Sentence("idle", 0, (("step", 1),)), "fr")


def test_every_sentence_of_a_real_run_has_words(full_trace):
    for at in range(len(full_trace)):
        for language in LANGUAGES:
            text = full_trace.explain(at, language)
            assert "{" not in text
            assert f"{full_trace.steps[at].step} " in text


def test_a_steady_step_says_so_and_its_unwritten_lists_are_not_stale():
    step = decode_step(3)
    old = dataclasses.replace(step.buffers[0], name="seq_slots", writes=(), origins=(OriginView(0, 8, 1, "host_copy"),))
    full = dataclasses.replace(step, buffers=(*step.buffers, old))
    steady = dataclasses.replace(full, graph=dataclasses.replace(full.graph, steady=""))
    assert "Rows 0-7 of seq_slots were read although" in explain_step(full)
    assert "seq_slots" not in explain_step(steady)
    assert "positions grow by one in place, one gather fetches the tokens." in explain_step(steady)
    stale = dataclasses.replace(old, name="position_ids")
    told = explain_step(dataclasses.replace(steady, buffers=(stale,)))
    assert "Rows 0-7 of position_ids were read although this step did not write them." in told


def test_verify_rows_copies_a_refit_and_an_unread_step_are_told():
    step = decode_step(4, batch=2, overlap=True)
    spans = tuple(dataclasses.replace(span, kind="E", num_rows=4, drafts=(7, 8, 9)) for span in step.schedule.spans)
    schedule = dataclasses.replace(step.schedule, spans=spans, draft_len=3, asked=(SpanView(5, "C", 0, 16, 0),))
    copies = (CopyView("ONBOARD", 2, 6, 16), CopyView("DEVICE", 1, 7, 5))
    changed = dataclasses.replace(
        step,
        schedule=schedule,
        reservation=dataclasses.replace(step.reservation, copies=copies),
        outcome=dataclasses.replace(step.outcome, accepted=((0, 2), (1, 0))),
    )
    text = explain_step(changed)
    assert "Requests 0, 1 run 1 + 3 rows each: the newest token and the drafts behind it." in text
    assert "Request 5 was to run 16 rows from position 0, before the cache was asked." in text
    assert "It is laid out before the samples of step 3 were read." in text
    assert "Block 2 is copied to block 6 (16 tokens, from the host)." in text
    assert "Block 1 is copied to block 7 (5 tokens, a beginning to reuse)." in text
    assert "Request 0 keeps 2 of 3 drafts; the KV of the rest is rewound." in text
    assert "块 2 拷贝到块 6（16 个词元，从主机取回）。" in explain_step(changed, language="zh")
    every = dataclasses.replace(changed, outcome=dataclasses.replace(step.outcome, accepted=((0, 3),)))
    assert "Request 0 keeps 3 of 3 drafts." in explain_step(every)
    assert "请求 0 保留 3 个草稿中的 3 个。" in explain_step(every, language="zh")
    assert "rewound" not in explain_step(every)
