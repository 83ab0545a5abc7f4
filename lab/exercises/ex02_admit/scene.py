"""The case's queue before the engine's own scheduler, under its budgets. Does not: decide anything."""

from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
from lab.exercises.exercise import Case
from lab.exercises.workload import MOST_REQUESTS, Workload

_QUEUE = [{"prompt": 6, "generated": 0, "most": 4}] * 3


def workload(case: Case | None) -> Workload:
    """Return the queue's requests with the case's rows, places and blocks, raised to what each needs alone."""
    found = case or {"queue": _QUEUE, "rows": 14, "places": 3, "blocks": 5, "block_size": 4}
    queue = found["queue"][:MOST_REQUESTS] or _QUEUE[:1]
    sizes = [(one["prompt"] + one["generated"], max(1, one["most"] - one["generated"])) for one in queue]
    block_size = found["block_size"]
    blocks = max(-(-(prompt + most) // block_size) for prompt, most in sizes)
    places = max(1, min(found["places"], len(queue)))
    config = EngineConfig(
        device="cpu",
        max_seq_len=max(prompt + most for prompt, most in sizes) + 1,
        scheduler=SchedulerConfig(
            max_batch_size=places,
            max_num_tokens=max(found["rows"], places, *(prompt for prompt, _ in sizes)),
        ),
        kv_cache=KVCacheConfig(tokens_per_block=block_size, num_blocks=max(found["blocks"], blocks) + 1),
        cuda_graph=CudaGraphConfig(batch_sizes=(places,)),
    )
    prompts = tuple(
        (0, [(7 * at + k) % 200 + 1 for k in range(prompt)], SamplingParams(max_tokens=most, ignore_eos=True))
        for at, (prompt, most) in enumerate(sizes)
    )
    return Workload(config, prompts, SamplingParams(max_tokens=4, ignore_eos=True))
