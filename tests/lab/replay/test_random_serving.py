"""Random serving through the whole executor: every operation in any order, everything checked after each of them.

The runner computes nothing, so thousands of steps are cheap; all else is the engine's own: queue, both schedulers,
refit, ledger, reuse tree with host tier, slots, pauses, drafts, overlap, aborts.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.config import EngineConfig, KVCacheConfig, SchedulerConfig
from engine.llm_request import RequestSpec
from lab.replay.null_engine import build_null_engine, length_params

MAX_SEQ_LEN = 48
PROMPT = 24
ANSWER = 12
CACHES = [
    {"enable_block_reuse": False},
    {"enable_partial_reuse": False},
    {"enable_partial_reuse": True},
    {"enable_partial_reuse": True, "host_blocks": 5},
]


class Serving(RuleBasedStateMachine):
    """Requests come, are aborted, continue each other, and are served by an engine that is too small for them."""

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
        smallest = -(-MAX_SEQ_LEN // tokens_per_block)
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
