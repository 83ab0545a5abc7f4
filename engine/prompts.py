"""Prompts as callers pass them: one or many, text or token ids, with one set of params or one for each.

Does not: know a vocabulary or limits (``llm_request.py``), or cut text into tokens (``models/tokenizer.py``).
"""

import contextlib
from collections.abc import Sequence

from engine.config import SamplingParams
from engine.errors import RequestError
from engine.fields import shown

Prompt = str | Sequence[int]

_BYTES = (bytes, bytearray, memoryview)  # sequences of integers, never meant as token ids


def listed_ids(prompt: object) -> Sequence[object]:
    """Give the items of a prompt that is no text: any sequence but bytes, or whatever has ``tolist`` (an array).

    The items are not looked at. Raises: RequestError.
    """
    if isinstance(prompt, Sequence) and not isinstance(prompt, (str, *_BYTES)):
        return prompt
    if hasattr(prompt, "tolist") and not isinstance(prompt, memoryview):
        with contextlib.suppress(Exception):  # a tensor without data has the method and no list
            values = prompt.tolist()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
            if isinstance(values, list):
                return values
    hint = "; decode() it first" if isinstance(prompt, _BYTES) else ""
    message = f"a prompt must be text or a list of token ids, got {shown(prompt)}{hint}"
    raise RequestError(message)


def pair(
    prompts: Prompt | Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams] | None
) -> list[tuple[Prompt, SamplingParams | None]]:
    """Give every prompt its params; a single text counts as a list of one. Raises: RequestError."""
    if not isinstance(prompts, Sequence) or isinstance(prompts, _BYTES):
        hint = "; make it a list" if hasattr(prompts, "__iter__") else ""
        wanted = "text or a list of prompts (each a text or a list of token ids)"
        message = f"prompts must be {wanted}, got {shown(prompts)}{hint}"
        raise RequestError(message)
    listed: list[Prompt] = [prompts] if isinstance(prompts, str) else list(prompts)  # type: ignore[arg-type]
    if listed and all(isinstance(prompt, int) for prompt in listed):
        message = (
            f"prompts must be text or a list of prompts, got the token ids {shown(prompts)}; write [[...]] for one"
        )
        raise RequestError(message)
    if params is None or isinstance(params, SamplingParams):
        return [(prompt, params) for prompt in listed]
    if not isinstance(params, Sequence):
        message = f"params must be a SamplingParams or a list of them, got {shown(params)}"
        raise RequestError(message)
    if len(params) != len(listed):
        message = f"params must be one SamplingParams or as many as there are prompts, {len(listed)}, got {len(params)}"
        raise RequestError(message)
    return list(zip(listed, params, strict=True))
