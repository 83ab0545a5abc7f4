"""SmolLM2-135M against an independent implementation: Hugging Face transformers' greedy tokens, by margin.

Pairwise over graphs x backend x padding x chunk budget: every pair of values of two features occurs in some row.
"""

import itertools

import pytest

from engine import LLM
from tests.equivalence.golden import golden_cases
from tests.equivalence.table import Row, assert_row

pytestmark = pytest.mark.smollm2

PAIRWISE = [
    Row(graphs=True, backend="native", padding=True, budget=None),
    Row(graphs=True, backend="vanilla", padding=False, budget=64),
    Row(graphs=False, backend="vanilla", padding=True, budget=24),
    Row(graphs=False, backend="native", padding=False, budget=64),
    Row(graphs=True, backend="native", padding=False, budget=24, prefill=(24,)),
    Row(graphs=False, backend="vanilla", padding=False, budget=None),
    Row(graphs=True, backend="vanilla", padding=True, budget=64, prefill=(16, 64)),
]


def test_the_rows_cover_every_pair_of_values():
    values = [(row.graphs, row.backend, row.padding, row.budget) for row in PAIRWISE]
    domains = [(True, False), ("native", "vanilla"), (True, False), (None, 64, 24)]
    for one, other in itertools.combinations(range(4), 2):
        seen = {(row[one], row[other]) for row in values}
        assert seen == set(itertools.product(domains[one], domains[other]))


def test_each_text_tokenises_to_the_reference_ids():
    from engine.device import resolve_device
    from engine.models.registry import load_model

    tokenizer = load_model("smollm2-135m", resolve_device("cpu", "float32")).tokenizer
    for prompt, case in golden_cases():
        assert tuple(tokenizer.encode(prompt)) == case.prompt_ids


@pytest.mark.parametrize("row", PAIRWISE, ids=str)
def test_greedy_tokens_equal_the_independent_reference(row):
    cases = [case for _prompt, case in golden_cases()]
    with LLM("smollm2-135m", row.config("cpu", max_seq_len=256)) as llm:
        assert_row(llm, row, cases)
