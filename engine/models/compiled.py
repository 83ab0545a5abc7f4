"""The layer stack as compiled functions: what lies between two attentions, compiled once for each number of rows.

The segments are those of ``llama.py``, spelt out as plain functions of tensors, in the reference formulas of our ops,
so that the compiler sees arithmetic that it can fuse. All layers share one compilation, since their weights are
arguments; attention stays outside, as it does for prefill graphs.

Compiling takes seconds a shape, so it happens in warm-up only (``opening``), before anything is captured. A number of
rows that warm-up did not run takes the uncompiled segments, and what would compile while serving runs as it is.

Does not: capture, or know steps. Source: torch.compile; "all shapes in warm-up, bypass otherwise" is TensorRT-LLM's.
"""

import contextlib
import dataclasses
import importlib.util
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch.nn import functional

from engine.device import DeviceSpec
from engine.errors import ConfigError
from engine.models.layers import DecoderLayer, Linear
from engine.ops.linear import linear_reference
from engine.ops.rms_norm import rms_norm_reference

_MOST_SHAPES = 256  # compilations of one function that torch keeps, and more than any list of buckets has


class Matrix(NamedTuple):
    """A weight and its bias. Shapes: weight [out, in], bias [out]."""

    weight: torch.Tensor
    bias: torch.Tensor | None


class Before(NamedTuple):
    """What a layer needs up to its attention."""

    norm: torch.Tensor
    qkv: Matrix


class After(NamedTuple):
    """What a layer needs behind its attention."""

    o: Matrix
    norm: torch.Tensor
    gate_up: Matrix
    down: Matrix


def _matrix(linear: Linear) -> Matrix:
    return Matrix(linear.weight, linear.bias)


def _before(x: torch.Tensor, layer: Before, eps: float) -> torch.Tensor:
    return linear_reference(rms_norm_reference(x, layer.norm, eps), *layer.qkv)


def _after(attended: torch.Tensor, x: torch.Tensor, layer: After, eps: float) -> torch.Tensor:
    x = linear_reference(attended, *layer.o, x)
    gate, up = linear_reference(rms_norm_reference(x, layer.norm, eps), *layer.gate_up).chunk(2, dim=-1)
    return linear_reference(functional.silu(gate) * up, *layer.down, x)


def enter(
    input_ids: torch.Tensor, embedding: torch.Tensor, first: Before, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embed, then up to the first attention. Shapes: [N] int32 -> x [N, M], qkv [N, (H + 2G) D]."""
    x = functional.embedding(input_ids, embedding)
    return x, _before(x, first, eps)


def advance(
    attended: torch.Tensor, x: torch.Tensor, layer: After, following: Before, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """From one attention to the next. Shapes: attended [N, H D], x [N, M] -> x [N, M], qkv [N, (H + 2G) D]."""
    x = _after(attended, x, layer, eps)
    return x, _before(x, following, eps)


def leave(attended: torch.Tensor, x: torch.Tensor, layer: After, norm: torch.Tensor, eps: float) -> torch.Tensor:
    """From the last attention to the final norm. Shapes: attended [N, H D], x [N, M] -> hidden [N, M]."""
    return rms_norm_reference(_after(attended, x, layer, eps), norm, eps)


@dataclasses.dataclass(frozen=True, slots=True)
class _Functions:
    enter: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    advance: Callable[..., tuple[torch.Tensor, torch.Tensor]]
    leave: Callable[..., torch.Tensor]


class CompiledSegments:
    """The segments of one model. rows: the numbers of rows that have been compiled."""

    def __init__(
        self, embedding: torch.Tensor, layers: Sequence[DecoderLayer], norm: torch.Tensor, *, eps: float
    ) -> None:
        """Take the weights; nothing is compiled before ``opening``."""
        self.rows: frozenset[int] = frozenset()
        self.is_open = False
        self._embedding, self._norm, self._eps = embedding, norm, eps
        self._before = [Before(layer.attention_norm.weight, _matrix(layer.attention.qkv)) for layer in layers]
        self._after = [
            After(
                _matrix(layer.attention.o), layer.mlp_norm.weight, _matrix(layer.mlp.gate_up), _matrix(layer.mlp.down)
            )
            for layer in layers
        ]
        compiled: list[Any] = [torch.compile(fn, dynamic=False, fullgraph=True) for fn in (enter, advance, leave)]
        self._functions = _Functions(*compiled)

    def takes(self, num_rows: int) -> bool:
        """Whether a forward of so many rows runs compiled; in ``opening``, any does, and is remembered."""
        if self.is_open:
            self.rows |= {num_rows}
        return num_rows in self.rows

    def enter(self, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``CausalLM.enter``."""
        return self._functions.enter(input_ids, self._embedding, self._before[0], self._eps)

    def advance(self, layer: int, attended: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As ``CausalLM.advance``."""
        if layer + 1 == len(self._after):
            return self._functions.leave(attended, x, self._after[layer], self._norm, self._eps), attended
        return self._functions.advance(attended, x, self._after[layer], self._before[layer + 1], self._eps)

    @contextlib.contextmanager
    def opening(self) -> Generator[None]:
        """Compile every number of rows that runs inside the block.

        Raises: ConfigError when the compiler fails.
        """
        dynamo = cast("Any", torch)._dynamo  # noqa: SLF001 - the limit has no public name
        self.is_open = True
        try:
            with dynamo.config.patch(recompile_limit=_MOST_SHAPES), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own modules use deprecated parts of torch
                yield
        except dynamo.exc.BackendCompilerFailed as error:
            reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
            message = f"EngineConfig.torch_compile=True, but the compiler failed: {reason}; use torch_compile=False"
            raise ConfigError(message) from error
        finally:
            self.is_open = False

    def guarded(self) -> contextlib.AbstractContextManager[object]:
        """Let nothing compile inside, unless open: a call that no compilation fits runs uncompiled."""
        return contextlib.nullcontext() if self.is_open else torch.compiler.set_stance("eager_on_recompile")


def require_compiler(spec: DeviceSpec) -> None:
    """Check that the machine can compile for the device. Raises: ConfigError naming what is missing, and the fix."""
    if spec.is_cuda:
        missing = None if importlib.util.find_spec("triton") else "the package triton (pip install triton)"
    else:
        # The same name that torch looks for.
        compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        missing = None if shutil.which(compiler) else f"a C++ compiler, and there is no {compiler!r} (install one, or "
        missing = missing and missing + "name yours in the environment variable CXX)"
    if missing is not None:
        message = f"EngineConfig.torch_compile=True needs {missing}; or use torch_compile=False"
        raise ConfigError(message)
