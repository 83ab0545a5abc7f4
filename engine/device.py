"""Devices as the engine sees them: one resolved spec, one ordered stream, and what counts as device memory.

Every device-side action goes through a ``Stream``. On a CPU it runs at once, or ``lag`` actions late: a FIFO of *all*
device work, which runs when an event is waited for or when it is longer than the lag. A copy reads its source when
it runs, so a host list rewritten too early is a real race there too; order never changes. (Delaying copies alone
would break correct programs.) On CUDA it is the current stream.

Does not: read configuration objects, allocate the engine's tensors, or know a model.
Source: CUDA streams, events and pinned staging as TensorRT-LLM uses them.
"""

import abc
import collections
import contextlib
import dataclasses
import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import numpy as np
import torch

from engine.errors import CapacityError, CaptureRefusedError, ConfigError
from engine.interrupts import uninterrupted

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceSpec:
    """The machine that an engine runs on: device and the dtype of weights and activations."""

    torch_device: torch.device
    dtype: torch.dtype
    is_cuda: bool


def resolve_device(device: str, dtype: str) -> DeviceSpec:
    """Turn the two configuration strings into a spec; "auto" prefers CUDA, and bfloat16 on it.

    Raises: ConfigError for an unknown or absent device, an unknown dtype, or one that the device cannot multiply.
    """
    torch_device = _resolve_torch_device(device)
    is_cuda = torch_device.type == "cuda"
    if dtype == "auto":
        has_bfloat16 = is_cuda and torch.cuda.is_bf16_supported(including_emulation=False)
        return DeviceSpec(torch_device, torch.bfloat16 if has_bfloat16 else torch.float32, is_cuda)
    if dtype not in DTYPES:
        message = f"dtype must be 'auto', {', '.join(map(repr, DTYPES))}, got {dtype!r}"
        raise ConfigError(message)
    if not _can_multiply(torch_device, DTYPES[dtype]):
        message = f"dtype {dtype!r} is not supported on device {str(torch_device)!r} here; use dtype='float32'"
        raise ConfigError(message)
    return DeviceSpec(torch_device, DTYPES[dtype], is_cuda)


def _resolve_torch_device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = device.partition(":") if isinstance(device, str) else ("", "", "")
    is_known = device == "cpu" or (kind == "cuda" and (index.isdecimal() or device == "cuda"))
    if not is_known:
        message = f"device must be 'auto', 'cpu', 'cuda' or 'cuda:N', got {device!r}"
        raise ConfigError(message)
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        build = "this torch is built without CUDA" if torch.version.cuda is None else "no CUDA driver or GPU was found"
        message = f"device {device!r} needs a CUDA GPU, but {build}; use device='cpu' or device='auto'"
        raise ConfigError(message)
    number, count = int(index or torch.cuda.current_device()), torch.cuda.device_count()
    if number >= count:
        message = f"device {device!r} does not exist: {count} GPU(s) found; use 'cuda:0' to 'cuda:{count - 1}'"
        raise ConfigError(message)
    return torch.device("cuda", number)


def _can_multiply(device: torch.device, dtype: torch.dtype) -> bool:
    if dtype is torch.float32:
        return True
    try:
        torch.ones(2, 2, dtype=dtype, device=device).matmul(torch.ones(2, 2, dtype=dtype, device=device))
    except RuntimeError:
        return False
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A point on a stream. ``wait()`` blocks the host until all device work before the point is done."""

    wait: Callable[[], None]


class Stream(abc.ABC):
    """Device work in order. Inside ``capturing`` the host must not wait, exactly as CUDA has it."""

    def __init__(self) -> None:
        """Start empty, not capturing."""
        self._is_capturing = False

    def copy_(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Copy src into dst in stream order. Valid: src must keep its contents until an event after it has passed."""
        dst.copy_(src, non_blocking=True)

    def launch(self, fn: Callable[[], object]) -> None:
        """Run fn, which acts on device memory only, in stream order; its result is dropped."""
        fn()

    @abc.abstractmethod
    def record(self) -> Event:
        """Mark the work handed over so far."""

    def synchronize(self) -> None:
        """Block the host until all work is done. Raises: CaptureRefusedError inside ``capturing``."""
        self.record().wait()

    @contextlib.contextmanager
    def capturing(self) -> Generator[None]:
        """Refuse host waits while a graph is captured; all earlier work is done when this begins."""
        self.synchronize()
        self._is_capturing = True
        try:
            yield
        finally:
            self._is_capturing = False

    def _refuse_wait_while_capturing(self) -> None:
        if self._is_capturing:
            message = "the host waits for the device inside capture, which no graph can record; wait before or after it"
            raise CaptureRefusedError(message)


