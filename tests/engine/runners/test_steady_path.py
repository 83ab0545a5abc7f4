"""The steady path derives what the full path would have written, and is let go whenever something came between."""

import random

import pytest

from engine import LLM, CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from engine.decisions import Decisions
from engine.inputs.records import Writer
from engine.inputs.steady import SteadyRefusal, SteadyRows, why_not_use
from engine.probe import Stage

NEVER = Decisions(why_not_use_steady=lambda _record, _facts: SteadyRefusal.NOTHING_RECORDED)


def config(*, graphs=True, backend="native", padding=False):
    return EngineConfig(
        device="cpu",
        max_seq_len=64,
        attention_backend=backend,
        scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=32),
        kv_cache=KVCacheConfig(tokens_per_block=4),
        cuda_graph=CudaGraphConfig(enabled=graphs, enable_padding=padding, batch_sizes=(1, 2, 4)),
    )


class Written:
    """Keeps what stands on the device after preparation, and which steps were derived."""

    def __init__(self):
        self.steps, self.steady, self.refusals = [], [], []

    def emit(self, stage, step, value):
        if stage is Stage.PACKED:
            self.steady.append(isinstance(value, SteadyRows))
        elif stage is Stage.COPIED:
            self.steps.append([value.input_ids.tolist(), value.position_ids.tolist(), value.seq_slots.tolist()])
        elif stage is Stage.METADATA:
            self.steps[-1] += [value.kv_lens.tolist(), value.block_table.tolist(), value.seq_lens.tolist(), value.step]
        elif stage is Stage.RAN:
            self.refusals.append(value.steady_refusal)


def serve(llm, seed):
    """Submit, abort and step at random; return the outputs by request."""
    draw, written = random.Random(seed), Written()
    llm.set_probe(written)
    live, outputs, submitted = [], {}, 0
    while submitted < 8 or llm.has_unfinished:
        if submitted < 8 and draw.random() < 0.25:
            prompt = [draw.randrange(1, 200) for _ in range(draw.randint(1, 6))]
            params = SamplingParams(
                max_tokens=draw.randint(3, 25), temperature=draw.choice([0.0, 0.8]), seed=submitted, ignore_eos=True
            )
            live.append(llm.submit(prompt, params))
            submitted += 1
        if live and draw.random() < 0.04:
            llm.abort(live.pop(draw.randrange(len(live))))
        for output in llm.step():
            outputs[output.request_id] = (output.token_ids, output.finish_reason)
            live = [request_id for request_id in live if request_id != output.request_id]
        llm.check()
    return outputs, written


@pytest.mark.parametrize("backend", ["native", "vanilla"])
@pytest.mark.parametrize("graphs", [False, True])
def test_a_derived_step_stands_on_the_device_as_the_full_path_writes_it(graphs, backend):
    with (
        LLM("tiny", config(graphs=graphs, backend=backend)) as fast,
        LLM("tiny", config(graphs=graphs, backend=backend), decisions=NEVER) as full,
    ):
        for seed in range(4):
            (got, derived), (expected, packed) = serve(fast, seed), serve(full, seed)
            assert got == expected
            assert derived.steps == packed.steps
            assert not any(packed.steady)
            assert sum(derived.steady) > 0.3 * len(derived.steady), "a path that is never taken proves nothing"
            assert [refusal is None for refusal in derived.refusals] == derived.steady


def test_a_derived_step_gathers_tokens_and_adds_to_positions_in_place():
    writes = {}

    class Probe:
        def emit(self, stage, step, value):
            if stage is Stage.COPIED:
                writes[step] = [(w.buffer, w.writer, w.end) for w in value.writes]

    with LLM("tiny", config()) as llm:
        llm.set_probe(Probe())
        llm.generate([[1, 2], [3, 4]], SamplingParams(max_tokens=5, ignore_eos=True))
    assert writes[3] == [("input_ids", Writer.DEVICE_GATHER, 2), ("position_ids", Writer.IN_PLACE_ADD, 2)]


