"""Compiled segments equal the plain ones, for the rows of warm-up; nothing compiles afterwards."""

import re

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.utils import counters

from engine.device import DeviceSpec, resolve_device
from engine.errors import ConfigError
from engine.models import compiled
from engine.models.llama import CausalLM
from engine.models.tiny import TINY_CONFIG, tiny_weights
from tests.engine.models.compilers import needs_compiler

pytestmark = needs_compiler

CPU = resolve_device("cpu", "float32")
CUDA = DeviceSpec(torch.device("cuda", 0), torch.bfloat16, is_cuda=True)
ROWS = (2,)


def _with_biases(weights):
    """Give every matrix of a layer a bias: none of the served architectures has more."""
    generator = torch.Generator().manual_seed(1)
    matrices = [name for name in weights if re.search(r"\.(qkv|o|gate_up|down)\.weight$", name)]
    biases = {
        name.replace("weight", "bias"): torch.randn(weights[name].shape[0], generator=generator) for name in matrices
    }
    return weights | biases


def _chain(model, num_rows):
    """Run segments with made-up attention between; return everything that they leave."""
    ids = torch.arange(num_rows, dtype=torch.int32) * 7 + 3
    left = list(model.enter(ids))
    x = left[0]
    with torch.no_grad():
        for layer in range(TINY_CONFIG.num_layers):
            attended = torch.sin(torch.arange(num_rows * 64, dtype=torch.float32).view(num_rows, 64) + layer)
            x, qkv = model.advance(layer, attended, x)
            left += [x, qkv]
    return left


@pytest.fixture(scope="module")
def models():
    """The same weights twice, plain and compiled for ROWS; an engine compiles once, so the tests share it."""
    weights = tiny_weights(0)
    plain, other = (CausalLM(TINY_CONFIG, weights, CPU, num_positions=8) for _ in range(2))
    segments = other.compile_segments()
    with segments.opening():
        for num_rows in ROWS:
            _chain(other, num_rows)
    return plain, other


def _num_compiled():
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("num_rows", [*ROWS, 3])
def test_compiled_or_not_the_segments_leave_the_same(models, num_rows):
    plain, other = models
    before = _num_compiled()
    for expected, got in zip(_chain(plain, num_rows), _chain(other, num_rows), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert _num_compiled() == before, "serving never compiles"


def test_the_functions_know_biases_too():
    model = CausalLM(TINY_CONFIG, _with_biases(tiny_weights(0)), CPU, num_positions=8)
    expected = _chain(model, 3)
    segments = model.compile_segments()
    segments.rows = frozenset({3})
    segments._functions = compiled._Functions(compiled.enter, compiled.advance, compiled.leave)  # as they are
    for right, got in zip(expected, _chain(model, 3), strict=True):
        torch.testing.assert_close(got, right, atol=1e-4, rtol=1e-4)


def test_only_the_rows_of_warm_up_run_compiled_and_layers_share_a_compilation(models, monkeypatch):
    _plain, other = models
    assert other.compiled.rows == frozenset(ROWS)
    calls = []
    functions = other.compiled._functions
    counted = compiled._Functions(
        functions.enter, lambda *args: calls.append("advance") or functions.advance(*args), functions.leave
    )
    monkeypatch.setattr(other.compiled, "_functions", counted)
    _chain(other, 3)
    assert calls == []
    _chain(other, 2)
    assert calls == ["advance"] * (TINY_CONFIG.num_layers - 1)


def test_inside_the_guard_a_shape_without_a_compilation_runs_as_it_is(models):
    plain, other = models
    before = _num_compiled()
    ids = torch.tensor([4, 5, 6, 7, 8], dtype=torch.int32)
    with other.compiled.guarded(), torch.no_grad():
        got = other.compiled.enter(ids)
    assert _num_compiled() == before
    torch.testing.assert_close(got, plain.enter(ids), atol=1e-5, rtol=1e-5)


def test_a_compiler_that_fails_is_named_with_the_way_out(models):
    _plain, other = models
    text = "EngineConfig.torch_compile=True, but the compiler failed: .*no such header; use torch_compile=False"
    with pytest.raises(ConfigError, match=text), other.compiled.opening():
        raise BackendCompilerFailed(lambda: None, ValueError("no such header"), None)
    assert not other.compiled.is_open


@pytest.mark.parametrize(
    ("spec", "compiler", "text"),
    [
        (CPU, "no-such-c++", "needs a C++ compiler, and there is no 'no-such-c++' (install one, or name yours in the"),
        (CUDA, "c++", "needs the package triton (pip install triton); or use torch_compile=False"),
    ],
    ids=["cpu", "cuda"],
)
def test_a_missing_compiler_is_named_with_the_fix(monkeypatch, spec, compiler, text):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError) as refusal:
        compiled.require_compiler(spec)
    assert text in str(refusal.value)


def test_a_compiler_that_is_there_is_enough(monkeypatch):
    monkeypatch.setenv("CXX", "sh")
    compiled.require_compiler(CPU)
    monkeypatch.setattr(compiled.importlib.util, "find_spec", lambda name: name)
    compiled.require_compiler(CUDA)
