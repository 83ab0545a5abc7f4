"""The graph key: everything that changes control flow or shape inside the captured region, and nothing else.

Built by one constructor (``make_key``) from the *padded* batch after all its inputs are final. ``num_tokens`` is
the only formula for the rows of a key.

Does not: choose (``select.py``) or hold graphs. Source: TensorRT-LLM's KeyType, reduced to a decoder's fields.
"""

import dataclasses
import enum
from collections.abc import Collection, Mapping, Sequence


class SampleMode(enum.StrEnum):
    """Which sampler is baked into the graph."""

    GREEDY = "greedy"
    FULL = "full"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class KeyType:
    """Identity of a captured decode graph. batch_size counts requests, padding included."""

    batch_size: int
    draft_len: int
    sample_mode: SampleMode
    beam_width: int = 1

    def num_tokens(self) -> int:
        """Rows of the captured step."""
        return self.batch_size * self.beam_width * (1 + self.draft_len)

    def __str__(self) -> str:
        """Show it as the lab does."""
        return f"(batch {self.batch_size}, draft {self.draft_len}, {self.sample_mode.value})"


def make_key(*, padded_batch_size: int, draft_len: int, sample_mode: SampleMode) -> KeyType:
    """Build the key of a padded batch; capture and lookup both come through here."""
    return KeyType(batch_size=padded_batch_size, draft_len=draft_len, sample_mode=sample_mode)


def capture_keys(
    buckets: Sequence[int], sample_modes: Collection[str], *, draft_buckets: Mapping[int, Sequence[int]] | None = None
) -> tuple[KeyType, ...]:
    """List the keys that warm-up captures, in that order: most rows first, which sizes the pool.

    buckets: batch sizes without drafts. draft_buckets: those by draft length.
    """
    modes = [mode for mode in reversed(SampleMode) if mode.value in sample_modes]
    keys = [
        make_key(padded_batch_size=size, draft_len=draft_len, sample_mode=mode)
        for draft_len, sizes in ({**(draft_buckets or {}), 0: buckets}).items()
        for size in sizes
        for mode in modes
    ]
    return tuple(sorted(keys, key=lambda key: (-key.num_tokens(), key.draft_len)))
