"""OptionalInput: what a model may read for each row besides its token and position, if a step has it.

A model names its own in ``optional_inputs`` and takes each by name in ``forward`` and ``enter``. Its hook
``prepare_request_inputs`` gives the values of a step, and may leave out any: absent means the neutral value, with
which a row is computed as if the model had no such input.

Does not: hold values (``inputs/optional_inputs.py``). Source: the optional inputs of TensorRT-LLM's graph runner.
"""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class OptionalInput:
    """One such input, a number a row. neutral: of a row to which nothing is given. dtype: one that numpy has too."""

    name: str
    neutral: float
    dtype: torch.dtype = torch.float32
