"""The exercises: small functions of the engine to write oneself, with checks that explain what went wrong.

The public names load lazily (PEP 562). In a notebook: ``from lab.exercises import check, hint, predict``.

Does not: hold a solution. Solutions, wrong solutions and other right ones live with the tests and are not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.exercises.catalogue import exercise_names
    from lab.exercises.notebook import check, hint, predict, spec
    from lab.exercises.own_code import on_own_code
    from lab.exercises.plugging import plug

_HOMES = {
    "check": "lab.exercises.notebook",
    "exercise_names": "lab.exercises.catalogue",
    "hint": "lab.exercises.notebook",
    "on_own_code": "lab.exercises.own_code",
    "plug": "lab.exercises.plugging",
    "predict": "lab.exercises.notebook",
    "spec": "lab.exercises.notebook",
}

__all__ = ["check", "exercise_names", "hint", "on_own_code", "plug", "predict", "spec"]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        message = f"module 'lab.exercises' has no attribute {name!r}; it offers {', '.join(__all__)}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the lazy names too."""
    return sorted(__all__)
