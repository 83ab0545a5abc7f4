"""The greedy tokens of an independent implementation, Hugging Face transformers, for SmolLM2-135M-Instruct."""

import json
from pathlib import Path

from tests.equivalence.margin import Case

GOLDEN = Path(__file__).parents[1] / "golden" / "smollm2_greedy.json"


def golden_cases() -> list[tuple[str, Case]]:
    """Return each prompt as text, with its ids, its greedy ids and their margins."""
    loaded = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
    return [
        (case["prompt"], Case(tuple(case["prompt_ids"]), tuple(case["greedy_ids"]), tuple(case["margin"])))
        for case in loaded
    ]
