"""When a request ends: against a brute force over the whole text, on random tokens, stops and splits."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.sampling.stopping import StopChecker, longest_open_tail, scan_for_stop

EOS = 99


class PieceDetokenizer:
    """Token i is the i-th piece; ``finish`` gives a fixed tail (half a character)."""

    def __init__(self, pieces, tail=""):
        self.pieces, self.tail, self.num_finished = pieces, tail, 0

    def push(self, token_id):
        return self.pieces[token_id]

    def finish(self):
        self.num_finished += 1
        return self.tail


def checker(pieces, *, tail="", prompt_len=3, max_seq_len=1000, **params):
    return StopChecker(
        SamplingParams(**{"max_tokens": 1000, **params}),
        prompt_len=prompt_len,
        max_seq_len=max_seq_len,
        eos_token_ids=(EOS,),
        detokenizer=PieceDetokenizer(pieces, tail),
    )


def run(stopper, token_ids):
    """Push until the end; return (reason, tokens taken, text, pieces as streamed), checking after each token."""
    shown = []
    for taken, token_id in enumerate(token_ids, start=1):
        verdict = stopper.push(token_id)
        stopper.check()
        shown.append(verdict.new_text)
        assert "".join(shown) == stopper.text
        if verdict.finish_reason is not None:
            assert stopper.finish_reason == verdict.finish_reason
            return verdict.finish_reason, taken, stopper.text, shown
    return None, len(token_ids), stopper.text, shown


def brute_force(pieces, token_ids, *, stops, stop_ids, limit):
    """Look through the whole text after every token."""
    text = ""
    for taken, token_id in enumerate(token_ids, start=1):
        if token_id in stop_ids:
            return "stop", taken, text
        text += pieces[token_id]
        starts = [text.index(stop) for stop in stops if stop in text]
        if starts:
            return "stop", taken, text[: min(starts)]
        if taken == limit:
            return "length", taken, text
    return None, len(token_ids), text


pieces_space = st.lists(st.text("ab", max_size=4), min_size=1, max_size=6)
stops_space = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4)


@settings(deadline=None, max_examples=400)
@given(pieces_space, stops_space, st.lists(st.integers(0, 6), max_size=25), st.integers(1, 20))
@example(["a", "b"], ["aab"], [0, 0, 0, 1], 20)  # the held tail begins anew inside itself
@example(["abab", "a"], ["bb", "abab"], [1, 0], 20)
def test_the_verdict_equals_a_search_through_the_whole_text(pieces, stops, token_ids, limit):
    token_ids = [EOS if token_id >= len(pieces) else token_id for token_id in token_ids]
    stopper = checker(pieces, stop=tuple(stops), max_tokens=limit)
    reason, taken, text, _shown = run(stopper, token_ids)
    expected = brute_force(pieces, token_ids, stops=stops, stop_ids={EOS}, limit=limit)
    assert (reason, taken, text + stopper.end()) == expected


@settings(deadline=None)
@given(st.text("abc", min_size=1, max_size=20), stops_space, st.data())
def test_the_text_shown_never_has_to_be_taken_back(text, stops, data):
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=len(text))) | {len(text)})
    pieces = [text[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]
    _reason, _taken, final, shown = run(checker(pieces, stop=tuple(stops)), range(len(pieces)))
    assert final == "".join(shown)
    assert text.startswith(final)
    assert not any(stop in final for stop in stops)


@given(st.text("ab", max_size=8), st.text("ab", min_size=1, max_size=6))
def test_the_open_tail_is_the_longest_proper_beginning_at_the_end(text, stop):
    fitting = [n for n in range(len(stop)) if n <= len(text) and text.endswith(stop[:n])]
    assert longest_open_tail(text, stop) == max(fitting)


def test_a_stop_string_that_spans_tokens_is_held_back_and_then_left_out():
    stopper = checker(["Hello", "\n", "\nUser", "!"], stop="\n\nUser:")
    assert stopper.push(0).new_text == "Hello"
    assert stopper.push(1).new_text == ""
    assert stopper.push(2).new_text == ""
    assert stopper.push(3).new_text == "\n\nUser!"
    stopper = checker(["Hello", "\n\nUs", "er: hi"], stop="\n\nUser:")
    assert run(stopper, [0, 1, 2]) == ("stop", 3, "Hello", ["Hello", "", ""])


def test_the_stop_string_that_begins_first_wins_within_a_token():
    assert scan_for_stop("xxabcd", ("cd", "abcd")).settled == "xx"
    assert run(checker(["one STOP two END"], stop=("END", "STOP")), [0])[2] == "one "


def test_an_end_id_contributes_no_text_and_counts_as_a_token():
    stopper = checker(["hi", "?"])
    assert run(stopper, [0, EOS]) == ("stop", 2, "hi", ["hi", ""])
    assert stopper.num_generated == 2


def test_ignore_eos_takes_the_end_id_for_a_token_like_others_but_keeps_stop_ids():
    pieces = {0: "a", 1: "b", EOS: "</s>"}
    assert run(checker(pieces, ignore_eos=True), [0, EOS, 0])[0] is None
    assert run(checker(pieces, ignore_eos=True), [0, EOS, 0])[2] == "a</s>a"
    assert run(checker(pieces, ignore_eos=True, stop_token_ids=(1,)), [0, EOS, 1])[:3] == ("stop", 3, "a</s>")
    assert run(checker(pieces, ignore_eos=True, stop_token_ids=(EOS,)), [EOS])[:2] == ("stop", 1)


def test_the_length_limit_gives_out_what_was_held():
    stopper = checker(["ab", "c"], stop="abx", max_tokens=1)
    assert run(stopper, [0]) == ("length", 1, "ab", ["ab"])


def test_the_sequence_limit_counts_the_prompt():
    assert run(checker(["a"], prompt_len=6, max_seq_len=8), [0] * 5)[:2] == ("length", 2)
    assert run(checker(["a"], prompt_len=8, max_seq_len=8), [0])[:2] == ("length", 1)


def test_a_stop_beats_the_length_limit_on_the_same_token():
    assert run(checker(["ab!"], stop="!", max_tokens=1), [0])[:3] == ("stop", 1, "ab")
    assert run(checker(["ab"], max_tokens=1), [EOS])[:3] == ("stop", 1, "")


def test_half_a_character_at_the_end_is_closed_once():
    for params, token_ids in (({"max_tokens": 1}, [0]), ({}, [0, EOS])):
        stopper = checker(["é"], tail="\ufffd", **params)
        assert run(stopper, token_ids)[2] == "é\ufffd"
        assert stopper.end() == ""
        assert stopper._detokenizer.num_finished == 1


def test_an_abort_gives_out_the_held_text_once():
    stopper = checker(["a", "b"], stop="abc", tail="\ufffd")
    run(stopper, [0, 1])
    assert stopper.text == ""
    assert stopper.end() == "ab\ufffd"
    assert stopper.end() == ""
    assert stopper.text == "ab\ufffd"
    assert stopper.finish_reason is None
    stopper.check()


def test_a_token_after_the_end_is_a_bug_of_the_caller():
    stopper = checker(["a"], max_tokens=1)
    stopper.push(0)
    with pytest.raises(AssertionError, match="after the end"):
        stopper.push(0)


def test_the_search_looks_at_a_window_bounded_by_the_longest_stop_string():
    stopper = checker(["ab"], stop="ab" * 5 + "c")
    for count in range(1, 501):
        stopper.push(0)
        assert len("ab") * count - len(stopper.text) <= 10
    assert stopper.text + stopper.end() == "ab" * 500
