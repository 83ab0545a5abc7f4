"""Every module has a test file of the same name at the same place, or a reason why another file tests it."""

import ast

from tests.house.gates import ROOT, exceptions, sources


def _modules() -> list[str]:
    """Every module with code in it."""
    names = []
    for path in sources(ROOT):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        if path.name != "__init__.py" and body:
            names.append(path.relative_to(ROOT).as_posix())
    return names


def _mirror(module: str) -> str:
    folder, _, name = module.rpartition("/")
    if folder.startswith("lab/exercises/ex"):  # a function to be written is tested by its solution
        return f"tests/{folder.removeprefix('lab/')}/solution.py"
    return f"tests/{folder}/test_{name}"


def test_every_module_has_its_test_file():
    elsewhere = exceptions(ROOT).covered_by
    missing = [m for m in _modules() if m not in elsewhere and not (ROOT / _mirror(m)).is_file()]
    assert not missing, "no test file for:\n" + "\n".join(f"{m} -> {_mirror(m)}" for m in missing)


def test_every_test_named_as_standing_in_exists_and_is_needed():
    for module, by in exceptions(ROOT).covered_by.items():
        assert (ROOT / module).is_file(), f"{module} is gone; drop its entry"
        assert (ROOT / by).is_file(), f"{by}, which should test {module}, does not exist"
        assert not (ROOT / _mirror(module)).is_file(), f"{module} has its own test file now; drop its entry"
