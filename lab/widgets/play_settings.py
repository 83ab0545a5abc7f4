"""What a playground run is made of, as a reader types it: prompts with arrival steps, lists of sizes, and the rest.

Each line of the prompts is one request, ``arrival step: prompt``, or a prompt alone, which joins at once. What cannot
be read is refused with the line or the field that it stands in.

Does not: check what the engine checks (budgets that do not fit, and such), or hold controls. Torch-free.
"""

import dataclasses
import re
from typing import Final

from engine.config import (
    CapacityPolicyName,
    ChunkingName,
    CudaGraphConfig,
    EngineConfig,
    KVCacheConfig,
    SamplingParams,
    SchedulerConfig,
)
from engine.errors import ConfigError, RequestError
from engine.fields import shown

_LINE: Final = re.compile(r"\s*(\d+)\s*:\s?(.*)")
_NUMBER: Final = re.compile(r"[+-]?\d+")
PROMPTS: Final = "0: The capital of France is\n0: Once upon a time\n3: A prompt that joins three steps later"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Who runs, and how many rows. Units: requests, rows of a step."""

    max_batch_size: int = 4
    max_num_tokens: int = 64
    policy: CapacityPolicyName = "guaranteed_no_evict"
    chunking: ChunkingName | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The fields of a playground, as typed. buckets, prefill, blocks: text, because an empty one has a meaning.

    buckets: decode sizes, empty for the default list. prefill: row counts, empty for none. blocks: of the KV pool,
    empty to have it sized.
    """

    prompts: str = PROMPTS
    max_tokens: int = 8
    batching: Batching = Batching()
    graphs: bool = True
    padding: bool = True
    buckets: str = "1, 2, 4"
    prefill: str = ""
    blocks: str = ""
    overlap: bool = False

    def arrivals(self) -> list[tuple[int, str]]:
        """Return the requests as (arrival step, prompt). Raises: RequestError."""
        found: list[tuple[int, str]] = []
        for line in self.prompts.splitlines():
            if not line.strip():
                continue
            match = _LINE.fullmatch(line)
            step, prompt = (int(match[1]), match[2]) if match else (0, line)
            if not prompt.strip():
                message = f"a line is `arrival step: prompt`, got {shown(line)} without a prompt"
                raise RequestError(message)
            found.append((step, prompt))
        if not found:
            message = "the playground needs at least one prompt, one a line, such as `0: Hello`"
            raise RequestError(message)
        return found

    def params(self) -> SamplingParams:
        """Return the sampling parameters of every request. Raises: ConfigError."""
        return SamplingParams(max_tokens=self.max_tokens, ignore_eos=True)

    def config(self) -> EngineConfig:
        """Return the engine's configuration. Raises: ConfigError."""
        batching = self.batching
        blocks = sizes("blocks", self.blocks)
        if len(blocks) > 1:
            message = f"blocks must be one number or empty, got {shown(self.blocks)}"
            raise ConfigError(message)
        return EngineConfig(
            max_seq_len=512,
            overlap=self.overlap,
            scheduler=SchedulerConfig(
                max_batch_size=batching.max_batch_size,
                max_num_tokens=batching.max_num_tokens,
                capacity_policy=batching.policy,
                chunking=batching.chunking,
            ),
            kv_cache=KVCacheConfig(num_blocks=blocks[0] if blocks else None),
            cuda_graph=CudaGraphConfig(
                enabled=self.graphs,
                enable_padding=self.padding,
                batch_sizes=sizes("buckets", self.buckets) or None,
                prefill_num_tokens=sizes("prefill", self.prefill),
                sample_modes=("greedy",),
            ),
        )


def sizes(field: str, text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as ``1, 2, 4``. Raises: ConfigError."""
    parts = [part for part in re.split(r"[,;\s]+", text.strip().strip("()[]")) if part]
    wrong = next((part for part in parts if not _NUMBER.fullmatch(part)), None)
    if wrong is not None:
        message = f"{field} must be whole numbers such as `1, 2, 4`, got {shown(wrong)} in {shown(text)}"
        raise ConfigError(message)
    return tuple(int(part) for part in parts)
