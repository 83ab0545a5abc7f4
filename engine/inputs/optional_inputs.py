"""OptionalInputs: a model's optional inputs in persistent buffers, every row of which is written in every step.

A graph reads the same addresses whether or not a step has the input, so an input that were merely left out would be
that of an earlier step. What a step does not give is filled with the neutral value: the whole input, or the rows behind
those given, which are the dummies' and those of token padding. Graphs and eager steps read these buffers themselves;
there are no statics in between, and the replay check compares their addresses.

Does not: compute values (the model's ``prepare_request_inputs`` does), or know requests. A model without optional
inputs has no buffer here, and pays nothing.
Source: TensorRT-LLM fills an absent optional input of a replay with its neutral value.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from engine.device import DeviceRegistry, DeviceSpec, PinnedRing, Stream
from engine.errors import ModelError
from engine.models.optional_input import OptionalInput


class OptionalInputs:
    """The buffers of the declared inputs, and their only writer."""

    def __init__(
        self,
        declared: Sequence[OptionalInput],
        max_num_tokens: int,
        stream: Stream,
        spec: DeviceSpec,
        registry: DeviceRegistry,
    ) -> None:
        """Allocate a buffer and its pinned mirrors for each input, neutral at first."""
        self._declared = {one.name: one for one in declared}
        self._stream = stream
        self._buffers = {
            one.name: torch.full((max_num_tokens,), one.neutral, dtype=one.dtype, device=spec.torch_device)
            for one in declared
        }
        self._rings = {one.name: PinnedRing((max_num_tokens,), one.dtype, spec) for one in declared}
        self._addresses = {name: tensor.data_ptr() for name, tensor in self.tensors().items()}
        for name, tensor in self.tensors().items():
            registry.register(name, tensor)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Name every buffer, for the replay check."""
        return {f"optional_inputs.{name}": tensor for name, tensor in self._buffers.items()}

    def views(self, num_rows: int) -> dict[str, torch.Tensor]:
        """Return what a forward over so many rows takes by name. Shapes: [N] each. Valid: until the next ``write``."""
        return {name: tensor[:num_rows] for name, tensor in self._buffers.items()}

    def write(self, given: Mapping[str, Sequence[float]] | None, num_rows: int) -> None:
        """Write a step: the given values from row 0 on, the neutral value in all its other rows. Order: of the rows.

        Raises: ModelError for a name that the model does not declare, or for more values than the step has rows.
        """
        given = given or {}
        self._require_declared(given, num_rows)
        for name, one in self._declared.items():
            values, buffer = given.get(name, ()), self._buffers[name]
            if len(values):
                ring = self._rings[name]
                self._stream.copy_(buffer[: len(values)], ring.stage(np.asarray(values)))
                ring.mark_copied(self._stream)
            rest = buffer[len(values) : num_rows]
            if len(rest):
                self._stream.launch(functools.partial(rest.fill_, one.neutral))

    def wait(self) -> None:
        """Block until the device has read every mirror."""
        for ring in self._rings.values():
            ring.wait()

    def check(self) -> None:
        """Recompute: no buffer has moved since graphs may have taken its address."""
        assert {name: tensor.data_ptr() for name, tensor in self.tensors().items()} == self._addresses

    def _require_declared(self, given: Mapping[str, Sequence[float]], num_rows: int) -> None:
        for name, values in given.items():
            if name not in self._declared:
                names = ", ".join(self._declared) or "none"
                message = (
                    f"prepare_request_inputs must give inputs that the model declares in optional_inputs ({names}), "
                    f"got {name!r}"
                )
                raise ModelError(message)
            if len(values) > num_rows:
                message = (
                    f"prepare_request_inputs must give at most one value of {name!r} for each row, {num_rows}, got "
                    f"{len(values)}"
                )
                raise ModelError(message)
