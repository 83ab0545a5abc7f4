"""The tree of files as ARCHITECTURE.md draws it.

Does not: look at the disk; ``gates.shipped_files`` does.
"""

import re
from pathlib import Path

LINE = re.compile(r"^(?P<indent> *)(?P<name>[\w.]+/?)(?:  +(?P<what>\S.*))?$")


def drawn_tree(root: Path) -> dict[str, str]:
    """Return path -> description of every file in the fenced block that follows the marker line.

    Raises: AssertionError when a line cannot be read or an indent is not two spaces a level.
    """
    text = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    block = text.split("<!-- tree -->", 1)[1].split("```", 2)[1]
    folders: list[str] = []
    files: dict[str, str] = {}
    for line in block.splitlines()[1:]:
        match = LINE.match(line)
        assert match, f"ARCHITECTURE.md: cannot read tree line {line!r}"
        depth, odd = divmod(len(match["indent"]), 2)
        assert not odd, f"ARCHITECTURE.md: odd indent in {line!r}"
        assert depth <= len(folders), f"ARCHITECTURE.md: a level is missing above {line!r}"
        del folders[depth:]
        if match["name"].endswith("/"):
            folders.append(match["name"])
        else:
            files["".join(folders) + match["name"]] = match["what"] or ""
    return files
