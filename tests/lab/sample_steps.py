"""Invented but well-formed snapshots, for tests of everything above the snapshot."""

import dataclasses

import numpy as np

from lab.flight import FlightView
from lab.ledger import LedgerView, NodeView, OwnersView, PlaceView
from lab.snapshot import (
    SNAPSHOT_VERSION,
    BudgetView,
    BufferView,
    CheckView,
    ConditionView,
    DeferralView,
    GraphView,
    MetadataView,
    OriginView,
    OutcomeView,
    PathView,
    ReservationView,
    RowsView,
    ScheduleView,
    SpanView,
    StepSnapshot,
    WriteView,
)
from lab.trace import (
    CaptureFact,
    DeviceFacts,
    ModelFacts,
    RequestRecord,
    Trace,
    TraceHeader,
    WarmupFacts,
)

CONDITIONS = tuple(
    ConditionView(reason, True, f"{reason} needed", f"{reason} got")
    for reason in ("GRAPHS_DISABLED", "WARMUP", "HAS_CONTEXT_UNPROMOTED", "ABOVE_LARGEST_BUCKET", "NO_DUMMY_SLOT")
)


def int32(values):
    return np.array(values, np.int32)


def decode_step(step, *, batch=8, mode="light", prompt_len=40, seed=0, tokens_per_block=16, overlap=False):
    """A replayed decode step of ``batch`` requests, ``step`` steps into their generation."""
    noise = np.random.default_rng(seed + step)
    position = prompt_len + step
    tokens = noise.integers(0, 49152, batch)
    sampled = noise.integers(0, 49152, batch)
    ids = list(range(batch))
    blocks = -(-(position + 1) // tokens_per_block)
    tables = tuple(tuple(1 + i + batch * b for b in range(blocks)) for i in ids)
    added = tuple((i, (tables[i][-1],)) for i in ids) if position % tokens_per_block == 0 else ()
    key = f"(batch {batch}, draft 0, greedy)"
    address = 0x7F00_1234_5000
    checks = tuple(CheckView(name, hex(address), hex(address), True) for name in ("kv_lens", "block_table", "seq_lens"))
    buffers = tuple(
        BufferView(
            name=name,
            layer=layer,
            address=address + 4096 * at,
            capacity=512,
            dtype="int32",
            live_rows=batch,
            writes=(WriteView(0, batch, writer),),
            origins=(OriginView(0, batch, step, writer), OriginView(batch, 40 * batch, 0, "host_copy")),
            values=int32(tokens) if mode == "full" else None,
        )
        for at, (name, layer, writer) in enumerate(
            (
                ("input_ids", "persistent", "device_gather"),
                ("position_ids", "persistent", "host_copy"),
                ("kv_lens", "metadata", "host_copy"),
            )
        )
    )
    return StepSnapshot(
        version=SNAPSHOT_VERSION,
        step=step,
        mode=mode,
        schedule=ScheduleView(
            spans=tuple(SpanView(i, "G", position, 1, 1) for i in ids),
            paused=(),
            deferrals=(DeferralView(batch, "NO_FREE_BLOCKS", 4, 3),) if step % 7 == 0 else (),
            budget=BudgetView(batch, 512, batch, 8, 1000 - batch * blocks),
        ),
        reservation=ReservationView((), (), added, 1000 - batch * blocks, ledger=_grown(added)),
        rows=RowsView(
            request_ids=int32(ids),
            kinds=np.full(batch, 2, np.uint8),
            token_ids=int32(tokens),
            positions=int32([position] * batch),
            sources=np.full(batch, 1, np.uint8),
            source_slots=int32(ids),
            gather_ids=int32(ids),
        ),
        buffers=buffers,
        metadata=MetadataView(
            object_id=140_000_000_000_000,
            backend="native",
            request_ids=int32(ids),
            seq_lens=int32([1] * batch),
            cached_lens=int32([position] * batch),
            kv_lens=int32([position + 1] * batch),
            prompt_lens=int32([prompt_len] * batch),
            seq_slots=int32(ids),
            block_tables=tables,
            num_contexts=0,
            num_tokens=batch,
            padded_num_tokens=None,
        ),
        path=PathView(key, None, batch, batch, 0, CONDITIONS),
        graph=GraphView("replay", True, key, 1 << 20, checks, flight=_flight(step, batch) if overlap else FlightView()),
        outcome=OutcomeView(
            tuple((i, int(sampled[i])) for i in ids), (), tuple(ids), (), ledger=_filled(position, tables, tokens)
        ),
        host_us=np.round(noise.gamma(2.0, 30.0, 10), 1).astype(np.float32),
    )


def _grown(added):
    """The ledger when each request of a step has got its block."""
    return LedgerView(1024, 0, owners=tuple(OwnersView(blocks[0], (i,)) for i, blocks in added))


def _filled(position, tables, tokens, tokens_per_block=16):
    """The ledger when each request's last block is full and enters the tree below the block before it."""
    if position % tokens_per_block != tokens_per_block - 1:
        return LedgerView(1024, 0)
    blocks = [table[-1] for table in tables]
    parents = [table[-2] if len(table) > 1 else -1 for table in tables]
    added = (NodeView(b, p, tuple(tokens[:4].tolist()), 16) for b, p in zip(blocks, parents, strict=True))
    return LedgerView(1024, 0, added=tuple(added), places=tuple(PlaceView(block, (block,), -1) for block in blocks))


def _flight(step, batch):
    """The order of stages where the step was laid out before the samples of the one before were read."""
    return FlightView((*range(10 * step, 10 * step + 8), 10 * step + 18, 10 * step + 19), (step - 1,), ((0, batch, 0),))


def eager_step(step, *, request_id=0, prompt_len=12):
    """The step that computes one whole prompt, eagerly, and ends the request."""
    ids = int32(range(prompt_len))
    base = decode_step(step, batch=1)
    conditions = (
        ConditionView("GRAPHS_DISABLED", True, "graphs enabled", "True"),
        ConditionView("HAS_CONTEXT_UNPROMOTED", False, "0 contexts", "1"),
        ConditionView("ABOVE_LARGEST_BUCKET", None, "at most 8 requests", "1"),
    )
    return dataclasses.replace(
        base,
        schedule=ScheduleView(
            spans=(SpanView(request_id, "C", 0, prompt_len, 1),),
            paused=(),
            deferrals=(),
            budget=BudgetView(prompt_len, 512, 1, 8, 90),
        ),
        reservation=ReservationView((), ((request_id, 0),), ((request_id, (3,)),), 90),
        rows=RowsView(
            request_ids=int32([request_id] * prompt_len),
            kinds=np.zeros(prompt_len, np.uint8),
            token_ids=ids + 100,
            positions=ids,
            sources=np.zeros(prompt_len, np.uint8),
            source_slots=int32([-1] * prompt_len),
            gather_ids=int32([prompt_len - 1]),
        ),
        path=PathView(None, "HAS_CONTEXT_UNPROMOTED", 1, 1, 0, conditions),
        graph=GraphView("eager", True, None, 1 << 20),
        outcome=OutcomeView(((request_id, 65),), ((request_id, "length"),), (), (request_id,), ((request_id, "A"),)),
    )


def sample_header(**changes):
    """A header that says what a run on the tiny model would."""
    requests = (
        RequestRecord(0, 0, 12, tuple(range(100, 112)), "a secret prompt", {"max_tokens": 1, "stop": ["secret"]}),
        RequestRecord(1, 1, 3, (7, 8, 9), "three", {"max_tokens": 4, "stop": []}),
    )
    header = TraceHeader(
        mode="light",
        config={"device": "cpu", "scheduler": {"max_batch_size": 8}},
        model=ModelFacts("tiny", "abc123"),
        device=DeviceFacts("cpu", "float32", "native", "tape", True),
        warmup=WarmupFacts((CaptureFact("(batch 8, draft 0, greedy)", 4096, 0.25),), 0.5),
        requests=requests,
        buckets=(1, 2, 4, 8),
        versions={"torch": "2.13.0"},
        pieces={65: "A"},
    )
    return dataclasses.replace(header, **changes)


def sample_trace(num_steps=5, **changes):
    """One eager step, then decode steps."""
    steps = [eager_step(0), *(decode_step(i, batch=1 + i % 8) for i in range(1, num_steps))]
    return Trace(sample_header(**changes), steps)
