"""The queue keeps arrival order through every coming and going."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import SamplingParams
from engine.executor.live import LiveRequest, RequestQueue
from engine.models.tokenizer import Detokenizer
from engine.sampling.stopping import StopChecker
from tests.engine.live_requests import running, waiting


def live(request, **params):
    checker = StopChecker(
        SamplingParams(max_tokens=50, **params),
        prompt_len=request.py_prompt_len,
        max_seq_len=100,
        eos_token_ids=(),
        detokenizer=Detokenizer([bytes([i]) for i in range(256)]),
    )
    return LiveRequest(request, checker)


@given(st.lists(st.tuples(st.sampled_from(["add", "admit", "withdraw", "remove"]), st.integers(0, 9)), max_size=60))
def test_both_lists_stay_in_arrival_order(actions):
    queue, next_id, slots = RequestQueue(), 0, 0
    for action, pick in actions:
        before = (queue.running_version, queue.waiting_version, list(queue.running), queue.waiting, list(queue.waiting))
        if action == "add":
            queue.add(live(waiting(next_id)))
            next_id += 1
        elif action == "admit" and queue.waiting:
            queue.admit(queue.waiting[pick % len(queue.waiting)], slots)
            slots += 1
        elif action == "withdraw" and queue.running:
            queue.withdraw(queue.running[pick % len(queue.running)])
        elif action == "remove" and queue.live:
            queue.remove(list(queue.live.values())[pick % len(queue.live)].request)
        queue.check()
        if list(queue.running) != before[2]:
            assert queue.running_version > before[0], "a change that nobody could notice"
        assert list(before[3]) == before[4], "a line that was handed out has changed"
        if list(queue.waiting) != before[4]:
            assert queue.waiting_version > before[1], "a change that nobody could notice"
            assert queue.waiting is not before[3]
    assert queue.waiting is queue.waiting, "the same line until something changes"


def test_a_line_is_a_sequence_of_those_who_wait():
    queue = RequestQueue()
    for i in range(4):
        queue.add(live(waiting(i)))
    queue.admit(queue.waiting[0], 0)
    line = queue.waiting
    assert [request.request_id for request in line] == [1, 2, 3]
    assert (line[-1].request_id, [request.request_id for request in line[1:]]) == (3, [2, 3])
    with pytest.raises(IndexError, match="place 3 in a line of 3"):
        line[3]


def test_the_list_forgets_those_who_wait_no_more():
    queue = RequestQueue()
    for i in range(1_000):
        queue.add(live(waiting(i)))
        queue.admit(queue.waiting[0], i)
        queue.check()
    assert len(queue._line) < 200, "a queue that is never long must not become so"


def test_the_checker_catches_up_with_tokens_that_were_not_looked_at():
    one = live(running(0, generated=0))
    one.request.generated.extend(b"some text")
    one.catch_up()
    assert one.stop_checker.text == "some text"
    one.request.generated.extend(b"!")
    one.catch_up()
    assert one.stop_checker.text == "some text!"


def test_a_request_is_live_once():
    queue = RequestQueue()
    queue.add(live(waiting(0)))
    with pytest.raises(AssertionError):
        queue.add(live(waiting(0)))
