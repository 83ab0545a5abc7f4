import inspect

import pytest

from engine import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
]


def _drawn_tree() -> dict[str, tuple[str, set[str]]]:
    """Read the tree in the module docstring: name -> (parent, further bases)."""
    drawn: dict[str, tuple[str, set[str]]] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        name_part = line.lstrip(" |`-")
        if not line.startswith("    ") or not name_part.split()[0].endswith("Error"):
            continue
        depth = (len(line) - len(name_part) - 4) // 4
        name = name_part.split()[0]
        rest = name_part[len(name) :].strip()
        extra = {rest[1 : rest.index(")")]} if rest.startswith("(") else set()
        path = [*path[:depth], name]
        drawn[name] = (path[-2] if depth else "Exception", extra)
    return drawn


def test_the_tree_in_the_docstring_is_the_tree_in_the_code():
    real = {}
    for cls in CLASSES:
        first, *others = cls.__bases__
        real[cls.__name__] = (first.__name__, {other.__name__ for other in others})
    assert _drawn_tree() == real


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_is_caught_as_a_stepscope_error(cls):
    assert issubclass(cls, errors.StepscopeError)
    assert cls.__doc__


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.RequestError, ValueError),
        (errors.ModelError, ValueError),
        (errors.TraceError, ValueError),
        (errors.UnknownRequestError, KeyError),
        (errors.DispatchError, TypeError),
    ],
)
def test_misuse_is_also_the_builtin_error_that_a_caller_expects(cls, builtin):
    assert issubclass(cls, builtin)


def test_an_unknown_request_reads_as_its_message_and_not_as_a_repr():
    assert str(errors.UnknownRequestError("request 7 was never submitted")) == "request 7 was never submitted"
    assert str(errors.UnknownRequestError()) == ""
