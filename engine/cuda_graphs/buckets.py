"""Buckets: the batch sizes that get a graph. Pure and torch-free.

Fine steps where one dummy row is a large part of the batch, coarse steps where it is not. Without padding only an
exact hit takes a graph, so every small size is listed.

Does not: choose a bucket for a step (``select.py``) or capture. Source: the default lists and the filter of
TensorRT-LLM's graph configuration; the batch limit is always included, upstream stops at 128 unless told.
"""

from engine.config import CudaGraphConfig


def default_batch_sizes(max_batch_size: int, *, padding: bool) -> tuple[int, ...]:
    """List the batch sizes up to the limit, ascending; the limit is always the last."""
    if padding:
        sizes = [1, 2, 4, *range(8, 129, 8), *range(192, max_batch_size + 1, 64)]
    else:
        powers = [2**n for n in range(8, max_batch_size.bit_length())]
        sizes = [*range(1, 32), 32, 64, 128, *powers]
    return (*[size for size in sizes if size < max_batch_size], max_batch_size)


def resolve_batch_sizes(
    config: CudaGraphConfig, *, max_batch_size: int, max_num_tokens: int, tokens_per_request: int = 1
) -> tuple[int, ...]:
    """List the buckets of an engine: the configured or default sizes, cut to what a step can hold.

    Sizes above the cap are dropped. With padding on, the first of them becomes the cap, so that the largest
    batches still have a graph to be padded to.
    Units: requests; ``tokens_per_request`` rows of each (1 + draft length).
    """
    if not config.enabled:
        return ()
    sizes = config.batch_sizes or default_batch_sizes(max_batch_size, padding=config.enable_padding)
    cap = min(max_batch_size, max_num_tokens // tokens_per_request)
    kept = tuple(size for size in sizes if size <= cap)
    is_cut = len(kept) < len(sizes)
    if is_cut and config.enable_padding and cap > 0 and cap not in kept:
        kept = (*kept, cap)
    return kept
