"""Telling weight files apart without reading them whole.

A fingerprint hashes a file's size, its first MiB (the header with all names and shapes, and often the first
tensors) and 256 samples of 4 KiB spread evenly over the rest. It stays the same wherever the file lies and costs
milliseconds. Does not: prove integrity; ``pull.py`` does that for what it downloads.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

_HEAD_BYTES = 1 << 20
_NUM_SAMPLES = 256
_SAMPLE_BYTES = 4096


def weight_hash(paths: Iterable[Path]) -> str:
    """Give 16 hexadecimal digits for the weights in these files, in this order."""
    digest = hashlib.sha256()
    for path in paths:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            digest.update(file.read(_HEAD_BYTES))
            stride = (size - _HEAD_BYTES) // _NUM_SAMPLES
            for i in range(_NUM_SAMPLES if stride > 0 else 0):
                file.seek(_HEAD_BYTES + i * stride)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
