"""Random serving through the whole executor: every operation in any order, everything checked after each of them.

The runner computes nothing, so thousands of steps are cheap; all else is the engine's own: queue, both schedulers,
refit, ledger, reuse tree with host tier, slots, pauses, drafts, overlap, aborts.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.config import EngineConfig, KVCacheConfig, SchedulerConfig
from engine.executor.lifecycle import num_final_tokens
from engine.llm_request import RequestSpec
from lab.replay.null_engine import build_null_engine, length_params

MAX_SEQ_LEN = 48
PROMPT = 24
ANSWER = 12
HOLDER = (1 << 62) + 1_000_000  # ids up there are no requests; the padding dummy has the first of them
CACHES = [
    {"enable_block_reuse": False},
    {"enable_partial_reuse": False},
    {"enable_partial_reuse": True},
    {"enable_partial_reuse": True, "host_blocks": 5},
]


class Serving(RuleBasedStateMachine):
    """Requests come, are aborted and forked, continue each other, in an engine that is too small for them."""

    @initialize(
        policy=st.sampled_from(["guaranteed_no_evict", "max_utilization", "static_batch"]),
        chunking=st.sampled_from([None, "fcfs", "equal_progress"]),
        overlap=st.booleans(),
        tokens_per_block=st.sampled_from([1, 4, 16]),
        spare_blocks=st.integers(0, 12),
        kv=st.sampled_from(CACHES),
        max_batch_size=st.integers(1, 4),
        draft_len=st.integers(1, 3),
    )
    def start(self, *, policy, chunking, overlap, tokens_per_block, spare_blocks, kv, max_batch_size, draft_len):
        """Build an engine whose pool holds the longest request and little more."""
        self.spare_blocks, smallest = spare_blocks, -(-MAX_SEQ_LEN // tokens_per_block)
        self.engine = build_null_engine(
            EngineConfig(
                device="cpu",
                max_seq_len=MAX_SEQ_LEN,
                overlap=overlap,
                scheduler=SchedulerConfig(
                    max_batch_size=max_batch_size,
                    max_num_tokens=PROMPT + ANSWER + max_batch_size * (1 + draft_len) + 16,
                    capacity_policy=policy,
                    chunking=chunking,
                    chunk_unit=4,
                    draft_len=draft_len,
                ),
                kv_cache=KVCacheConfig(num_blocks=smallest + spare_blocks, tokens_per_block=tokens_per_block, **kv),
            )
        )
        self.wanted: dict[int, int] = {}  # live request -> tokens that it is to get
        self.known: dict[int, RequestSpec] = {}
        self.done: dict[int, object] = {}
        self.aborted: set[int] = set()
        self.forks: dict[int, tuple[int, ...]] = {}  # holder that is no request -> its blocks
        self.num_forks = 0

    def submit(self, prompt, num_tokens, **fields):
        request_id = len(self.known)
        spec = RequestSpec(request_id, tuple(prompt), length_params(num_tokens), max_new_tokens=num_tokens, **fields)
        self.known[request_id] = spec
        self.wanted[request_id] = num_tokens
        self.engine.submit(spec)

    @rule(
        family=st.integers(0, 2),
        length=st.integers(1, PROMPT),
        num_tokens=st.integers(1, ANSWER),
        salt=st.sampled_from([None, None, "a"]),
    )
    def submit_from_a_family(self, family, length, num_tokens, salt):
        """Submit a prompt that begins as others of its family do."""
        self.submit([1000 * family + at // 6 for at in range(length)], num_tokens, cache_salt=salt)

    @rule(num_right=st.integers(0, 6), num_wrong=st.integers(0, 6), num_tokens=st.integers(1, ANSWER))
    def submit_with_drafts(self, num_right, num_wrong, num_tokens):
        """Submit with a guess of the answer whose beginning is right."""
        own = len(self.known)
        self.submit(range(5), num_tokens, draft_tokens=(own,) * num_right + (own + 7,) * num_wrong)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), num_tokens=st.integers(1, ANSWER))
    def continue_another(self, data, num_tokens):
        """Submit what another request was asked and has answered so far, as the next turn of a chat would."""
        old = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        finished = self.done.get(old.request_id)
        history = (*old.prompt_token_ids, *(finished.generated if finished is not None else ()))
        self.submit(history[: PROMPT + ANSWER], num_tokens)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def abort(self, data):
        """End a live request, wherever it stands."""
        request_id = data.draw(st.sampled_from(sorted(self.wanted)))
        self.engine.executor.abort(request_id)
        self.aborted.add(request_id)
        self.take()

    @rule(times=st.integers(1, 4))
    def step(self, times):
        """Run some steps."""
        for _ in range(times):
            self.engine.executor.step()
            self.check_engine()
            self.take()

    @precondition(lambda self: self.engine.resources.kv_cache.num_free_blocks)
    @rule(data=st.data())
    def evict(self, data):
        """Ask for free blocks, as a request would, so that what is cached in them must go; then give them back."""
        kv_cache = self.engine.resources.kv_cache
        most = min(kv_cache.num_free_blocks, kv_cache.blocks_for(MAX_SEQ_LEN))
        count, cached = data.draw(st.integers(1, most)), kv_cache.num_cached_blocks
        before = {i: kv_cache.block_table(i) for i in kv_cache.live_request_ids}
        kv_cache.reserve(HOLDER, count * kv_cache.tokens_per_block)
        taken = set(kv_cache.block_table(HOLDER))
        assert not taken & {block for table in before.values() for block in table}, "a block in use was taken"
        assert {i: kv_cache.block_table(i) for i in before} == before
        assert kv_cache.num_cached_blocks <= cached
        self.check_engine()
        kv_cache.free(HOLDER)

    def num_final_blocks(self, request_id):
        """Count the full blocks whose content nobody writes any more."""
        kv_cache, live = self.engine.resources.kv_cache, self.engine.executor._queue.live
        if request_id not in live or not kv_cache.num_reserved_tokens(request_id):
            return 0
        return num_final_tokens(live[request_id].request) // kv_cache.tokens_per_block

    def forkable(self):
        return [i for i in sorted(self.wanted) if self.spare_blocks and self.num_final_blocks(i)]

    @precondition(lambda self: not self.forks and self.forkable())
    @rule(data=st.data())
    def fork(self, data):
        """Let somebody else hold the full blocks of a request; whatever becomes of it, they stay as they are."""
        kv_cache = self.engine.resources.kv_cache
        parent = data.draw(st.sampled_from(self.forkable()))
        count = data.draw(st.integers(1, min(self.num_final_blocks(parent), self.spare_blocks)))
        child = HOLDER + 1 + self.num_forks
        self.num_forks += 1
        free = kv_cache.num_free_blocks
        assert kv_cache.fork(parent, child, count * kv_cache.tokens_per_block) == (), "full blocks are shared"
        assert kv_cache.num_free_blocks == free
        self.forks[child] = kv_cache.block_table(child)
        assert self.forks[child] == kv_cache.block_table(parent)[:count]

    @precondition(lambda self: self.forks)
    @rule()
    def drop_fork(self):
        """Give shared blocks back, of a request that may be gone by now."""
        child, table = self.forks.popitem()
        assert self.engine.resources.kv_cache.block_table(child) == table
        self.engine.resources.kv_cache.free(child)

    def take(self):
        for finished in self.engine.executor.take_finished():
            request = finished.request
            num_tokens = self.wanted.pop(request.request_id)
            self.done[request.request_id] = request
            assert request.error is None, request.error
            assert set(request.generated) <= {request.request_id}
            if request.finish_reason == "abort":
                assert request.request_id in self.aborted
                assert len(request.generated) <= num_tokens
            else:
                assert request.finish_reason == "length"
                assert len(request.generated) == num_tokens

    @invariant()
    def check_engine(self):
        """Recompute everything that the engine remembers."""
        if hasattr(self, "engine"):
            self.engine.executor.check()

    def teardown(self):
        """Serve what is left: everybody ends, and every block comes back."""
        if not hasattr(self, "engine"):
            return
        executor, num_steps = self.engine.executor, 0
        for child in self.forks:
            self.engine.resources.kv_cache.free(child)
        while executor.has_unfinished:
            executor.step()
            executor.check()
            self.take()
            num_steps += 1
            assert num_steps < 100 + 60 * len(self.known), "a request waits for ever"
        assert not self.wanted
        assert self.engine.num_leaked_blocks == 0


TestServing = Serving.TestCase
TestServing.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
