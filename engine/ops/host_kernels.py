"""The Python functions behind our own CPU ops, by op: what a recorded step calls instead of the dispatcher.

A call of a Python kernel through torch's dispatcher costs about 15 us beside the work; a decode step of 30 layers makes
120. A graph replays kernels, not dispatches, so the tape asks here for the kernel of an op that it recorded. And as a
graph bakes addresses in, so may a kernel: one that was bound with ``fix`` chooses its way and makes its views once, in
the first replay, which spares a decode step of 8 rows a few hundred calls of 2 to 5 us.

Does not: register anything with torch (each op's file does), or know CUDA kernels.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

_KERNELS: dict[OpOverload, Callable[..., Any]] = {}
_FIXES: dict[OpOverload, Callable[..., Callable[[], object]]] = {}


def bind_host_kernel(
    name: str, kernel: Callable[..., Any], fix: Callable[..., Callable[[], object]] | None = None
) -> None:
    """Remember the CPU kernel of ``stepscope::name``; name is "op" or "op.overload", as in ``Library.impl``.

    fix: takes the kernel's arguments and returns a call that does the kernel's work on them, whatever they hold then.
    """
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.stepscope, packet), overload or "default")
    _KERNELS[op] = kernel
    if fix is not None:
        _FIXES[op] = fix


def host_kernel(op: OpOverload) -> Callable[..., Any] | None:
    """Return the function that the dispatcher would reach for CPU tensors, None for an op of torch's own."""
    return _KERNELS.get(op)


def fixed_call(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], object]:
    """Return a call of an op on these very tensors, to be made many times."""
    fix = _FIXES.get(op)
    if fix is None:
        return functools.partial(_KERNELS.get(op, op), *args, **kwargs)
    return _FixedCall(functools.partial(fix, *args, **kwargs))


class _FixedCall:
    """Fixes the arguments when first called: during a capture, views may not be read as host memory."""

    __slots__ = ("_call", "_fix")

    def __init__(self, fix: Callable[[], Callable[[], object]]) -> None:
        self._fix = fix
        self._call: Callable[[], object] | None = None

    def __call__(self) -> object:
        if self._call is None:
            self._call = self._fix()
        return self._call()
