"""The tree in ARCHITECTURE.md and the files on disk are the same list."""

from pathlib import PurePosixPath

from tests.house.gates import FORBIDDEN_NAMES, ROOT, shipped_files
from tests.house.tree import drawn_tree


def test_every_file_is_in_the_tree():
    stray = sorted(shipped_files(ROOT) - set(drawn_tree(ROOT)))
    assert not stray, f"not in ARCHITECTURE.md's tree: {stray}"


def test_everything_in_the_tree_exists():
    missing = sorted(set(drawn_tree(ROOT)) - shipped_files(ROOT))
    assert not missing, f"in ARCHITECTURE.md's tree, not on disk: {missing}"


def test_every_file_in_the_tree_says_what_it_is_for():
    assert not [name for name, what in drawn_tree(ROOT).items() if not what]


def test_no_file_or_folder_is_named_for_nothing():
    parts = {part.split(".")[0] for name in shipped_files(ROOT) for part in PurePosixPath(name).parts}
    assert not sorted(parts & FORBIDDEN_NAMES)
