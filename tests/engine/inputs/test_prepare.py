"""Preparation writes every row that the step reads, at addresses that never change."""

import dataclasses

import pytest
import torch

from engine.attention.interface import MetadataCapacity
from engine.attention.vanilla import VanillaBackend
from engine.device import DeviceRegistry, LaggedStream, Stream, make_stream, resolve_device
from engine.errors import CapacityError
from engine.inputs.host_inputs import HostInputs, LogitRows, Segment, TokenSource
from engine.inputs.input_buffers import DecoderInputBuffers
from engine.inputs.prepare import DecoderInputPreparer, attention_step
from engine.inputs.records import SampleStateTensors, Writer
from engine.kv_cache.storage import KVStorage

SPEC = resolve_device("cpu", "float32")
SENTINEL = -7777


def host_inputs(num_context_rows: int, slots: tuple[int, ...], num_dummies: int) -> HostInputs:
    device_end = num_context_rows + len(slots)
    num_tokens = device_end + num_dummies
    lengths = ((num_context_rows,) if num_context_rows else ()) + (1,) * (len(slots) + num_dummies)
    num_seqs = len(lengths)
    return HostInputs(
        input_ids=tuple(range(100, 100 + num_context_rows)),
        position_ids=tuple(range(num_tokens)),
        previous_batch_indices=slots,
        logit_rows=LogitRows(
            gather_ids=tuple(range(max(num_context_rows - 1, 0), num_tokens)),
            seq_slots=tuple(range(num_tokens - max(num_context_rows - 1, 0))),
        ),
        sequence_lengths=lengths,
        prompt_lengths=lengths,
        request_ids=tuple(range(num_seqs)),
        num_cached_tokens_per_seq=(0,) * num_seqs,
        block_tables=tuple((i,) for i in range(num_seqs)),
        num_contexts=int(bool(num_context_rows)),
        segments=(
            Segment(TokenSource.HOST, 0, num_context_rows),
            Segment(TokenSource.DEVICE, num_context_rows, device_end),
            Segment(TokenSource.ZERO, device_end, num_tokens),
        ),
    )


