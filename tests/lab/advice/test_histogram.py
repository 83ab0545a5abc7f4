from engine.config import CudaGraphConfig, EngineConfig, SchedulerConfig
from lab.advice.histogram import sizes_of_recording, sizes_of_replay
from lab.replay.serve import replay
from lab.replay.settings import GraphSettings, ReplaySettings
from lab.session import Session
from tests.lab.replay.traces import plain

SMALL = EngineConfig(
    device="cpu",
    scheduler=SchedulerConfig(max_batch_size=2, max_num_tokens=64),
    cuda_graph=CudaGraphConfig(batch_sizes=(2,), sample_modes=("greedy",)),
)


def test_a_replay_gives_batch_sizes_of_decode_steps_and_rows_of_steps_with_prompts():
    trace = plain((0, 100, 4), (0, 50, 2))
    settings = ReplaySettings(max_batch_size=8, max_num_tokens=1024)
    sizes = sizes_of_replay(replay(trace, settings.config(trace), settings.costs))
    assert sizes.prefill == {150: 1}
    assert sizes.decode == {1: 2, 2: 1}
    assert (sizes.max_batch_size, sizes.max_num_tokens) == (8, 1024)
    assert sizes.source == "plain.csv, 2 requests replayed in virtual time"


def test_a_promoted_last_prompt_token_counts_as_decode():
    trace = plain((0, 17, 4))
    settings = ReplaySettings(max_batch_size=1, max_num_tokens=16, graphs=GraphSettings(buckets=(1,)))
    sizes = sizes_of_replay(replay(trace, settings.config(trace), settings.costs))
    assert sizes.prefill == {16: 1}
    assert sizes.decode == {1: 4}


def test_a_recording_is_counted_by_the_same_rule():
    with Session("tiny", prompts=["hello", (1, "a second one")], config=SMALL) as session:
        trace = session.run()
    sizes = sizes_of_recording(trace, "x.gz")
    has_contexts = [any(span.kind == "C" for span in step.schedule.spans) for step in trace.steps]
    promoted = [bool(step.schedule.promoted) for step in trace.steps]
    num_decode = sum(not context or ok for context, ok in zip(has_contexts, promoted, strict=True))
    assert sum(sizes.decode.values()) == num_decode > 0
    assert sum(sizes.prefill.values()) == len(trace.steps) - num_decode > 0
    assert sizes.max_batch_size == SMALL.scheduler.max_batch_size
    assert sizes.max_num_tokens == SMALL.scheduler.max_num_tokens
    assert sizes.source == f"x.gz, {len(trace.steps)} recorded steps"
