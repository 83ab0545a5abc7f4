"""The bucket lists that serving frameworks come with, as rules over the largest size.

Sizes above the largest are dropped, since no step has them; where a rule stops below the largest, that is how it is
shipped, and ``completed`` adds the largest, as this engine would.

Does not: price a list. Source: the rules as read in TensorRT-LLM's and SGLang's graph configurations and in vLLM's
compilation configuration; ``engine/cuda_graphs/buckets.py`` has the first one with the largest always added.
"""

from collections.abc import Callable, Iterable
from typing import Final

Rule = Callable[[int], tuple[int, ...]]


def _cut(sizes: Iterable[int], largest: int) -> tuple[int, ...]:
    return tuple(size for size in sizes if size <= largest)


def tensorrt_llm(largest: int) -> tuple[int, ...]:
    """Decode, padding on: fine steps to 128, then by 64; shipped with a maximum of 128 unless told otherwise."""
    return _cut((1, 2, 4, *range(8, 129, 8)), largest)


def vllm(largest: int) -> tuple[int, ...]:
    """By 8 below 256, by 16 up to the ceiling of 512; its unit is tokens, so decode and prefill share the list."""
    return _cut((1, 2, 4, *range(8, 249, 8), *range(256, 513, 16)), largest)


def sglang_decode(largest: int) -> tuple[int, ...]:
    """Decode without speculation: steps of 8, 16 and 32."""
    return _cut((1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 497, 16), *range(512, largest + 1, 32)), largest)


def sglang_prefill(largest: int) -> tuple[int, ...]:
    """Rows of a prefill: steps that grow from 4 to 512."""
    fine = (*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64))
    return _cut((*fine, *range(1280, 4097, 256), *range(4608, largest + 1, 512)), largest)


def powers_of_two(largest: int) -> tuple[int, ...]:
    """Double from one: the list that comes to mind first."""
    return tuple(1 << n for n in range(largest.bit_length()))


DECODE: Final[dict[str, Rule]] = {
    "tensorrt_llm": tensorrt_llm,
    "vllm": vllm,
    "sglang": sglang_decode,
    "powers_of_two": powers_of_two,
}
PREFILL: Final[dict[str, Rule]] = {"vllm": vllm, "sglang": sglang_prefill, "powers_of_two": powers_of_two}


def completed(sizes: tuple[int, ...], largest: int) -> tuple[int, ...]:
    """Add the largest size if it is missing."""
    return sizes if sizes and sizes[-1] == largest else (*sizes, largest)
