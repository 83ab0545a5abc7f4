"""From a name or a path to a model that can run: the one entry to this package.

A name is looked up in the registry, a path is told apart by what lies there: a ``.gguf`` file or a Hugging Face
folder. Does not: download (``loading/pull.py``), decode formats (``loading/gguf.py``, ``loading/safetensors.py``).
"""

import dataclasses
import difflib
import hashlib
from pathlib import Path

import torch

from engine.device import DeviceSpec
from engine.errors import ModelError
from engine.fields import shown
from engine.models.catalog import PUBLISHED, TINY_NAME, model_names
from engine.models.config import ModelConfig
from engine.models.llama import CausalLM
from engine.models.loading.cache import Converted, converted_path, load_converted, store_converted
from engine.models.loading.entries import naming
from engine.models.loading.fingerprint import weight_hash
from engine.models.loading.gguf import GGUFFile
from engine.models.loading.huggingface import read_folder
from engine.models.loading.safetensors import weight_files
from engine.models.loading.tokenizer import BPETokenizer, tokenizer_from_gguf
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


def load_model(
    name_or_path: str | LoadedModel, spec: DeviceSpec, *, seed: int = 0, max_seq_len: int | None = None
) -> LoadedModel:
    """Load a model for a device.

    name_or_path: "tiny", "smollm2-135m", a .gguf file, a Hugging Face folder, or a model that was made elsewhere,
    which is served as it is. seed: of tiny's weights. max_seq_len: the longest sequence to be served; None means the
    model's own maximum.
    Raises: ModelError, which names what was wrong and the nearest thing to do.
    """
    if isinstance(name_or_path, LoadedModel):
        return _require_fit(name_or_path, spec, max_seq_len)
    if not isinstance(name_or_path, str | Path):
        message = f"a model is named by text or by a path, got {shown(name_or_path)}; 'tiny' is built in"
        raise ModelError(message)
    name_or_path = str(name_or_path)
    if name_or_path == TINY_NAME:
        return _load_tiny(spec, seed, max_seq_len)
    path = _find(name_or_path)
    try:
        converted = read_folder(path, spec.dtype) if path.is_dir() else _read_gguf_cached(path, spec.dtype)
        digest = weight_hash(weight_files(path) if path.is_dir() else [path])
    except OSError as error:
        where = error.filename or path
        message = f"{where} cannot be read: {error.strerror or error}"
        raise ModelError(message) from error
    config = converted.config
    with naming(path / "tokenizer.json" if path.is_dir() else path):
        tokenizer = BPETokenizer(converted.tokenizer, config.vocab_size)
    num_positions = _num_positions(config, max_seq_len)
    model = CausalLM(config, converted.weights, spec, num_positions=num_positions)
    return LoadedModel(name_or_path, config, model, tokenizer, digest)


def _require_fit(loaded: LoadedModel, spec: DeviceSpec, max_seq_len: int | None) -> LoadedModel:
    """Pass a ready model on if it lies where the engine runs and knows positions enough."""
    table = loaded.model.cos_table
    num_positions = _num_positions(loaded.config, max_seq_len)
    got = (table.device, table.dtype, table.shape[0])
    if got[:2] != (spec.torch_device, spec.dtype) or got[2] < num_positions:
        message = (
            f"model {loaded.name!r} must lie on {spec.torch_device} in {spec.dtype} with {num_positions} positions, "
            f"got {got[0]}, {got[1]} and {got[2]}; make it for the DeviceSpec and max_seq_len of the engine's config"
        )
        raise ModelError(message)
    return loaded


def _find(name_or_path: str) -> Path:
    """Give the file or folder that is meant."""
    if name_or_path in PUBLISHED:
        published = PUBLISHED[name_or_path]
        if not published.is_pulled:
            present = published.bytes_present
            state = "not on this machine yet"
            if present is not None:
                state = f"not whole: {published.path} has {present} of {published.num_bytes} bytes"
            message = (
                f"model {name_or_path!r} is {state}; get it with "
                f"`stepscope models pull {name_or_path}`, or use 'tiny', which needs no download"
            )
            raise ModelError(message)
        return published.path
    try:
        path = Path(name_or_path).expanduser()
        exists = bool(name_or_path) and path.exists()
    except PermissionError as error:
        message = f"{shown(name_or_path)} cannot be read: {error.strerror} (a folder on the way is closed to you)"
        raise ModelError(message) from error
    except (OSError, RuntimeError, ValueError):  # a name too long for a path, an unknown user's home, a NUL
        path, exists = Path(), False
    if exists and (path.is_dir() or path.is_file()):
        return path
    if exists:
        message = f"{path} is neither a file nor a folder; a model is a .gguf file or a Hugging Face folder"
        raise ModelError(message)
    near = difflib.get_close_matches(name_or_path.lower(), model_names(), n=3, cutoff=0.4) or model_names()
    looks_like_path = path.suffix == ".gguf" or len(path.parts) > 1
    message = (
        f"{'no file or folder' if looks_like_path else 'no model'} {shown(name_or_path)}; "
        f"did you mean {' or '.join(map(repr, near))}? A model is a name ({', '.join(model_names())}), "
        "a .gguf file, or a Hugging Face folder (config.json, safetensors, tokenizer.json)"
    )
    raise ModelError(message)


def _read_gguf_cached(path: Path, dtype: torch.dtype) -> Converted:
    """Map the converted copy; the first time, dequantise into one, or into memory when none can be kept."""
    cached_path = converted_path(path, dtype)
    converted = load_converted(cached_path)
    if converted is None:
        file = GGUFFile(path)
        vocabulary = file.vocabulary()
        with naming(path):
            tokenizer = tokenizer_from_gguf(vocabulary)
        if store_converted(cached_path, file.config, tokenizer, file.weights(dtype), dtype=dtype):
            converted = load_converted(cached_path)
        if converted is None:
            converted = Converted(file.config, dict(file.weights(dtype)), tokenizer)
    return converted
