"""The sentence of a step, and what it says has changed."""

import dataclasses

from engine.reasons import DeferralReason
from lab.ledger import CopyView
from lab.snapshot import DeferralView, SpanView
from lab.widgets.narration import changes, is_steady, names, sentences
from lab.widgets.strings import translate
from tests.lab.sample_steps import decode_step, eager_step


def said(step, lang="en", **options):
    return " ".join(translate(name, args, lang) for name, args in sentences(step, (1, 2, 4, 8), **options))


def changed(step, previous):
    return [translate(name, args) for name, args in changes(step, previous)]


def padded(step, num_padding):
    path = dataclasses.replace(step.path, num_requests=step.path.bucket - num_padding, num_padding=num_padding)
    return dataclasses.replace(step, path=path)


def test_an_exact_replay_in_english_and_chinese():
    assert said(decode_step(3)) == "Step 3 replays the graph for 8: 8 requests decode, an exact fit."
    assert said(decode_step(3), "zh").startswith("第 3 步重放大小为 8 的图：8 个请求解码，恰好装满。")


def test_a_padded_replay_says_the_waste():
    assert "1 dummy fills the bucket (12 % waste)" in said(padded(decode_step(3), 1))
    assert "2 dummies fill the bucket (25 % waste)" in said(padded(decode_step(3), 2))


def test_an_eager_step_says_why():
    text = said(eager_step(0))
    assert text.startswith("Step 0 runs eagerly: 1 request computes 12 prompt tokens.")
    assert "Prompts in the batch: 1, and the step has 12 rows." in text


def test_who_is_held_back_is_named_with_the_reason():
    assert "r8 held back: too few free blocks to run to the end" in said(decode_step(7))


def test_missing_steps_are_said():
    assert "are missing" in said(decode_step(3), gap=True)
    assert "are missing" not in said(decode_step(3))


def test_a_step_that_was_derived_is_steady_on_either_path():
    step = decode_step(3)
    steady = dataclasses.replace(step, graph=dataclasses.replace(step.graph, steady=""))
    eager = dataclasses.replace(steady, graph=dataclasses.replace(steady.graph, path="eager"))
    assert is_steady(steady)
    assert not is_steady(step)
    assert "nothing was packed" in said(steady)
    assert "nothing was packed" in said(eager)
    assert "nothing was packed" not in said(step)


def test_rows_that_are_wrong_are_counted():
    assert "1 row differs from the run that this one is compared with (✗)." in said(decode_step(3), num_wrong=1)
    assert "3 rows differ from" in said(decode_step(3), num_wrong=3)
    assert "differ" not in said(decode_step(3))


def test_changes_name_the_path_the_newcomer_and_the_one_that_finished():
    first, second = eager_step(0), decode_step(1, batch=2)
    assert changed(first, None) == ["r0 starts", "r0 finishes (length)", "+1 block"]
    against = changed(second, first)
    assert "eager → replay" in against
    assert "r0 is gone" in against
    assert "r0 begins to decode" in against


def test_several_requests_take_the_plural():
    started = dataclasses.replace(eager_step(0).reservation, slots=((0, 0), (1, 1)))
    prompts = tuple(SpanView(i, "C", 0, 6, 1) for i in range(2))
    ended = dataclasses.replace(eager_step(0).outcome, finished=((2, "length"), (3, "length")))
    first = dataclasses.replace(
        eager_step(0),
        schedule=dataclasses.replace(eager_step(0).schedule, spans=prompts),
        reservation=started,
        outcome=ended,
    )
    assert "r0, r1 start" in changed(first, None)
    against = changed(decode_step(1, batch=2), first)
    assert "r0, r1 begin to decode" in against
    assert "r2, r3 are gone" in against


def test_a_reason_fits_one_request_and_several():
    waiting = tuple(DeferralView(i, reason.value, 4, 3) for reason in DeferralReason for i in (8, 9))
    step = dataclasses.replace(decode_step(3), schedule=dataclasses.replace(decode_step(3).schedule, deferrals=waiting))
    assert "r8, r9 held back: too few free blocks to run to the end." in said(step)
    for name, arguments in sentences(step, (8,)):
        if name == "say.waits":
            assert not {"it", "its"} & set(translate(*arguments["reason"]).split())
            assert "它" not in translate(*arguments["reason"], "zh")


def test_a_bucket_change_and_a_new_deferral_are_marked():
    assert "bucket 4 → 8" in changed(decode_step(3, batch=8), decode_step(2, batch=4))
    assert "r8 held back" in changed(decode_step(7), decode_step(6))


def test_a_buffer_that_moved_is_marked():
    step, previous = decode_step(4), decode_step(3)
    moved = dataclasses.replace(step.buffers[0], address=1)
    step = dataclasses.replace(step, buffers=(moved, *step.buffers[1:]))
    assert "input_ids moved" in changed(step, previous)


def test_nothing_changed_is_said_too():
    assert changed(decode_step(4), decode_step(3)) == ["same batch, same path"]


def test_a_long_list_of_names_is_cut():
    assert names(range(3)) == "r0, r1, r2"
    assert names(range(9)) == "r0, r1, r2, r3, r4, r5 + 3"


def test_every_step_of_a_real_run_is_worded_in_both_languages(full_trace):
    previous = None
    for step in full_trace.steps:
        for name, args in [*sentences(step, full_trace.header.buckets), *changes(step, previous)]:
            for lang in ("en", "zh"):
                text = translate(name, args, lang)
                assert text not in {name, ""}
                assert "{" not in text
        previous = step


def test_verification_the_cache_a_pause_and_an_unread_step_are_said():
    step = decode_step(3, batch=2, overlap=True)
    changed = dataclasses.replace(
        step,
        schedule=dataclasses.replace(step.schedule, draft_len=3, paused=(7,)),
        reservation=dataclasses.replace(
            step.reservation, credits=((1, 32), (4, 0)), copies=(CopyView("ONBOARD", 0, 4, 16),)
        ),
        outcome=dataclasses.replace(step.outcome, accepted=((0, 3), (1, 0))),
    )
    said = " ".join(translate(*one) for one in sentences(changed, (1, 2)))
    assert "2 requests verify 3 drafts each, an exact fit." in said
    assert "3 of 6 drafts were accepted; the KV of the other 3 is rewound." in said
    assert "r1 found 32 prompt tokens in the cache." in said
    assert "r7 paused: the blocks go back, the tokens will be computed again." in said
    assert "Laid out before the samples of step 2 were read." in said
    assert "1 block from the host" in [translate(*one) for one in changes(changed, None)]
    chinese = "".join(translate(*one, "zh") for one in sentences(changed, (1, 2)))
    assert "6 个草稿中接受了 3 个" in chinese
    every = dataclasses.replace(changed, outcome=dataclasses.replace(step.outcome, accepted=((0, 3), (1, 3))))
    said = " ".join(translate(*one) for one in sentences(every, (1, 2)))
    assert "All 6 drafts were accepted." in said
    assert "rewound" not in said
