"""How much padding a step gets: pure, torch-free.

Two mechanisms that must not be merged. Request padding (here, before preparation) adds dummy requests until the
batch is as large as a captured decode bucket. Token padding (prefill buckets) adds rows after preparation; it has
no sequence and belongs to prefill graphs.

Does not: add the dummies (``cuda_graphs/dummies.py``) or fill rows (``prepare.py``).
Source: TensorRT-LLM pads decode batches by bisecting upwards over the captured batch sizes.
"""

import bisect


def round_up_to_bucket(size: int, buckets: tuple[int, ...]) -> int | None:
    """Return the smallest bucket that holds so many requests or rows, or None above the largest. buckets ascend."""
    at = bisect.bisect_left(buckets, size)
    return buckets[at] if at < len(buckets) else None


def prefill_bucket(*, num_tokens: int, num_contexts: int, buckets: tuple[int, ...]) -> int | None:
    """Return the rows to which a step with contexts is padded; None without contexts, or above the largest bucket.

    Units: rows. buckets ascend.
    """
    return round_up_to_bucket(num_tokens, buckets) if num_contexts else None


def num_padding_requests(
    *, num_requests: int, num_contexts: int, buckets: tuple[int, ...], enabled: bool, dummy_available: bool
) -> int:
    """Return how many dummies join the batch; 0 when padding could not lead to a graph anyway."""
    bucket = round_up_to_bucket(num_requests, buckets)
    if not enabled or not dummy_available or num_contexts or bucket is None:
        return 0
    return bucket - num_requests
