"""``stepscope models``: which models go by a name, and fetching one.

Does not: load a model.
"""

import argparse
import json
from typing import Any


def add_parser(commands: Any) -> None:
    """Describe the command to argparse."""
    parser = commands.add_parser(
        "models", help="list or fetch models", description="List the models that go by a name, or fetch one."
    )
    parser.set_defaults(run=list_models, json=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    listing = actions.add_parser("list", help="list the models and where they lie")
    listing.add_argument("--json", action="store_true", help="print JSON instead")
    listing.set_defaults(run=list_models)
    pull = actions.add_parser("pull", help="fetch a model into the user's cache, with a progress bar")
    pull.add_argument("name", help="a name from `stepscope models list`")
    pull.set_defaults(run=pull_model)


def list_models(arguments: argparse.Namespace) -> int:
    """Print every model by name."""
    found = described()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return 0
    width = max(len(model["name"]) for model in found)
    for model in found:
        state = "ready" if model["is_ready"] else f"stepscope models pull {model['name']}"
        print(f"{model['name']:<{width}}  {model['description']}  [{state}]")
    print("Also: a path to a .gguf file or to a Hugging Face folder (Llama, Qwen2, Qwen3).")
    return 0


def described() -> list[dict[str, Any]]:
    """Return name, description, readiness, path and size of every model by name. Units: bytes."""
    from engine.models.catalog import PUBLISHED, TINY_NAME

    tiny = {"name": TINY_NAME, "description": "seeded random weights, byte tokenizer, built in"}
    tiny_row: dict[str, Any] = {**tiny, "is_ready": True, "path": None, "num_bytes": 0}
    published = [
        {
            "name": model.name,
            "description": model.description,
            "is_ready": model.is_pulled,
            "path": str(model.path),
            "num_bytes": model.num_bytes,
        }
        for model in PUBLISHED.values()
    ]
    return [tiny_row, *published]


def pull_model(arguments: argparse.Namespace) -> int:
    """Fetch one model and print where it lies."""
    from engine.models.catalog import TINY_NAME
    from engine.models.loading import pull

    if arguments.name == TINY_NAME:
        print(f"{TINY_NAME} is built in; there is nothing to fetch")
        return 0
    with pull.tqdm_progress() as progress:
        path = pull.pull_model(arguments.name, progress=progress)
    print(path)
    return 0
