"""BlockCopy: one block's content copied to another place before a step's forward, within the pool or between tiers.

Copies are decided by the ledger, travel in a step's records, and are run in their order on the step's stream. That
order is what makes them safe: a block may be handed to a new owner while a copy out of it is only queued, because
everything that writes the block for its new owner (a later copy, the forward) is queued behind that copy on the
same stream. Nothing but the device reads or writes the blocks, on either tier.

Does not: run copies (``storage.py``), or decide them (``ledger.py``). Torch-free.
Source: offload, onboard and copy-on-reuse of TensorRT-LLM's block manager.
"""

import dataclasses
import enum


class CopyKind(enum.StrEnum):
    """Between which pools a block is copied."""

    DEVICE = "DEVICE"  # device block to device block
    OFFLOAD = "OFFLOAD"  # device block to host block
    ONBOARD = "ONBOARD"  # host block to device block


@dataclasses.dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the first num_tokens of block source into block target, in every layer. The kind says which pools."""

    kind: CopyKind
    source: int
    target: int
    num_tokens: int
