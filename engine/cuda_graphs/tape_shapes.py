"""Shapes of results without computing them: the operation runs on fake tensors of the meta device.

Thirty equal layers ask the same questions, so answers are remembered by operation and argument signature (sizes,
strides, dtypes, values); this is most of what makes a capture take tenths of a second.

Does not: allocate or record. Source: torch's meta kernels, which ``register_fake`` adds to an operation. (Some of
torch's own import its compiler at first use: 800 modules, 1.3 seconds, 70 MB.)
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch._ops import OpOverload

from engine.cuda_graphs.tape_rules import refuse


@dataclasses.dataclass(frozen=True, slots=True)
class TensorShape:
    """What the pool needs to make a tensor, and propagation to know one. Units: elements."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


def shape_of(tensor: torch.Tensor) -> TensorShape:
    """Describe a tensor."""
    return TensorShape(tuple(tensor.size()), tuple(tensor.stride()), tensor.dtype)


def map_leaves(value: Any, kind: type[Any], fn: Callable[[Any], Any]) -> Any:
    """Rebuild the arguments or results of an operation with fn applied to each leaf of one kind."""
    if isinstance(value, kind):
        return fn(value)
    if isinstance(value, tuple | list):
        parts = [map_leaves(part, kind, fn) for part in cast("Sequence[Any]", value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, Mapping):
        return {name: map_leaves(part, kind, fn) for name, part in cast("Mapping[str, Any]", value).items()}
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Walk the tensors of arguments or results, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in cast("Sequence[Any]", value):
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        yield from tensors_in(tuple(cast("Mapping[str, Any]", value).values()))


class ShapePropagation:
    """Answers what an operation would return, and remembers it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[object, Any] = {}

    def propagate(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the results with a ``TensorShape`` in place of each tensor.

        Raises: CaptureRefusedError for an operation without a fake kernel, or a resized argument; whatever the
        operation says of arguments that do not fit together.
        """
        signature = (func, _signature(tuple(args)), _signature(kwargs))
        if signature not in self._known:
            self._known[signature] = self._run(func, args, kwargs)
        return self._known[signature]

    def _run(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        fakes: list[tuple[TensorShape, torch.Tensor]] = []

        def fake_like(tensor: torch.Tensor) -> torch.Tensor:
            shape = shape_of(tensor)
            fake = torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype, device="meta")
            fakes.append((shape, fake))
            return fake

        fake_args = map_leaves(tuple(args), torch.Tensor, fake_like)
        fake_kwargs = map_leaves(kwargs, torch.Tensor, fake_like)
        if kwargs.get("device") is not None:  # a factory, or a copy that names the device it is on already
            fake_kwargs["device"] = torch.device("meta")
        try:
            results = func(*fake_args, **fake_kwargs)
        except NotImplementedError:
            fix = "register one with torch.library.register_fake"
            refuse(str(func), "it has no fake kernel, so the shape of its result is unknown", fix)
        for shape, fake in fakes:
            if shape_of(fake) != shape:
                refuse(str(func), f"it would resize an argument of shape {shape.size}", "allocate it at its final size")
        return map_leaves(results, torch.Tensor, shape_of)


def _signature(value: Any) -> object:
    """Make arguments hashable; a value carries its type, since 1, 1.0 and True are equal but not alike."""
    if isinstance(value, torch.Tensor):
        return shape_of(value)
    if isinstance(value, tuple | list):
        return tuple([_signature(part) for part in cast("Sequence[Any]", value)])
    if isinstance(value, Mapping):
        return tuple([(name, _signature(part)) for name, part in cast("Mapping[str, Any]", value).items()])
    return type(value), cast("object", value)
