"""Torch-free by contract means torch-free at run time too: shown in a fresh process."""

import configparser
import subprocess
import sys

import pytest

from tests.house.gates import ROOT

ENGINE = (
    "errors fields config probe reasons shapes prompts llm_request scheduled resources decisions kv_cache.blocks "
    "kv_cache.reuse_tree kv_cache.manager kv_cache.seq_slots scheduler.capacity scheduler.micro_batch scheduler.refit "
    "inputs.host_inputs inputs.pack inputs.padding inputs.steady cuda_graphs.key cuda_graphs.select cuda_graphs.buckets"
)
WITH_TORCH = {
    "buffer_watch",
    "device_clock",
    "freeze",
    "recorder",
    "session",
    "faults",
    "bench",
    "counterfactuals",
    "replay",
    "advice",
}
CODE = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    heavy = [m for m in ("torch", "triton", "transformers") if m in sys.modules]
    if heavy:
        sys.exit(f"importing {name} loads {heavy[0]}")
"""


def _exists(module: str) -> bool:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def _engine_modules() -> list[str]:
    return [f"engine.{name}" for name in ENGINE.split() if _exists(f"engine.{name}")]


def _lab_modules() -> list[str]:
    names = []
    for path in sorted((ROOT / "lab").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[1] not in WITH_TORCH:
            names.append(".".join(parts).removesuffix(".__init__"))
    return names


@pytest.mark.parametrize("modules", [_engine_modules(), _lab_modules()], ids=["engine", "lab"])
def test_importing_a_torch_free_module_leaves_torch_out(modules):
    done = subprocess.run([sys.executable, "-c", CODE, *modules], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_packages_themselves_is_cheap():
    done = subprocess.run(
        [sys.executable, "-c", CODE, "engine", "lab", "engine.scheduler", "lab.trace", "lab.widgets"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_import_contract_lists_every_torch_free_module():
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    listed = parser["importlinter:contract:torch-free"]["source_modules"].split()
    # A command loads the engine when it runs, which a static contract cannot tell from importing it.
    covers = [n for n in (*_engine_modules(), *_lab_modules()) if n != "lab" and not n.startswith("lab.cli")]
    missing = [m for m in covers if not any(m == entry or m.startswith(entry + ".") for entry in listed)]
    assert not missing, f".importlinter does not keep torch out of {missing}"
