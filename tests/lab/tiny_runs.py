"""Real runs of the tiny model for the lab's tests: one small engine and four requests that join at three steps."""

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig

TINY_CONFIG = EngineConfig(
    device="cpu",
    max_seq_len=128,
    scheduler=SchedulerConfig(max_batch_size=4, max_num_tokens=64),
    kv_cache=KVCacheConfig(num_blocks=32),
    cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4)),
)
WORKLOAD = ((0, "Hello there"), (1, "abc"), (3, "A longer prompt, really."), (3, "x"))


def run_workload(llm, mode, **options):
    """Run the four requests to their end and return the closed session."""
    from lab.session import Session

    with Session(
        llm, prompts=WORKLOAD, params=SamplingParams(max_tokens=6, ignore_eos=True), mode=mode, **options
    ) as s:
        s.run()
        s.recorder.check()
        llm.check()
    return s
