"""The case's step with the case's configuration in the engine, which gives its own reason.

Does not: decide anything, or use up the dummy's block: where the case has no dummy, the engine has one.
"""

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab.exercises.exercise import Case
from lab.exercises.workload import MOST_REQUESTS, Workload

_STEP = {"contexts": 0, "requests": 3, "samples": False}
_CONFIG = {"graphs": True, "sizes": [1, 2, 8], "padding": False, "samplers": ["greedy"]}


def workload(case: Case | None) -> Workload:
    """Return as many requests as the case's step has; its contexts join at step 2."""
    found = case or {"step": _STEP, "config": _CONFIG}
    step, given = found["step"], found["config"]
    count = max(1, min(step["requests"], MOST_REQUESTS))
    sizes = tuple(sorted({size for size in given["sizes"] if size <= MOST_REQUESTS})) or (1,)
    heat = SamplingParams(max_tokens=5, ignore_eos=True, temperature=1.0 if step["samples"] else 0.0, seed=1)
    most = max(count + min(step["contexts"], MOST_REQUESTS), *sizes)
    config = EngineConfig(
        device="cpu",
        max_seq_len=64,
        scheduler=SchedulerConfig(max_batch_size=most, max_num_tokens=8 * most),
        cuda_graph=CudaGraphConfig(
            enabled=given["graphs"],
            batch_sizes=sizes,
            enable_padding=given["padding"],
            sample_modes=tuple(given["samplers"]) or ("greedy",),
        ),
    )
    arrivals = [0] * count + [2] * min(step["contexts"], MOST_REQUESTS)
    prompts = tuple((arrival, [(7 * at + k) % 200 + 1 for k in range(4)]) for at, arrival in enumerate(arrivals))
    return Workload(config, prompts, heat)