class ImmediateStream(Stream):
    """A CPU as its own device: work is done when the call returns, so an event has nothing to wait for."""

    def __init__(self) -> None:
        """Make the one event that stands for every point."""
        super().__init__()
        self._passed = Event(self._refuse_wait_while_capturing)

    def record(self) -> Event:
        """Return the event that has passed already."""
        return self._passed


class CudaStream(Stream):
    """The current CUDA stream; a copy is asynchronous when its host side is pinned."""

    def __init__(self, device: torch.device) -> None:
        """Remember the device whose current stream this is."""
        super().__init__()
        self._device = device

    def record(self) -> Event:
        """Record a CUDA event on the current stream."""
        event = torch.cuda.Event()
        if not self._is_capturing:
            event.record(torch.cuda.current_stream(self._device))

        def wait() -> None:
            self._refuse_wait_while_capturing()
            event.synchronize()

        return Event(wait)


class LaggedStream(Stream):
    """A CPU that lags behind: the FIFO of all device work holds up to ``depth`` actions.

    An action that raises leaves the FIFO; the error comes out of whatever call made it run, as on a real device.
    """

    def __init__(self, depth: int) -> None:
        """Start with an empty FIFO."""
        super().__init__()
        self.depth = depth
        self._pending: collections.deque[Callable[[], object]] = collections.deque()
        self._num_done = 0
        self._is_running = False

    @property
    def num_pending(self) -> int:
        """Actions handed over and not yet run."""
        return len(self._pending)

    def copy_(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Queue the copy; src is read when it runs."""
        self.launch(lambda: dst.copy_(src))

    def launch(self, fn: Callable[[], object]) -> None:
        """Queue fn, then run the oldest actions beyond the depth."""
        if self._is_running or self._is_capturing:
            fn()  # part of the action that runs (or is recorded) at this moment, not work of its own
            return
        self._pending.append(fn)
        self._run_until(self._num_done + len(self._pending) - self.depth)

    def record(self) -> Event:
        """Return an event whose wait runs everything queued so far."""
        ticket = self._num_done + len(self._pending)

        def wait() -> None:
            self._refuse_wait_while_capturing()
            self._run_until(ticket)

        return Event(wait)

    def _run_until(self, ticket: int) -> None:
        self._is_running = True
        try:
            while self._num_done < ticket:
                with uninterrupted():  # a device does not lose work to a Ctrl-C
                    self._num_done += 1
                    self._pending.popleft()()
        finally:
            self._is_running = False


def make_stream(spec: DeviceSpec, *, lag: int = 0) -> Stream:
    """Make the stream of a device. lag: actions that a CPU may be behind; CUDA has its own.

    Raises: ConfigError for a negative lag, or a lag on CUDA.
    """
    if lag < 0 or (lag and spec.is_cuda):
        message = f"lag must be 0 or more on a CPU and 0 on CUDA, got {lag} on {spec.torch_device}"
        raise ConfigError(message)
    if spec.is_cuda:
        return CudaStream(spec.torch_device)
    return LaggedStream(lag) if lag else ImmediateStream()


class DeviceRegistry:
    """Names the storages that count as device memory, which on a CPU nothing else could tell.

    It keeps what it names alive, so that an address in it can never come to belong to host memory.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._tensors: dict[str, torch.Tensor] = {}
        self._addresses: set[int] = set()

    def register(self, name: str, tensor: torch.Tensor) -> None:
        """Name a tensor's storage; a name registered again moves to the new storage."""
        self.forget(name)
        self._tensors[name] = tensor
        self._addresses.add(tensor.untyped_storage().data_ptr())

    def forget(self, name: str) -> None:
        """Drop a name; an unknown one is fine."""
        if self._tensors.pop(name, None) is not None:
            self._addresses = self._storage_addresses()

    def _storage_addresses(self) -> set[int]:
        return {tensor.untyped_storage().data_ptr() for tensor in self._tensors.values()}

    def owns(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor lies in a registered storage (views of it do)."""
        return tensor.untyped_storage().data_ptr() in self._addresses

    def names(self) -> tuple[str, ...]:
        """Every name, in order of registration."""
        return tuple(self._tensors)

    def check(self) -> None:
        """Collect the addresses from scratch."""
        assert self._addresses == self._storage_addresses()


def pinned_empty(shape: Sequence[int], dtype: torch.dtype, spec: DeviceSpec) -> torch.Tensor:
    """Allocate host memory that a CUDA copy can read asynchronously; plain memory on a CPU."""
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=spec.is_cuda)


class PinnedRing:
    """Host mirrors of one list, used in turn, each rewritten only after its copy's event has passed.

    With one mirror the host would wait for every copy; with none of the events it would rewrite a list that the
    device still reads. Valid: a staged view until ``depth`` later calls of ``stage``.
    """

    def __init__(self, capacity_shape: Sequence[int], dtype: torch.dtype, spec: DeviceSpec, *, depth: int = 2) -> None:
        """Allocate ``depth`` mirrors of the capacity."""
        self.capacity_shape = tuple(capacity_shape)
        self._mirrors = [pinned_empty(self.capacity_shape, dtype, spec) for _ in range(depth)]
        self._arrays = [mirror.numpy() for mirror in self._mirrors]
        self._events: list[Event | None] = [None] * depth
        self._at = depth - 1

    def stage(self, values: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Write values into the next mirror and return its view of their shape.

        Raises: CapacityError when they are larger than a mirror in any axis.
        """
        is_array = isinstance(values, np.ndarray)
        shape = values.shape if is_array else (len(values),)
        capacity = self.capacity_shape
        if len(shape) != len(capacity) or any(n > size for n, size in zip(shape, capacity, strict=True)):
            message = f"staging holds a list of shape {capacity} at most, got {tuple(shape)}"
            raise CapacityError(message)
        self._at = at = (self._at + 1) % len(self._mirrors)
        event = self._events[at]
        if event is not None:
            event.wait()
            self._events[at] = None
        where = tuple([slice(n) for n in shape])
        self._arrays[at][where] = values
        return self._mirrors[at][where]

    def mark_copied(self, stream: Stream) -> None:
        """Record the event after which the mirror staged last may be rewritten."""
        self._events[self._at] = stream.record()

    def wait(self) -> None:
        """Block until every mirror's copy is done."""
        for at, event in enumerate(self._events):
            if event is not None:
                event.wait()
                self._events[at] = None


def free_memory(spec: DeviceSpec) -> int:
    """Bytes that a new allocation may take: of the GPU, or of the host within its control group."""
    if spec.is_cuda:
        return torch.cuda.mem_get_info(spec.torch_device)[0]
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    meminfo, group = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free.append(int(fields["MemAvailable"].split()[0]) * 1024)
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and limit.read_text().strip().isdecimal():
        free.append(int(limit.read_text()) - int(used.read_text()))
    return max(0, min(free))


_NO_RANGE: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
_nvtx_switch = {"enabled": False}  # a profiler names ranges for the whole process, so the switch is the process's too


def set_nvtx(enabled: bool) -> None:  # noqa: FBT001 - a switch has one argument
    """Switch NVTX ranges on or off for this process; they are off by default and need a CUDA build."""
    _nvtx_switch["enabled"] = enabled and torch.version.cuda is not None


def nvtx_range(name: str) -> contextlib.AbstractContextManager[object]:
    """Name what runs inside for Nsight Systems; a shared no-op when ranges are off."""
    return torch.cuda.nvtx.range(name) if _nvtx_switch["enabled"] else _NO_RANGE
