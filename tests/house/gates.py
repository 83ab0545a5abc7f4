"""What the house tests measure, as functions of a checkout's root, so that a copy can be judged too.

Does not: import the project; every gate reads files and syntax trees.
"""

import ast
import datetime as dt
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "lab")
SHIPPED = (".py", ".js", ".css")
FORBIDDEN_NAMES = frozenset({"utils", "util", "common", "misc", "helper", "helpers", "base", "impl"})

MAX_FILE_LINES = 350
MAX_TEST_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_TRITON_FUNCTION_LINES = 80
MAX_POSITIONAL = 5
MAX_RECORD_FIELDS = 12
MAX_FIELDS_OF = {"EngineConfig": 16}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """One broken rule: where, which rule, and the numbers."""

    where: str
    rule: str
    text: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.where}: {self.text}"


def sources(root: Path) -> Iterator[Path]:
    """Yield every Python file of engine and lab."""
    for package in PACKAGES:
        yield from sorted(p for p in (root / package).rglob("*.py") if "__pycache__" not in p.parts)


def shipped_files(root: Path) -> set[str]:
    """Return every file of engine and lab that the tree in ARCHITECTURE.md must name."""
    found = set()
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            if path.suffix in SHIPPED and path.name != "__init__.py" and "__pycache__" not in path.parts:
                found.add(path.relative_to(root).as_posix())
    return found


def _docstring_lines(node: Function) -> int:
    first = node.body[0]
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return (first.end_lineno or first.lineno) - first.lineno + 1 if is_docstring else 0


def _length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)


def _num_positional(node: Function, *, is_method: bool) -> int:
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (1 if is_method and names and names[0] in ("self", "cls") else 0)


def _is_record(node: ast.ClassDef) -> bool:
    decorators = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    names = [d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", "") for d in decorators]
    bases = [b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in node.bases]
    return "dataclass" in names or bool({"NamedTuple", "TypedDict"} & set(bases))


def _num_fields(node: ast.ClassDef) -> int:
    return sum(isinstance(s, ast.AnnAssign) and "ClassVar" not in ast.unparse(s.annotation) for s in node.body)


def _function_findings(where: str, tree: ast.Module, *, is_triton: bool) -> Iterator[Finding]:
    methods = {id(f) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for f in c.body}
    limit = MAX_TRITON_FUNCTION_LINES if is_triton else MAX_FUNCTION_LINES
    for node in ast.walk(tree):
        if isinstance(node, Function):
            if (lines := _length(node)) > limit:
                yield Finding(where, "function-lines", f"function {node.name} has {lines} lines, at most {limit}")
            count = _num_positional(node, is_method=id(node) in methods)
            if count > MAX_POSITIONAL and not is_triton:
                text = f"function {node.name} takes {count} positional arguments, at most {MAX_POSITIONAL}"
                yield Finding(where, "positional-arguments", text)


def _record_findings(where: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and _is_record(node):
            limit = MAX_FIELDS_OF.get(node.name, MAX_RECORD_FIELDS)
            if (count := _num_fields(node)) > limit:
                yield Finding(where, "record-fields", f"record {node.name} has {count} fields, at most {limit}")


def _num_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def size_findings(root: Path) -> list[Finding]:
    """Measure every file, function and record against its limit."""
    tests = {p.relative_to(root).as_posix() for p in (root / "tests").rglob("*.py")}
    limits = dict.fromkeys(shipped_files(root), MAX_FILE_LINES) | dict.fromkeys(tests, MAX_TEST_FILE_LINES)
    findings = [
        Finding(name, "file-lines", f"{lines} lines, at most {limit}")
        for name, limit in sorted(limits.items())
        if (lines := _num_lines(root / name)) > limit
    ]
    for path in sources(root):
        where = path.relative_to(root).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"))
        findings.extend(_function_findings(where, tree, is_triton=where.startswith("engine/ops/triton/")))
        findings.extend(_record_findings(where, tree))
    return findings


@dataclass(frozen=True)
class Exceptions:
    """The written exceptions: (path, rule) pairs, and modules whose test lies elsewhere."""

    allowed: dict[tuple[str, str], str]
    covered_by: dict[str, str]


def exceptions(root: Path) -> Exceptions:
    """Read the exception list; every entry needs a date and a reason."""
    table = tomllib.loads((root / "tests/house/exceptions.toml").read_text(encoding="utf-8"))
    for entry in (*table.get("exception", ()), *table.get("covered_elsewhere", ())):
        assert isinstance(entry.get("added"), dt.date), f"an exception needs a date: {entry}"
        assert entry.get("why"), f"an exception needs a reason: {entry}"
    allowed = {(e["path"], e["rule"]): e["why"] for e in table.get("exception", ())}
    return Exceptions(allowed, {e["module"]: e["by"] for e in table.get("covered_elsewhere", ())})