class Bench:
    """Buffers, a preparer and a metadata object to hand on."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.registry = DeviceRegistry()
        self.buffers = DecoderInputBuffers.allocate(
            max_num_tokens=32, max_num_sequences=8, spec=SPEC, registry=self.registry
        )
        self.preparer = DecoderInputPreparer(self.buffers, stream, SPEC)
        storage = KVStorage.allocate(
            num_layers=1, num_blocks=8, tokens_per_block=16, num_kv_heads=1, head_size=4, spec=SPEC
        )
        capacity = MetadataCapacity(max_num_sequences=8, max_num_tokens=32, max_blocks_per_seq=2, tokens_per_block=16)
        self.metadata = VanillaBackend(spec=SPEC, stream=stream).make_metadata(storage, capacity)
        self.samples = SampleStateTensors(torch.arange(1000, 1009, dtype=torch.int32).view(1, 9, 1))


def test_each_row_gets_its_token_from_its_own_source_and_nothing_stays() -> None:
    bench = Bench(make_stream(SPEC))
    bench.buffers.input_ids.fill_(SENTINEL)
    prepared = bench.preparer.copy_inputs(host_inputs(3, (4, 2), 2), bench.samples, bench.metadata)
    assert prepared.input_ids.tolist() == [100, 101, 102, 1004, 1002, 0, 0]
    assert prepared.position_ids.tolist() == [[list(range(7))]]
    assert bench.buffers.input_ids[7:].eq(SENTINEL).all(), "rows past the step are not touched"
    writers = [(w.start, w.end, w.writer) for w in prepared.writes if w.buffer == "input_ids"]
    assert writers == [(0, 3, Writer.HOST_COPY), (3, 5, Writer.DEVICE_GATHER), (5, 7, Writer.ZERO_FILL)]


def test_a_shorter_step_zero_fills_the_dummy_rows_that_an_older_step_filled() -> None:
    bench = Bench(make_stream(SPEC))
    bench.preparer.copy_inputs(host_inputs(8, (), 0), None, bench.metadata)
    prepared = bench.preparer.copy_inputs(host_inputs(0, (1, 2, 3), 1), bench.samples, bench.metadata)
    assert prepared.input_ids.tolist() == [1001, 1002, 1003, 0]


def test_addresses_stay_for_ever_and_every_list_is_one_copy() -> None:
    bench = Bench(make_stream(SPEC))
    before = bench.buffers.addresses()
    copies: list[tuple[int, ...]] = []
    plain = bench.stream.copy_
    bench.stream.copy_ = lambda dst, src: (copies.append(tuple(dst.shape)), plain(dst, src))[1]
    for _ in range(100):
        copies.clear()
        bench.preparer.copy_inputs(host_inputs(3, (4, 2), 2), bench.samples, bench.metadata)
        assert len(copies) == 5, "input_ids, previous_batch_indices, position_ids, gather_ids, seq_slots"
    assert bench.buffers.addresses() == before
    assert set(bench.registry.names()) == {f"input_buffers.{name}" for name in before}


def test_on_a_late_stream_a_mirror_is_not_rewritten_before_its_copy_ran() -> None:
    stream = make_stream(SPEC, lag=1000)
    assert isinstance(stream, LaggedStream)
    bench = Bench(stream)
    seen: list[list[int]] = []
    for first in range(6):
        host = dataclasses.replace(host_inputs(2, (), 0), input_ids=(first, first + 1))
        prepared = bench.preparer.copy_inputs(host, None, bench.metadata)
        stream.launch(lambda view=prepared.input_ids: seen.append(view.tolist()))
    bench.preparer.wait_for_input_copy()
    stream.synchronize()
    assert seen == [[first, first + 1] for first in range(6)]


def test_a_step_beyond_the_buffers_is_refused_with_the_numbers() -> None:
    bench = Bench(make_stream(SPEC))
    with pytest.raises(CapacityError, match="needs 33 rows and 1 logit rows, the input buffers hold 32 and 8"):
        bench.preparer.copy_inputs(host_inputs(33, (), 0), None, bench.metadata)


def test_the_rows_behind_the_step_are_zeroed_up_to_a_prefill_bucket() -> None:
    bench = Bench(make_stream(SPEC))
    bench.buffers.input_ids.fill_(SENTINEL)
    bench.buffers.position_ids.fill_(SENTINEL)
    prepared = bench.preparer.copy_inputs(host_inputs(3, (4,), 0), bench.samples, bench.metadata, padded_num_tokens=6)
    assert prepared.input_ids.tolist() == [100, 101, 102, 1004, 0, 0]
    assert prepared.position_ids.tolist() == [[[0, 1, 2, 3, 0, 0]]]
    assert prepared.num_tokens == 4, "the rows of token padding belong to no sequence"
    assert bench.buffers.input_ids[6:].eq(SENTINEL).all()
    assert bench.buffers.position_ids[..., 6:].eq(SENTINEL).all()
    zeroed = [(w.buffer, w.start, w.end) for w in prepared.writes if w.writer is Writer.ZERO_FILL]
    assert zeroed == [("input_ids", 4, 6), ("position_ids", 4, 6)]


def test_a_step_that_fills_its_prefill_bucket_zeroes_nothing() -> None:
    bench = Bench(make_stream(SPEC))
    prepared = bench.preparer.copy_inputs(host_inputs(4, (), 0), None, bench.metadata, padded_num_tokens=4)
    assert all(write.writer is Writer.HOST_COPY for write in prepared.writes)
    assert prepared.input_ids.tolist() == [100, 101, 102, 103]


def test_a_prefill_bucket_beyond_the_buffers_is_refused() -> None:
    bench = Bench(make_stream(SPEC))
    with pytest.raises(CapacityError, match="needs 40 rows and 1 logit rows, the input buffers hold 32 and 8"):
        bench.preparer.copy_inputs(host_inputs(4, (), 0), None, bench.metadata, padded_num_tokens=40)


def test_the_attention_step_carries_the_same_numbers() -> None:
    host = host_inputs(3, (4, 2), 2)
    step = attention_step(host)
    assert step.kv_lens == (3, 1, 1, 1, 1)
    assert step.num_seqs == 5
    assert step.block_tables == host.block_tables
    assert step.padded_num_tokens is None
    assert attention_step(host, 64).padded_num_tokens == 64
