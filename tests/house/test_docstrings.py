"""Every module says what it does and what it does not; every public name says what it is."""

import ast
from collections.abc import Iterator

from tests.house.gates import ROOT, sources


def _missing_names(tree: ast.Module) -> Iterator[str]:
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + child.name
                decorators = {ast.unparse(d).rpartition(".")[2] for d in child.decorator_list}
                if not child.name.startswith("_") and not decorators & {"setter", "override", "overload"}:
                    if not ast.get_docstring(child):
                        yield name
                    if isinstance(child, ast.ClassDef):
                        stack.append((name + ".", child))


def test_every_module_says_what_it_does_not():
    silent = []
    for path in sources(ROOT):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if path.name != "__init__.py" and tree.body and "Does not" not in (ast.get_docstring(tree) or ""):
            silent.append(path.relative_to(ROOT).as_posix())
    assert not silent, "no 'Does not: ...' in the module docstring of:\n" + "\n".join(silent)


def test_every_public_name_is_described():
    missing = []
    for path in sources(ROOT):
        where = path.relative_to(ROOT).as_posix()
        missing += [f"{where}: {name}" for name in _missing_names(ast.parse(path.read_text(encoding="utf-8")))]
    assert not missing, "no docstring:\n" + "\n".join(missing)


def test_no_file_promises_work_instead_of_doing_it():
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X")
    found = [
        f"{path.relative_to(ROOT).as_posix()}: {mark}"
        for path in sources(ROOT)
        for mark in marks
        if mark in path.read_text(encoding="utf-8")
    ]
    assert not found
