"""The peer of the GPU benchmark: transformers' ``generate`` with a static cache, over the engine's own weights.

``generate`` compiles its decode step on CUDA by itself; that happens before anything is timed. A peer serves one
batch size: a second one would be compiled for sizes that vary, which is slower.

Does not: tune, or fall back: a peer that cannot run is an error.
"""

import contextlib
import gc
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import torch

from engine.errors import ConfigError
from engine.models.config import ModelConfig
from lab.bench.reference import rebuild, require_transformers
from lab.bench.replay import Rates, median_rates


class _Stamps:
    """A stopping criterion that never stops: it notes when the first and the last token were ready."""

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        if len(self.times) in (0, self._num_tokens - 1) and input_ids.is_cuda:
            torch.cuda.synchronize(input_ids.device)
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


class StaticCachePeer:
    """One model of transformers for one batch size; a context manager that frees what it compiled."""

    name = "transformers static cache"

    def __init__(self, config: ModelConfig, weights: Mapping[str, torch.Tensor]) -> None:
        """Build the model over views of the weights. Raises: ConfigError without transformers."""
        require_transformers().logging.set_verbosity_error()
        self._device = next(iter(weights.values())).device
        self._model: Any = rebuild(config, weights)

    def __enter__(self) -> Self:
        """Return the peer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop the model and its compiled code."""
        self._model = None
        if self._device.type == "cuda":
            torch.compiler.reset()
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def generate_rates(
        self, prompts: list[list[int]], new_tokens: int, *, rounds: int
    ) -> tuple[Rates, list[list[int]]]:
        """Return the rates of the peer's ``generate``, and the tokens.

        Two rounds run before those that count: one compiles, one records. Raises: ConfigError when it cannot run here.
        """
        ids = torch.tensor(prompts, device=self._device)
        mask, out = torch.ones_like(ids), ids
        spans: list[tuple[float, float]] = []
        for _ in range(2 + rounds):
            stamps = _Stamps(new_tokens)
            began = time.perf_counter()
            with torch.no_grad(), _explained():
                out = self._model.generate(
                    ids,
                    attention_mask=mask,
                    max_new_tokens=new_tokens,
                    do_sample=False,
                    pad_token_id=0,
                    cache_implementation="static",
                    stopping_criteria=[stamps],
                )
            spans.append((stamps.times[-1] - began, stamps.times[-1] - stamps.times[0]))
        rates = median_rates(spans[2:], batch=len(prompts), new_tokens=new_tokens)
        return rates, out[:, ids.shape[1] :].tolist()

    def shortfall(self, prompt: list[int], tokens: list[int]) -> float:
        """Say how far the worst of the tokens lies below the peer's own choice at its place.

        Units: standard deviations of the logits there. Two right computations differ by rounding, a few hundredths;
        a token of another model lies about four below.
        """
        ids = torch.tensor([prompt + tokens], device=self._device)
        with torch.no_grad():
            logits = self._model(ids[:, :-1]).logits[0, len(prompt) - 1 :].float()
        chosen = logits.gather(1, ids[0, len(prompt) :, None])[:, 0]
        return float(((logits.amax(1) - chosen) / logits.std(1)).max())


@contextlib.contextmanager
def _explained() -> Any:
    try:
        yield
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        message = (
            f"the peer, transformers' generate with a static cache, must run to be compared with, it raised "
            f"{type(error).__name__}: {first}; it compiles its decode step, which needs Triton and a C compiler "
            f"(`pip install triton`, and gcc on the PATH)"
        )
        raise ConfigError(message) from error
