"""The device derives tokens, positions and lengths of unread verify rows exactly as a host that had read them."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.attention.interface import MetadataCapacity
from engine.attention.vanilla import VanillaBackend
from engine.config import SamplingParams
from engine.device import DeviceRegistry, make_stream, resolve_device
from engine.inputs.input_buffers import DecoderInputBuffers
from engine.inputs.pack import pack
from engine.inputs.prepare import DecoderInputPreparer, attention_step
from engine.inputs.records import SampleStateTensors, Writer
from engine.kv_cache.storage import KVStorage
from engine.llm_request import LlmRequest, RequestSpec, RequestState
from engine.scheduled import BudgetUse, PaddedBatch, RowKind, ScheduledRequests, Span, generation_span, verify_span

SPEC, SLOTS, MOST, MAX_SEQ_LEN = resolve_device("cpu", "float32"), 7, 3, 32


class Bench:
    """A preparer, a metadata object and samples to derive from."""

    def __init__(self, lag):
        self.stream = make_stream(SPEC, lag=lag)
        buffers = DecoderInputBuffers.allocate(
            max_num_tokens=40, max_num_sequences=7, max_draft_len=MOST, spec=SPEC, registry=DeviceRegistry()
        )
        self.preparer = DecoderInputPreparer(buffers, self.stream, SPEC)
        storage = KVStorage.allocate(
            num_layers=1, num_blocks=4, tokens_per_block=8, num_kv_heads=1, head_size=4, spec=SPEC
        )
        capacity = MetadataCapacity(max_num_sequences=7, max_num_tokens=40, max_blocks_per_seq=8, tokens_per_block=8)
        self.metadata = VanillaBackend(spec=SPEC, stream=self.stream).make_metadata(storage, capacity)
        self.samples = SampleStateTensors(
            torch.randint(1000, (1 + MOST, SLOTS, 1), dtype=torch.int32),
            torch.zeros(SLOTS, dtype=torch.int32),
            torch.zeros((SLOTS, MAX_SEQ_LEN), dtype=torch.int32),
            torch.full((SLOTS,), 1000, dtype=torch.int32),  # a slot without a guess may hold anything
        )

    def prepare(self, batch):
        host = pack(batch, lambda _id: tuple(range(8)))
        host.check()
        prepared = self.preparer.copy_inputs(host, self.samples, self.metadata)
        self.metadata.prepare(attention_step(host))
        self.preparer.correct_lengths(host, self.metadata)
        self.stream.synchronize()
        return host, prepared


def request_of(slot, prompt_len, generated, max_new, guess):
    spec = RequestSpec(slot, tuple(range(prompt_len)), SamplingParams(max_tokens=max_new), draft_tokens=guess)
    request = LlmRequest(spec)
    request.generated.extend(generated)
    request.context_current_position = prompt_len
    request.state = RequestState.GENERATION_IN_PROGRESS
    request.py_seq_slot = request.py_batch_idx = slot
    return request


def batch_of(spans, draft_len, num_padding):
    budget = BudgetUse(40, 40, 6, 6)
    dummy = LlmRequest(RequestSpec(99, (1,), SamplingParams(max_tokens=1 + draft_len), is_dummy=True))
    dummy.py_seq_slot = SLOTS - 1
    padding = (Span(dummy, RowKind.PADDING, 0, 1 + draft_len, 1 + draft_len),) * num_padding
    scheduled = ScheduledRequests((), spans, (), (), budget, draft_len=draft_len)
    return PaddedBatch(scheduled, (*spans, *padding), num_padding)


@st.composite
def steps(draw):
    """Requests by slot: (prompt length, known tokens, room, drafts of the unread step, accepted of them)."""
    one = st.tuples(
        st.integers(1, 5), st.integers(1, 6), st.integers(2, 12), st.integers(0, MOST), st.integers(0, MOST)
    )
    return draw(st.lists(one, min_size=1, max_size=4)), draw(st.integers(0, MOST)), draw(st.integers(0, 2))


@settings(deadline=None, max_examples=200)
@given(steps(), st.sampled_from([0, 30]), st.booleans())
def test_rows_are_those_of_a_host_that_has_read_the_samples(step, lag, has_host_row):
    rows, draft_len, num_padding = step
    bench, known, spans = Bench(lag), [], []
    if has_host_row:
        ready = request_of(5, 2, (7,), 20, tuple(range(200, 230)))
        ready.py_batch_idx = None
        spans.append(verify_span(ready, draft_len) if draft_len else generation_span(ready))
        known.append(ready)
    for slot, (prompt_len, num_known, room, unread, wish) in enumerate(rows):
        guess = tuple(range(300 + 40 * slot, 330 + 40 * slot))
        generated = list(range(50, 50 + num_known))
        accepted = min(wish, unread, room - 1)
        request = request_of(slot, prompt_len, generated, num_known + room, guess)
        request.num_in_flight = 1 + unread
        bench.samples.num_accepted[slot] = accepted if unread else MOST  # of a plain step the count is stale
        bench.samples.guesses[slot, : len(guess)] = torch.tensor(guess)
        bench.samples.guess_starts[slot] = prompt_len
        spans.append(verify_span(request, draft_len) if draft_len else generation_span(request))
        read = bench.samples.new_tokens[: 1 + accepted, slot, 0].tolist()
        known.append(request_of(slot, prompt_len, [*generated, *read], num_known + room, guess))
    host, prepared = bench.prepare(batch_of(tuple(spans), draft_len, num_padding))
    for at, request in enumerate(known):
        first, limit = at * (1 + draft_len), request.max_total_tokens - 1
        start = request.num_tokens - 1
        expected = [request.generated[-1]]
        if draft_len:
            expected += verify_span(request, draft_len).draft_tokens
        live = min(1 + draft_len, limit - start)
        positions = prepared.position_ids[0, 0, first : first + 1 + draft_len].tolist()
        assert positions == [min(start + k, limit) for k in range(1 + draft_len)]
        assert prepared.input_ids[first : first + live].tolist() == expected[:live]
        assert int(bench.metadata.kv_lens[at]) == min(start + 1 + draft_len, limit)
        assert int(bench.metadata.kv_lens[at]) <= attention_step(host).kv_lens[at], "the host's is an upper bound"
    writers = {(write.buffer, write.writer) for write in prepared.writes}
    is_corrected = host.drafts is not None
    assert (("position_ids", Writer.IN_PLACE_ADD) in writers) == is_corrected
    dummies = prepared.input_ids[len(known) * (1 + draft_len) :]
    assert not dummies.any()


def test_addresses_stay_and_nothing_is_allocated_from_step_to_step():
    bench = Bench(0)
    seen = set()
    for unread in (1, 3, 2):
        request = request_of(0, 2, (5, 6), 20, tuple(range(20)))
        request.num_in_flight = 1 + unread
        _, prepared = bench.prepare(batch_of((verify_span(request, 2),), 2, 1))
        seen.add((prepared.input_ids.data_ptr(), prepared.position_ids.data_ptr(), bench.metadata.kv_lens.data_ptr()))
    assert len(seen) == 1
