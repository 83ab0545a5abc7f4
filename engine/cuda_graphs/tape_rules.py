"""What a graph cannot record, said at capture with the operation and the line that used it.

A CUDA graph records kernels with fixed shapes and addresses. It cannot record a host read (the value would be that
of capture, for ever), a shape that depends on data, host memory (rewritten or gone at replay), or a random generator
(its state is the host's). CUDA finds some of these late or never; the tape refuses each at once. It may be stricter
than CUDA, never laxer.

Does not: run or record anything (``tape.py``). Source: the capture rules of the CUDA programming guide.
"""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from engine.errors import CaptureRefusedError

HOST_READS = frozenset(
    {"__array__", "__bool__", "__complex__", "__contains__", "__deepcopy__", "__float__", "__format__", "__index__"}
    | {"__int__", "__repr__", "cpu", "is_nonzero", "item", "numpy", "tolist", "allclose", "equal", "save"}
)
HOST_CONSTANTS = frozenset({"tensor", "as_tensor", "asarray", "from_numpy", "frombuffer", "new_tensor"})
FACTORIES = frozenset(
    {"arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "range", "zeros"}
    | {"scalar_tensor", "tril_indices", "triu_indices", "hann_window"}
)
SYNCHRONIZING = frozenset({"synchronize", "pin_memory", "record_stream"})
_HERE = str(Path(__file__).parent / "tape")
_TORCH = str(Path(torch.__file__).parent)


def source_line() -> str:
    """Name the innermost line outside torch and the tape: the one that a reader can change."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _HERE, "<")):
            return f"{Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"


def refuse(operation: str, why: str, fix: str) -> NoReturn:
    """Raise the refusal of one operation."""
    message = f"{operation} at {source_line()} cannot be captured: {why}; {fix}"
    raise CaptureRefusedError(message)


class HostReadGuard(TorchFunctionMode):
    """Sees the calls that never reach a kernel: reads of a value, constants of the host, factories without device.

    It also remembers the device objects that tensors gave out while it watched: a copy ``to`` any other CPU device
    leaves the device on a CUDA machine.
    """

    def __init__(self) -> None:
        """Start without devices."""
        super().__init__()
        self._devices: list[object] = []  # kept alive, so that identity means origin

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Refuse, or pass on."""
        kwargs = kwargs or {}
        name = str(getattr(func, "__name__", func))
        if name in HOST_READS:
            fix = "compute with tensors on the device, and read after the replay"
            refuse(f"{name}()", "the host would read a value that exists only at replay", fix)
        if name in HOST_CONSTANTS:
            fix = "make it once, before capture, and register it as device memory"
            refuse(f"torch.{name}()", "it copies pageable host memory, which the replay would read again", fix)
        if name in SYNCHRONIZING:
            refuse(f"{name}()", "it involves the host", "move it out of the captured region")
        if name in FACTORIES and kwargs.get("device") is None and not _is_method(func):
            refuse(f"torch.{name}()", "without device= it makes host memory on a CUDA machine", "pass device=x.device")
        if _names_the_cpu(func, name, args, kwargs):
            refuse(f"{name}()", "it names the CPU, which is host memory on a CUDA machine", "use x.device of an input")
        if name == "to" and self._is_strange_cpu(args, kwargs):
            why = "its CPU device is no tensor's, so it is host memory on a CUDA machine"
            refuse(f"{name}()", why, "use x.device of an input, read inside the captured region")
        result = func(*args, **kwargs)
        if isinstance(result, torch.device):
            self._devices.append(result)
        return result

    def _is_strange_cpu(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        devices = [arg for arg in (*args, kwargs.get("device")) if isinstance(arg, torch.device)]
        return any(device.type == "cpu" and all(device is not known for known in self._devices) for device in devices)


def _is_method(func: Any) -> bool:
    return str(getattr(func, "__qualname__", "")).startswith(("Tensor", "_TensorBase"))


def _names_the_cpu(func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Find 'cpu' spelt out; a device taken from an input is what the same code has on CUDA, so that is fine."""
    is_named = any(isinstance(arg, str) and arg.split(":")[0] == "cpu" for arg in (*args, kwargs.get("device")))
    return is_named and (func is torch.device or name == "to" or "device" in kwargs)


def schema_of(func: OpOverload) -> Any:
    """Return an operation's schema: its arguments, what it returns, and which of them it aliases or writes."""
    return func._schema  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - torch has no other way to it


def refuse_by_schema(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse an operation for what its schema says, before anything is computed.

    Raises: CaptureRefusedError for host scalars, dynamic shapes, random numbers, constants and resizing.
    """
    name = str(func)
    if name == "aten.lift_fresh.default":
        fix = "make it once, before capture, and register it as device memory"
        refuse(name, "a constant of the host is pageable memory, which the replay would read again", fix)
    returns_scalar = any(not _holds_tensors(str(result.type)) for result in schema_of(func).returns)
    if torch.Tag.data_dependent_output in func.tags or returns_scalar:
        refuse(name, "it returns a value to the host", "compute with tensors on the device")
    has_mask = name in _INDEXING and any(_is_mask(index) for index in args[1])
    if has_mask or (torch.Tag.dynamic_output_shape in func.tags and name not in _INDEXING):
        refuse(name, "its shape or work depends on data", "keep shapes fixed: torch.where or masked_fill, not a mask")
    if torch.Tag.nondeterministic_seeded in func.tags and not _is_without_dropout(func, args, kwargs):
        refuse(name, "it draws from a generator, whose state is the host's", "hash (seed, position) to noise instead")
    if torch.Tag.inplace_view in func.tags:
        refuse(name, "it changes the shape or storage of a tensor in place", "make a view instead")


_INDEXING = frozenset(
    {"aten.index.Tensor", "aten.index_put_.default", "aten.index_put.default", "aten._index_put_impl_.default"}
    | {"aten.index.Tensor_out", "aten._unsafe_index.Tensor"}
)


def _holds_tensors(type_name: str) -> bool:
    return "Tensor" in type_name


def _is_mask(index: object) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _is_without_dropout(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Attention kernels count as random because they could drop out; at probability 0 they draw nothing."""
    for at, argument in enumerate(schema_of(func).arguments):
        if argument.name == "dropout_p":
            given = args[at] if at < len(args) else kwargs.get("dropout_p", argument.default_value)
            return cast("float", given) == 0.0
    return False
