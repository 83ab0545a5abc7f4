"""A learner's lists take the place of the engine's."""

import numpy as np
import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from engine.errors import ExerciseError
from lab.exercises import plug
from lab.exercises.catalogue import load
from lab.exercises.child import load_answer
from lab.exercises.exercise import Exercise
from lab.exercises.repack import whole_numbers
from tests.exercises.answers import answers

PACKING = ("ex09", "ex10", "ex12", "ex14")
PROMPTS = [[1, 2, 3], [4, 5, 6, 7], [(3 * k) % 90 + 1 for k in range(21)]]
CONFIG = EngineConfig(
    device="cpu",
    max_seq_len=64,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=24, chunking="fcfs", chunk_unit=8, draft_len=2),
    cuda_graph=CudaGraphConfig(batch_sizes=(4,)),
)


def _tokens(decisions):
    """Three requests on a graph of four, one of whose prompts is computed in two chunks, with drafts."""
    with LLM("tiny", CONFIG, decisions=decisions) as llm:
        return [out.token_ids for out in llm.generate(PROMPTS, SamplingParams(max_tokens=6, ignore_eos=True))]


@pytest.fixture(scope="module")
def expected():
    return _tokens(None)


def _function(name, kind, which, rule):
    exercise: Exercise = load(name)
    answer = answers(exercise, kind)[which]
    return load_answer(answer.source, answer.name, rule)


@pytest.mark.parametrize("name", PACKING)
@pytest.mark.parametrize("rule", ["a", "b"])
def test_a_right_answer_leads_to_the_engines_own_tokens(name, rule, expected):
    assert _tokens(plug(name, _function(name, "solution", 0, rule), rule=rule)) == expected


def test_slots_in_the_wrong_order_give_a_user_another_ones_words(expected):
    right = _function("ex10", "solution", 0, "a")

    def swapped(rows, samples, pad):
        filled = right(rows, samples, pad)
        return filled | {"gathered": filled["gathered"][::-1]}

    assert _tokens(plug("ex10", swapped)) != expected


def test_what_is_no_list_of_integers_is_refused():
    assert whole_numbers([np.int64(3), 4], "rows") == (3, 4)
    with pytest.raises(ExerciseError, match=r"rows must be integers, got \[3, 4.0\]"):
        whole_numbers([3, 4.0], "rows")
