"""Stepscope's engine: an LLM inference engine in the style of TensorRT-LLM's PyTorch backend.

The public names load lazily (PEP 562), so that importing a torch-free part does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SamplingParams, SchedulerConfig
    from engine.errors import StepscopeError
    from engine.llm import LLM, RequestOutput

_HOMES = {
    "LLM": "engine.llm",
    "RequestOutput": "engine.llm",
    "EngineConfig": "engine.config",
    "SchedulerConfig": "engine.config",
    "KVCacheConfig": "engine.config",
    "CudaGraphConfig": "engine.config",
    "SamplingParams": "engine.config",
    "StepscopeError": "engine.errors",
}

__all__ = [
    "LLM",
    "CudaGraphConfig",
    "EngineConfig",
    "KVCacheConfig",
    "RequestOutput",
    "SamplingParams",
    "SchedulerConfig",
    "StepscopeError",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        message = f"module 'engine' has no attribute {name!r}; it offers {', '.join(__all__)}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted(__all__)
