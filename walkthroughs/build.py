"""Build each walkthrough's notebook from its source in ``src/``: read, execute, clean, write.

The kernel runs with ``LAB_STATIC=1``, so that ``show`` leaves a picture, a table and text instead of a widget, and with
``src/..`` as its folder. What is written has no widget state, stable cell ids, the SHA-256 of its source, and a
screenshot of each stepper (``screenshots.py``).

Does not: judge the result; ``tests/house/test_notebooks_clean.py`` and ``tests/walkthroughs`` do.

    python walkthroughs/build.py [--check] [NAME ...]
"""

import argparse
import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"
CELL_SECONDS = 120


def read_source(path: Path) -> Any:
    """Return the notebook that a percent-format source describes, with stable cell ids and no outputs."""
    notebook = jupytext.read(path, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{path.stem[:2]}-{number:02d}"
        cell["metadata"] = {}
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
            "stepscope": {"source_sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
        }
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def execute(notebook: Any, *, static: bool = True) -> float:
    """Run every cell in a fresh kernel and return the seconds it took; an error in a cell raises."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)} | ({"LAB_STATIC": "1"} if static else {})
    began = time.perf_counter()
    client = NotebookClient(
        notebook, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(HERE)}}
    )
    client.execute(env=environment)
    return time.perf_counter() - began


def clean(notebook: Any) -> None:
    """Drop widget state and views, timings and progress bars, which mean nothing without their kernel."""
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        cell["metadata"] = {}
        if cell.cell_type == "code":
            kept = []
            for output in cell.outputs:
                output.get("data", {}).pop(WIDGET_MIME, None)
                is_stderr = output.output_type == "stream" and output.name == "stderr"
                is_empty = output.output_type in ("display_data", "execute_result") and not output.data
                if not is_stderr and not is_empty:
                    kept.append(output)
            cell.outputs = kept


def build(path: Path, *, write: bool) -> None:
    """Build one walkthrough."""
    import screenshots  # beside this file, which is run as a script; whoever only executes needs no browser

    notebook = read_source(path)
    seconds = execute(notebook)
    screenshots.replace_pictures(notebook)
    clean(notebook)
    target = HERE / f"{path.stem}.ipynb"
    if write:
        nbformat.write(notebook, target)
    print(f"{path.stem}: executed in {seconds:.1f} s{f', wrote {target.name}' if write else ''}")


def main(arguments: list[str] | None = None) -> int:
    """Build the named walkthroughs, or all."""
    parser = argparse.ArgumentParser(description="Build walkthroughs/NN_name.ipynb from walkthroughs/src/NN_name.py")
    parser.add_argument("names", nargs="*", help="stems of sources; none means all")
    parser.add_argument("--check", action="store_true", help="execute, but write nothing")
    options = parser.parse_args(arguments)
    sources = sorted((HERE / "src").glob("*.py"))
    unknown = sorted(set(options.names) - {p.stem for p in sources})
    if unknown:
        parser.error(f"no such walkthrough: {', '.join(unknown)}; there are {', '.join(p.stem for p in sources)}")
    for path in sources:
        if not options.names or path.stem in options.names:
            build(path, write=not options.check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
