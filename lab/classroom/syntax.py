"""Source text as a syntax tree: told apart from its names, without hidden checks, or for one version of the rule.

Does not: run any of it.
"""

import ast
import hashlib
from collections.abc import Iterator
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
TRIVIAL: Final = 12  # nodes; a smaller function is nobody's invention
RULE: Final = "RULE"


def functions(source: str) -> Iterator[Function]:
    """Yield every function of a source, the nested ones too; nothing where it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, Function))


def num_nodes(function: Function) -> int:
    """Count the nodes of a function's body, its docstring left out."""
    return sum(1 for statement in _body(function) for _ in ast.walk(statement))


def fingerprint(function: Function) -> str:
    """Return a hash of what a function does, free of names of its own, annotations, decorators and docstrings."""
    names: dict[str, str] = {}
    own = {argument.arg for argument in _arguments(function)}
    for statement in function.body:
        own |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        own |= {n.arg for n in ast.walk(statement) if isinstance(n, ast.arg)}
    for argument in _arguments(function):
        names[argument.arg] = f"v{len(names)}"
    parts: list[str] = [str(len(names))]
    parts += [_token(node, own, names) for statement in _body(function) for node in ast.walk(statement)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _arguments(function: Function) -> list[ast.arg]:
    given = function.args
    more = [one for one in (given.vararg, given.kwarg) if one is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


def _body(function: Function) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def _token(node: ast.AST, own: set[str], names: dict[str, str]) -> str:
    kind = type(node).__name__
    if isinstance(node, ast.Name):
        return f"{kind} {names.setdefault(node.id, f'v{len(names)}') if node.id in own else node.id}"
    if isinstance(node, ast.arg):
        return f"{kind} {names.setdefault(node.arg, f'v{len(names)}')}"
    if isinstance(node, ast.Constant):
        return f"{kind} {node.value!r}"
    if isinstance(node, ast.Attribute):
        return f"{kind} {node.attr}"
    children = ",".join(type(child).__name__ for child in ast.iter_child_nodes(node))
    return f"{kind} {children}"


def without_hidden(source: str) -> str:
    """Return a ``properties.py`` without its hidden checks, and without private helpers that only they use."""
    tree = ast.parse(source)
    gone = [node for node in tree.body if isinstance(node, ast.FunctionDef) and _is_hidden(node)]
    kept = [node for node in tree.body if node not in gone]
    while True:
        used = {
            n.id for node in kept for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        idle = [node for node in kept if (name := _private_name(node)) is not None and name not in used]
        if not idle:
            break
        gone += idle
        kept = [node for node in kept if node not in idle]
    lines = source.splitlines()
    for node in gone:
        decorated = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        first = min([node.lineno, *(one.lineno for one in decorated)])
        for number in range(first - 1, node.end_lineno or node.lineno):
            lines[number] = "\0"
    text = "\n".join(line for line in lines if line != "\0")
    while "\n\n\n\n" in text:
        text = text.replace("\n\n\n\n", "\n\n\n")
    return text.rstrip("\n") + "\n"


def hidden_functions(source: str) -> list[Function]:
    """Return the hidden checks of a ``properties.py``, and the private helpers that only they use."""
    kept = {node.name for node in functions(without_hidden(source))}
    return [node for node in functions(source) if node.name not in kept]


def _is_hidden(node: ast.FunctionDef) -> bool:
    calls = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr == "hidden" for one in calls)


def _private_name(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.startswith("_"):
        return node.targets[0].id
    return None


class _ForRule(ast.NodeTransformer):
    """Decides every comparison of RULE with a constant, and drops what can no longer be reached."""

    def __init__(self, rule: str) -> None:
        self._rule = rule

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._rule) if node.id == RULE else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return node
        sides = (node.left, node.comparators[0])
        if not all(isinstance(one, ast.Constant) for one in sides) or self._rule not in [s.value for s in sides]:  # pyright: ignore[reportAttributeAccessIssue]
            return node
        same = sides[0].value == sides[1].value  # pyright: ignore[reportAttributeAccessIssue]
        return ast.Constant(same == isinstance(node.ops[0], ast.Eq))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)  # the constant that settles the whole expression
        values = [one for one in node.values if not (isinstance(one, ast.Constant) and one.value is not decides)]
        settled = next((at for at, one in enumerate(values) if isinstance(one, ast.Constant)), None)
        if settled == 0 or not values:
            return ast.Constant(decides if values else not decides)
        return values[0] if len(values) == 1 else ast.BoolOp(node.op, values)

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node


def for_rule(source: str, rule: str) -> str:
    """Return an answer of this project for one version of the rule, without the branches of the others."""
    return ast.unparse(ast.fix_missing_locations(_ForRule(rule).visit(ast.parse(source))))
