"""The records that leave the step loop: what was sampled, what became final, what a caller gets; and samples to come.

Does not: decide or hold tensors. Torch-free.
"""

import abc
import dataclasses

import numpy as np

from engine.executor.live import LogProbs
from engine.llm_request import LlmRequest


class PendingSamples(abc.ABC):
    """The samples of one step, perhaps still on the device."""

    @abc.abstractmethod
    def read(self) -> np.ndarray:
        """Wait for them. Shapes: [1 + K, A] int32: row k is the token behind draft k, by slot.

        Valid: until two later steps were launched.
        """

    @abc.abstractmethod
    def num_accepted(self) -> np.ndarray:
        """Say how many drafts of each slot were accepted. Shapes: [A] int32. Valid: as ``read``, after it."""

    @abc.abstractmethod
    def logprobs(self) -> tuple[tuple[int, LogProbs], ...]:
        """Return the log-probabilities of the requests that asked, one for each logit row; only after ``read``."""


@dataclasses.dataclass(frozen=True, slots=True)
class SampledTokens:
    """The step's samples, read by the host, in the order of the logit rows.

    token_ids: (request id, token id); a verify row has one pair for each token that was accepted or follows. logprobs
    holds, for requests that asked, the most likely ids with their log-probabilities. num_accepted: (request id, drafts
    accepted) of verify rows.
    """

    token_ids: tuple[tuple[int, int], ...]
    logprobs: tuple[tuple[int, LogProbs], ...] = ()
    num_accepted: tuple[tuple[int, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class StepCommit:
    """What became final. new_text: (request id, text that became showable). freed: ids whose blocks came back."""

    finished: tuple[tuple[int, str], ...]
    continued: tuple[int, ...]
    paused: tuple[int, ...]
    freed: tuple[int, ...]
    new_text: tuple[tuple[int, str], ...]
    num_free_blocks: int


@dataclasses.dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request that will not run again, with what its caller gets."""

    request: LlmRequest
    text: str
    logprobs: tuple[LogProbs, ...]
