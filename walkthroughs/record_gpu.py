"""Record ``data/h200_decode.trace.json.gz``, the trace of a real GPU that walkthroughs 09 to 12 lay beside theirs.

    python -m walkthroughs.record_gpu [--device cuda] [--out walkthroughs/data/h200_decode.trace.json.gz]

Three requests decode in a bucket of four, a warm one and another join and make it a bucket of eight with the full
sampler, and all of them end at different steps. Then nine come at once, for which there is no bucket. So the trace
holds eager, padded, exact, full and steady steps, and a fall-off.

Does not: time anything for comparison; ``stepscope bench gpu`` does.
"""

import argparse
from pathlib import Path

from engine.config import CudaGraphConfig, EngineConfig, SamplingParams, SchedulerConfig
from lab.session import Arrival, Session
from lab.trace import Trace

OUT = Path(__file__).parent / "data" / "h200_decode.trace.json.gz"


def record(device: str) -> Trace:
    """Serve these requests with the tiny model on the device, and return the trace."""
    requests: list[Arrival] = [
        (0, "The scheduler decides", _params(30)),
        (0, "A graph remembers its addresses", _params(24)),
        (0, "A batch of three is padded", _params(24)),
        (6, "One more joins", _params(12, temperature=0.8)),
        (6, "and it is warm", _params(8)),
        *[(31, f"One of nine, the {number}th", _params(4)) for number in range(1, 10)],
    ]
    config = EngineConfig(
        device=device,
        max_seq_len=128,
        scheduler=SchedulerConfig(max_batch_size=12),
        cuda_graph=CudaGraphConfig(batch_sizes=(1, 2, 4, 8)),
    )
    with Session("tiny", prompts=requests, config=config) as session:
        return session.run()


def _params(max_tokens: int, *, temperature: float = 0.0) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=temperature, seed=1)


def main() -> None:
    """Record and save."""
    parser = argparse.ArgumentParser(description="Record the trace of a GPU for the walkthroughs")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    record(args.device)  # once for the kernels, which compile when they are first needed
    trace = record(args.device)
    args.out.parent.mkdir(exist_ok=True)
    trace.save(args.out)
    print(f"{args.out}: {len(trace.steps)} steps on {trace.header.device.device}")


if __name__ == "__main__":
    main()
