"""RequestDesk: turns what a caller passed into a request that may be enqueued, or refuses it whole.

Everything is validated here, before anything is enqueued, so that one bad request costs nobody anything. Behind it
there are only token ids; text comes back in at the very end.

Does not: give ids, enqueue, or hold requests.
"""

import dataclasses

from engine.config import EngineConfig, SamplingParams
from engine.errors import RequestError
from engine.fields import shown
from engine.llm_request import RequestLimits, RequestSpec
from engine.models.tokenizer import Tokenizer
from engine.prompts import Prompt, listed_ids
from engine.sampling.stopping import StopChecker


@dataclasses.dataclass(frozen=True, slots=True)
class ValidRequest:
    """A request that may be enqueued; its spec has no id yet."""

    spec: RequestSpec
    stop_checker: StopChecker


class RequestDesk:
    """The checks of one engine."""

    def __init__(self, tokenizer: Tokenizer, config: EngineConfig, *, vocab_size: int) -> None:
        """Take the limits from the configuration."""
        scheduler = config.scheduler
        self._tokenizer, self._max_seq_len = tokenizer, config.max_seq_len
        self._limits = RequestLimits(
            vocab_size=vocab_size,
            max_seq_len=config.max_seq_len,
            max_num_tokens=scheduler.max_num_tokens,
            is_chunked=scheduler.chunking is not None,
        )

    def validate(
        self, prompt: Prompt, params: SamplingParams | None, *, draft_tokens: object = (), cache_salt: object = None
    ) -> ValidRequest:
        """Check a request in all its parts. Raises: RequestError for the first thing that is wrong."""
        params = SamplingParams() if params is None else params
        if not isinstance(params, SamplingParams):
            message = f"params must be a SamplingParams, got {shown(params)}"
            raise RequestError(message)
        if not isinstance(cache_salt, str | None):
            message = f"cache_salt must be a string or None, got {shown(cache_salt)}"
            raise RequestError(message)
        ids = self._limits.checked(self._tokenizer.encode(prompt) if isinstance(prompt, str) else listed_ids(prompt))
        self._limits.check_params(params)
        checker = StopChecker(
            params,
            prompt_len=len(ids),
            max_seq_len=self._max_seq_len,
            eos_token_ids=self._tokenizer.eos_token_ids,
            detokenizer=self._tokenizer.detokenizer(),
        )
        spec = RequestSpec(
            0,
            ids,
            params,
            max_new_tokens=min(params.max_tokens, self._max_seq_len - len(ids)),
            draft_tokens=self._limits.checked_drafts(draft_tokens),
            cache_salt=cache_salt,
        )
        return ValidRequest(spec, checker)
