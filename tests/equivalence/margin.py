"""Equal by margin: the rule under which two paths count as the same.

Real rows differ bitwise with the batch shape, so tokens are compared up to the first step whose top-two margin in the
reference is under the tolerance; there the tie is asserted (the other token is the runner-up by the reference's own
numbers where it has them), and the comparison goes on from prompt + reference ids, so that no case compares nothing.
"""

import collections
import dataclasses

from engine import LLM, RequestOutput, SamplingParams
from engine.cuda_graphs.select import Selection
from engine.inputs.records import RunEvent
from engine.probe import Stage
from engine.reasons import PathKind
from engine.scheduled import PaddedBatch, ScheduledRequests

TOLERANCE = 0.02


@dataclasses.dataclass(frozen=True)
class Case:
    """A prompt with the greedy tokens of the reference and the margin of each step's top two logits."""

    prompt_ids: tuple[int, ...]
    greedy_ids: tuple[int, ...]
    margins: tuple[float, ...]


class PathCounter:
    """A probe that counts which fast paths fired: a combination whose path never fires proves nothing."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self._num_open = 0  # steps that were scheduled and are not final

    def emit(self, stage: Stage, step: int, value: object) -> None:
        if stage is Stage.SCHEDULED:
            self.counts["overlapped"] += self._num_open > 0
            self._num_open += 1
        elif stage is Stage.COMMITTED:
            self._num_open -= 1
        if isinstance(value, ScheduledRequests):
            self.counts["unfinished_chunk"] += any(not span.num_logit_rows for span in value.context_requests)
            self.counts["mixed"] += bool(value.context_requests and value.generation_requests)
        elif isinstance(value, PaddedBatch):
            self.counts["padded"] += bool(value.num_padding)
            self.counts["promoted"] += bool(value.promoted_request_ids)
        elif isinstance(value, Selection):
            self.counts[f"refused:{value.reason}"] += value.reason is not None
        elif isinstance(value, RunEvent):
            self.counts[value.path.value] += 1
            self.counts["steady"] += value.steady_refusal is None

    @property
    def num_replays(self) -> int:
        return self.counts[PathKind.REPLAY.value]


def reference_cases(llm: LLM, prompts: list[list[int]], num_tokens: list[int]) -> list[Case]:
    """Run each prompt alone for its number of tokens and keep the margins."""
    cases = []
    for prompt, count in zip(prompts, num_tokens, strict=True):
        params = SamplingParams(max_tokens=count, ignore_eos=True, logprobs=2)
        (output,) = llm.generate([prompt], params)
        tops = [sorted(row.values(), reverse=True) for row in output.logprobs or ()]
        cases.append(Case(tuple(prompt), output.token_ids, tuple(top[0] - top[1] for top in tops)))
    return cases


def first_difference(case: Case, start: int, token_ids: tuple[int, ...]) -> int | None:
    """Compare from step ``start``; return the step of a tie to go on behind, None when the rest is equal."""
    for at, got in enumerate(token_ids, start):
        if got != case.greedy_ids[at]:
            assert case.margins[at] < TOLERANCE, (
                f"step {at}: token {got} instead of {case.greedy_ids[at]} at a margin of {case.margins[at]:.4f}"
            )
            return at
    return None


def serve(llm: LLM, prompts: list[list[int]], params: list[SamplingParams], *, together: bool) -> list[RequestOutput]:
    """Serve prompts one after the other, or in one continuous batch that a request joins at every step."""
    if not together:
        return [llm.generate([prompt], one)[0] for prompt, one in zip(prompts, params, strict=True)]
    request_ids, outputs = [], []
    for prompt, one in zip(prompts, params, strict=True):
        request_ids.append(llm.submit(prompt, one))
        outputs += llm.step()
    while llm.has_unfinished:
        outputs += llm.step()
    by_id = {output.request_id: output for output in outputs}
    return [by_id[request_id] for request_id in request_ids]


def assert_equal_by_margin(llm: LLM, cases: list[Case], *, together: bool) -> int:
    """Run the cases, alone or in one continuous batch, and compare by margin. Returns the tokens compared."""
    starts = dict.fromkeys(range(len(cases)), 0)
    compared = 0
    while starts:
        indices = list(starts)
        prompts = [[*cases[i].prompt_ids, *cases[i].greedy_ids[: starts[i]]] for i in indices]
        params = [SamplingParams(max_tokens=len(cases[i].greedy_ids) - starts[i], ignore_eos=True) for i in indices]
        for index, output in zip(indices, serve(llm, prompts, params, together=together), strict=True):
            assert output.finish_reason == "length", output.error
            tie = first_difference(cases[index], starts[index], output.token_ids)
            compared += (len(cases[index].greedy_ids) if tie is None else tie) - starts[index]
            if tie is None or tie + 1 == len(cases[index].greedy_ids):
                del starts[index]
            else:
                starts[index] = tie + 1
    return compared
