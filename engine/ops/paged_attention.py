"""Paged attention as one mutating op: write the step's keys and values into the pool, then attend causally.

    stepscope::paged_attention_(out!, query, key, value, positions, *, key_blocks!, value_blocks!, scratch!,
                                step_table, kv_lens, block_table, row_to_sequence, query_start) -> ()

Everything that depends on lengths is read from device tensors inside the op, so one graph serves all lengths; being
a mutation it is recorded, not run, during capture. ``scratch`` belongs to the op: its contents mean nothing before
or after a call.

The CPU implementation treats the query heads of one key head as rows of one small product, and reads neighbouring
blocks in place or gathers scattered ones (``paged_attention_plan.py`` decides, ``paged_attention_cpu.py`` runs). It
wants a layer's values to lie right behind its keys.

Does not: reserve blocks, apply rope, or know a layer. The CUDA implementation is ``ops/triton/paged_attention.py``.
Source: the paged attention of vLLM; treating grouped heads as rows is common practice for grouped-query decoding.
"""

from typing import Final

import torch

from engine.ops.host_kernels import bind_host_kernel
from engine.ops.paged_attention_cpu import attend_rows, fix_attention

SCHEMA: Final = (
    "paged_attention_(Tensor(a!) out, Tensor query, Tensor key, Tensor value, Tensor positions, *, "
    "Tensor(b!) key_blocks, Tensor(c!) value_blocks, Tensor(d!) scratch, Tensor step_table, Tensor kv_lens, "
    "Tensor block_table, Tensor row_to_sequence, Tensor query_start) -> ()"
)

LIBRARY: Final = torch.library.Library("stepscope", "FRAGMENT")
LIBRARY.define(SCHEMA)


def _fake(
    out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    positions: torch.Tensor,
    **tensors: torch.Tensor,
) -> None:
    """Mutates its arguments and returns nothing: there is no shape to propagate."""


LIBRARY.impl("paged_attention_", attend_rows, "CPU")
bind_host_kernel("paged_attention_", attend_rows, fix_attention)
LIBRARY.impl("paged_attention_", _fake, "Meta")

paged_attention_ = torch.ops.stepscope.paged_attention_.default
