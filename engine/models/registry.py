"""From a name or a path to a model that can run: the one entry to this package.

A name is looked up in the registry, a path is told apart by what lies there: a ``.gguf`` file or a Hugging Face
folder. Does not: download (``loading/pull.py``), decode formats (``loading/gguf.py``, ``loading/safetensors.py``).
"""

import dataclasses
import hashlib

from engine.device import DeviceSpec
from engine.errors import ModelError
from engine.models.config import ModelConfig
from engine.models.llama import CausalLM
from engine.models.tiny import TINY_CONFIG, tiny_tokenizer, tiny_weights
from engine.models.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run.

    weight_hash: 16 hexadecimal digits that stay the same wherever the same weights lie; see ``loading/fingerprint.py``.
    """

    name: str
    config: ModelConfig
    model: CausalLM
    tokenizer: Tokenizer
    weight_hash: str


def _num_positions(config: ModelConfig, max_seq_len: int | None) -> int:
    if max_seq_len is not None and max_seq_len > config.max_position:
        message = (
            f"max_seq_len must be at most {config.max_position}, the longest sequence that this model was made for, "
            f"got {max_seq_len}; set EngineConfig(max_seq_len={config.max_position}) or less"
        )
        raise ModelError(message)
    return max_seq_len or config.max_position


def _load_tiny(spec: DeviceSpec, seed: int, max_seq_len: int | None) -> LoadedModel:
    weights = tiny_weights(seed)
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(weights[name].numpy().tobytes())
    model = CausalLM(TINY_CONFIG, weights, spec, num_positions=_num_positions(TINY_CONFIG, max_seq_len))
    return LoadedModel("tiny", TINY_CONFIG, model, tiny_tokenizer(), digest.hexdigest()[:16])


def load_model(name_or_path: str, spec: DeviceSpec, *, seed: int = 0, max_seq_len: int | None = None) -> LoadedModel:
    """Load a model for a device.

    name_or_path: "tiny", "smollm2-135m", a .gguf file or a Hugging Face folder. seed: of tiny's weights.
    max_seq_len: the longest sequence to be served; None means the model's own maximum.
    Raises: ModelError, which names what was wrong and the nearest thing to do.
    """
    if name_or_path == "tiny":
        return _load_tiny(spec, seed, max_seq_len)
    message = f"unknown model {name_or_path!r}"
    raise ModelError(message)
