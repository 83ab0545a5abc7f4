"""The probe is one guarded line a site, in the three files that may have sites: the loop, and its two runners.

``engine/probe.py`` is the seam itself: it hands an event on, it reports none.
"""

import ast

from tests.house.gates import ROOT, sources

ALLOWED = {"engine/py_executor.py", "engine/runners/decoder.py", "engine/runners/null.py"}
SEAM = "engine/probe.py"
GUARD = "self._probe is not None"


def _is_emit(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "emit"


def _sites(tree: ast.Module) -> tuple[list[int], list[int]]:
    """Return the lines of guarded sites, and of every emit call."""
    guarded = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == GUARD and not node.orelse and len(node.body) == 1:
            only = node.body[0]
            if isinstance(only, ast.Expr) and _is_emit(only.value):
                guarded.append(only.value.lineno)
    return guarded, [node.lineno for node in ast.walk(tree) if _is_emit(node)]


def test_sites_are_guarded_and_only_where_they_may_be():
    wrong = []
    for path in sources(ROOT):
        where = path.relative_to(ROOT).as_posix()
        if where.startswith("engine/") and where != SEAM:
            guarded, calls = _sites(ast.parse(path.read_text(encoding="utf-8")))
            allowed = guarded if where in ALLOWED else []
            wrong += [f"{where}:{line}" for line in calls if line not in allowed]
    assert not wrong, f"an emit that is not the only line under 'if {GUARD}:', or in another file: {wrong}"


def test_each_of_these_files_has_sites():
    for where in sorted(ALLOWED):
        guarded, _ = _sites(ast.parse((ROOT / where).read_text(encoding="utf-8")))
        assert guarded, f"{where} reports no stage"