def test_a_padded_step_leaves_no_record():
    with LLM("tiny", config(padding=True)) as llm:
        written = Written()
        llm.set_probe(written)
        llm.generate([[1, 2], [3, 4], [5, 6]], SamplingParams(max_tokens=8, ignore_eos=True))
    assert not any(written.steady)
    assert set(written.refusals) == {SteadyRefusal.NOTHING_RECORDED}


@pytest.mark.parametrize("stage", [Stage.PACKED, Stage.COPIED, Stage.METADATA, Stage.RAN])
def test_a_step_that_is_undone_is_not_derived_from(stage):
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    with LLM("tiny", config()) as llm:
        (undisturbed,) = llm.generate([[1, 2, 3]], params)

        class Raises(Written):
            def emit(self, at, step, value):
                super().emit(at, step, value)
                if at is stage and len(self.steady) == 6 and self.steady[-1]:
                    self.steady.append("raised")
                    message = "the observer broke"
                    raise RuntimeError(message)

        written = Raises()
        llm.set_probe(written)
        llm.submit([1, 2, 3], params)
        finished = []
        while llm.has_unfinished:
            try:
                finished += llm.step()
            except RuntimeError:
                llm.check()
        assert written.steady[5:8] == [True, "raised", False], "the step runs again, and from the host's lists"
        assert finished[0].token_ids == undisturbed.token_ids


def test_what_came_between_drops_the_record():
    with LLM("tiny", config()) as llm:
        written = Written()
        llm.set_probe(written)
        long = SamplingParams(max_tokens=30, ignore_eos=True)
        llm.submit([1, 2, 3], long)
        for _ in range(5):
            llm.step()
        assert written.steady == [False, False, True, True, True]
        other = llm.submit([4, 5], long)
        llm.step()
        llm.step()
        llm.step()
        assert written.refusals[-3:] == [SteadyRefusal.HAS_CONTEXTS, SteadyRefusal.NOTHING_RECORDED, None]
        llm.abort(other)
        llm.step()
        llm.step()
        assert written.refusals[-2:] == [SteadyRefusal.OTHER_NUMBER_OF_REQUESTS, None]


class FastPacking:
    """A model's own packing: every second decode step, from the same lists."""

    def __init__(self, pack):
        self.pack, self.calls, self.taken = pack, 0, 0

    def __call__(self, batch, block_table):
        if batch.scheduled.context_requests:
            return None
        self.calls += 1
        if self.calls % 2 == 0:
            return None
        self.taken += 1
        return self.pack(batch, block_table)


def test_a_model_may_pack_a_step_itself_and_then_nothing_is_derived():
    params = SamplingParams(max_tokens=10, ignore_eos=True)
    with LLM("tiny", config()) as llm:
        (expected,) = llm.generate([[1, 2, 3]], params)
    packing = FastPacking(Decisions().pack)
    loaded = llm.loaded
    loaded.model.prepare_inputs_fast_path = packing
    with LLM(loaded, config(), decisions=Decisions()) as llm:
        written = Written()
        llm.set_probe(written)
        (output,) = llm.generate([[1, 2, 3]], params)
    assert output.token_ids == expected.token_ids
    assert packing.taken == 5, "every second step; the others are packed by the engine"
    assert not any(written.steady)


def test_a_use_test_that_always_says_yes_derives_nothing_from_no_record():
    always = Decisions(why_not_use_steady=lambda record, facts: None if record is None else why_not_use(record, facts))
    with LLM("tiny", config(), decisions=always) as llm:
        written = Written()
        llm.set_probe(written)
        llm.generate([[1, 2, 3]], SamplingParams(max_tokens=5, ignore_eos=True))
    assert written.steady == [False, False, True, True, True]
    assert written.refusals == [SteadyRefusal.NOTHING_RECORDED] * 2 + [None] * 3
