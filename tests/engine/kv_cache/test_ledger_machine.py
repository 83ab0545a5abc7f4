"""Any life of a few requests through the managers, against a model that knows nothing of blocks' owners.

The model keeps what every token of every block would hold on each tier: the whole beginning of the sequence that it
ends. It runs the copies, writes what a forward would write, and looks whether what a request believes to be computed
is what lies in its blocks. What may match is a dictionary of token lists.
"""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.config import SamplingParams
from engine.errors import OutOfBlocksError
from engine.kv_cache.copies import CopyKind
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.seq_slots import SeqSlotManager
from engine.llm_request import LlmRequest, RequestSpec
from engine.resources import ResourceManager
from engine.scheduled import BudgetUse, RowKind, ScheduledRequests, Span, context_span

SIZE = 2
NEVER_WRITTEN = ("nothing",)


class LedgerMachine(RuleBasedStateMachine):
    num_blocks, host_blocks, partial = 7, 0, True

    def __init__(self):
        super().__init__()
        self.kv = KVCacheManager(
            num_blocks=self.num_blocks,
            tokens_per_block=SIZE,
            max_seq_len=14,
            host_blocks=self.host_blocks,
            enable_partial_reuse=self.partial,
        )
        self.resources = ResourceManager(self.kv, SeqSlotManager(6))
        self.device = {(block, at): NEVER_WRITTEN for block in range(self.num_blocks) for at in range(SIZE)}
        self.host = {(block, at): NEVER_WRITTEN for block in range(self.host_blocks) for at in range(SIZE)}
        self.live: dict[int, LlmRequest] = {}
        self.computed: dict[int, int] = {}  # tokens whose keys and values are there
        self.matchable: dict[str | None, list[list[int]]] = {None: [], "salt": []}
        self.ids = itertools.count()

    # The model

    def truth(self, request, position):
        return (request.spec.cache_salt, *request.token_range(0, position + 1))

    def run_copies(self, copies):
        pools = {
            CopyKind.DEVICE: (self.device, self.device),
            CopyKind.OFFLOAD: (self.device, self.host),
            CopyKind.ONBOARD: (self.host, self.device),
        }
        for copy in copies:
            source, target = pools[copy.kind]
            for at in range(copy.num_tokens):
                target[copy.target, at] = source[copy.source, at]

    def forward(self, span):
        table = self.kv.block_table(span.request_id)
        for position in range(span.start, span.end):
            self.device[table[position // SIZE], position % SIZE] = self.truth(span.request, position)

    def expected_credit(self, request):
        """The longest beginning, last token aside, that any committed list shares."""
        wanted = list(request.token_range(0, request.py_prompt_len - 1))
        common = [
            next(
                (at for at, (a, b) in enumerate(zip(wanted, known, strict=False)) if a != b),
                min(len(wanted), len(known)),
            )
            for known in self.matchable[request.spec.cache_salt]
        ]
        best = max(common, default=0)
        return best if self.partial else best // SIZE * SIZE

    def commit(self, request, num_tokens):
        self.resources.commit(request.request_id, num_tokens)
        self.computed[request.request_id] = num_tokens
        full = num_tokens // SIZE * SIZE
        self.matchable[request.spec.cache_salt].append(list(request.token_range(0, full)))

    def pick(self, which):
        return list(self.live.values())[which % len(self.live)]

    def has_live(self):
        return bool(self.live)

    # What happens

    @precondition(lambda self: len(self.live) < 6)
    @rule(
        prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=9), min_size=1, max_size=2),
        salt=st.sampled_from([None, None, "salt"]),
        rows=st.integers(1, 9),
        fate=st.sampled_from(["commit", "commit", "commit", "claim", "reserve", "forward"]),
    )
    def start(self, prompts, salt, rows, fate):
        requests = [
            LlmRequest(RequestSpec(next(self.ids), tuple(prompt), SamplingParams(max_tokens=99), cache_salt=salt))
            for prompt in prompts[: 6 - len(self.live)]
        ]
        self.run_contexts(requests, rows, fate)

    @precondition(lambda self: len(self.live) < 6)
    @rule(prompt=st.lists(st.integers(0, 1), min_size=3, max_size=9))
    def serve(self, prompt):
        """A whole life in one step; what it leaves is cached."""
        request = LlmRequest(RequestSpec(next(self.ids), tuple(prompt), SamplingParams(max_tokens=99)))
        self.run_contexts([request], 99, "commit")
        if request.request_id in self.live:
            self.finish_one(request)

    @precondition(has_live)
    @rule(which=st.integers(0, 9), rows=st.integers(1, 9))
    def next_chunk(self, which, rows):
        request = self.pick(which)
        request.context_current_position = self.computed[request.request_id]
        if request.context_remaining_length > 0:
            self.run_contexts([request], rows, "commit")

    def run_contexts(self, requests, rows, fate):
        before = {request.request_id: self.kv.block_table(request.request_id) for request in requests}
        num_free = self.kv.num_free_blocks
        spans = tuple(context_span(r, min(rows, r.context_remaining_length)) for r in requests)
        claim = self.resources.claim(ScheduledRequests(spans, (), (), (), BudgetUse(0, 99, 0, 9)))
        for request_id, tokens in claim.credits:
            (request,) = [r for r in requests if r.request_id == request_id]
            assert 0 < tokens <= self.expected_credit(request)
            request.context_current_position = tokens
        granted = claim
        if fate != "claim":
            spans = tuple(context_span(r, min(rows, r.context_remaining_length)) for r in requests)
            try:
                granted = self.resources.reserve(ScheduledRequests(spans, (), (), (), BudgetUse(0, 99, 0, 9)), claim)
            except OutOfBlocksError:
                granted = None
        is_done = granted is not None and fate in ("forward", "commit")
        if is_done:
            self.run_copies(granted.block_copies)
            self.look_at_credits(claim, requests)
            for span in spans:
                self.forward(span)
        if not (is_done and fate == "commit"):
            if granted is not None:
                self.resources.rollback(granted)
            assert {request_id: self.kv.block_table(request_id) for request_id in before} == before
            assert self.kv.num_free_blocks == num_free
            return
        for span in spans:
            self.live[span.request_id] = span.request
            self.commit(span.request, span.end)

    def look_at_credits(self, claim, requests):
        by_id = {request.request_id: request for request in requests}
        for request_id, tokens in claim.credits:
            self.look(by_id[request_id], tokens)

    def look(self, request, num_tokens):
        table = self.kv.block_table(request.request_id)
        for position in range(num_tokens):
            assert self.device[table[position // SIZE], position % SIZE] == self.truth(request, position)

    @precondition(has_live)
    @rule(which=st.integers(0, 9), tokens=st.lists(st.integers(0, 1), min_size=1, max_size=3))
    def verify(self, which, tokens):
        """Several rows at once, of which only some are kept; one row is a decode step."""
        request = self.pick(which)
        computed = self.computed[request.request_id]
        if computed < request.py_prompt_len or computed + len(tokens) > 14:
            return
        span = Span(request, RowKind.EXTEND, computed, len(tokens), len(tokens))
        try:
            granted = self.resources.reserve(ScheduledRequests((), (span,), (), (), BudgetUse(0, 99, 0, 9)))
        except OutOfBlocksError:
            return
        self.run_copies(granted.block_copies)
        request.generated.extend(tokens)
        self.forward(span)
        kept = computed + 1
        del request.generated[kept - request.py_orig_prompt_len :]
        self.commit(request, kept)
        assert self.resources.rewind(request.request_id, kept) == kept

    @precondition(has_live)
    @rule(which=st.integers(0, 9), rows=st.integers(1, 5), behind=st.integers(0, 9), has_run=st.booleans())
    def undo_behind_an_open_step(self, which, rows, behind, has_run):
        """A step is laid out behind one that is not final yet, and taken back; then the first becomes final."""
        first, second = self.pick(which), self.pick(behind)
        at, ahead = self.computed[first.request_id], self.computed[second.request_id] + (first is second)
        if at < first.py_prompt_len or at >= 14 or ahead + rows > 14:
            return
        span = Span(first, RowKind.GENERATION, at, 1, 1)
        behind_span = Span(second, RowKind.EXTEND, ahead, rows, rows)
        try:
            granted = self.resources.reserve(ScheduledRequests((), (span,), (), (), BudgetUse(0, 99, 0, 9)))
        except OutOfBlocksError:
            return
        self.run_copies(granted.block_copies)
        first.generated.append(0)
        self.forward(span)
        before = self.kv.block_table(second.request_id), self.kv.num_free_blocks
        try:
            undone = self.resources.reserve(ScheduledRequests((), (behind_span,), (), (), BudgetUse(0, 99, 0, 9)))
            if has_run:
                self.run_copies(undone.block_copies)
            self.resources.rollback(undone)
        except OutOfBlocksError:
            pass
        assert (self.kv.block_table(second.request_id), self.kv.num_free_blocks) == before
        self.commit(first, at + 1)

    @precondition(has_live)
    @rule(which=st.integers(0, 9), share=st.floats(0, 1))
    def rewind(self, which, share):
        """Also into what is committed or shared: then fewer tokens may be held, never others."""
        request = self.pick(which)
        wanted = round(share * self.computed[request.request_id])
        held = self.resources.rewind(request.request_id, wanted)
        assert wanted - SIZE < held <= wanted
        self.computed[request.request_id] = held
        if held < request.py_orig_prompt_len:
            request.py_prompt_len = request.py_orig_prompt_len
            request.generated.clear()
        else:
            del request.generated[held - request.py_orig_prompt_len :]

    @precondition(lambda self: 0 < len(self.live) < 6)
    @rule(which=st.integers(0, 9))
    def fork(self, which):
        parent = self.pick(which)
        child = LlmRequest(
            RequestSpec(next(self.ids), tuple(parent.tokens), parent.spec.params, cache_salt=parent.spec.cache_salt)
        )
        num_tokens = self.computed[parent.request_id]
        try:
            copies = self.kv.fork(parent.request_id, child.request_id, num_tokens)
        except OutOfBlocksError:
            return
        self.kv.watch(child)
        self.run_copies(copies)
        self.live[child.request_id] = child
        self.computed[child.request_id] = num_tokens

    @precondition(has_live)
    @rule(which=st.integers(0, 9))
    def finish(self, which):
        self.finish_one(self.pick(which))

    def finish_one(self, request):
        self.resources.free(request.request_id)
        del self.live[request.request_id], self.computed[request.request_id]

    @rule(count=st.integers(1, 7))
    def squeeze(self, count):
        """Somebody takes many blocks for a moment, so that caches are evicted."""
        copies = []
        if count <= self.kv.num_free_blocks:
            self.kv.reserve(10**6, count * SIZE, copies=copies)
            self.run_copies(copies)
            for block in self.kv.block_table(10**6):
                self.device.update({(block, at): NEVER_WRITTEN for at in range(SIZE)})
            self.kv.free(10**6)

    @invariant()
    def ledgers_agree_with_memory(self):
        self.resources.check()
        for request_id, request in self.live.items():
            self.look(request, self.computed[request_id])
        assert self.kv.live_request_ids <= set(self.live)


class RoomyMachine(LedgerMachine):
    """With room for everything a claim finds all that was ever committed."""

    num_blocks = 400

    def look_at_credits(self, claim, requests):
        super().look_at_credits(claim, requests)
        credit = dict(claim.credits)
        for request in requests:
            if request.request_id not in self.live:
                assert credit.get(request.request_id, 0) == self.expected_credit(request)

    @precondition(lambda self: False)
    @rule()
    def rewind(self):
        """Left out: a rewound block leaves the tree, and the model does not know which."""


class HostMachine(LedgerMachine):
    host_blocks = 3


class TightMachine(LedgerMachine):
    """So few blocks that a match has to evict something to come back from the host."""

    num_blocks, host_blocks = 3, 5


class WholeBlocksMachine(LedgerMachine):
    host_blocks, partial = 2, False


@pytest.mark.parametrize("machine", [LedgerMachine, RoomyMachine, HostMachine, TightMachine, WholeBlocksMachine])
def test_what_lies_in_the_blocks_is_what_the_requests_computed(machine):
    case = machine.TestCase
    case.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
    case().runTest()
