"""The lab: record an engine's steps, look at them, and explain them.

The public names load lazily (PEP 562), so that reading a trace or drawing a widget does not import torch.

Does not: change a run. An engine runs the same with the lab deleted.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.counterfactuals.search import counterfactual
    from lab.recorder import Recorder
    from lab.session import Session, attach, playground
    from lab.snapshot import StepSnapshot
    from lab.trace import Trace
    from lab.widgets.compare import compare
    from lab.widgets.predictions import predict
    from lab.widgets.show import show

_HOMES = {
    "Recorder": "lab.recorder",
    "Session": "lab.session",
    "StepSnapshot": "lab.snapshot",
    "Trace": "lab.trace",
    "attach": "lab.session",
    "compare": "lab.widgets.compare",
    "counterfactual": "lab.counterfactuals.search",
    "playground": "lab.session",
    "predict": "lab.widgets.predictions",
    "show": "lab.widgets.show",
}

__all__ = [
    "Recorder",
    "Session",
    "StepSnapshot",
    "Trace",
    "attach",
    "compare",
    "counterfactual",
    "playground",
    "predict",
    "show",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        message = f"module 'lab' has no attribute {name!r}; it offers {', '.join(__all__)}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted(__all__)
