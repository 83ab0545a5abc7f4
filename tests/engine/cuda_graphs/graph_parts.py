"""Small stand-ins for tests of graphs: metadata with tensors, a runner on a tape, prepared inputs."""

import torch

from engine.attention.interface import AttentionMetadata
from engine.cuda_graphs.device_graph import make_graph_backend
from engine.cuda_graphs.key import KeyType, SampleMode
from engine.cuda_graphs.runner import CUDAGraphRunner
from engine.device import DeviceRegistry, DeviceSpec, make_stream, resolve_device
from engine.inputs.records import PreparedInputs

CPU = resolve_device("cpu", "float32")


@AttentionMetadata.register
class Metadata:
    """Two tensors under the names that a backend gives."""

    def __init__(self, num_sequences: int, device: torch.device = CPU.torch_device) -> None:
        self.kv_lens = torch.zeros(num_sequences, dtype=torch.int32, device=device)
        self.block_table = torch.zeros(num_sequences, 2, dtype=torch.int32, device=device)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"kv_lens": self.kv_lens, "block_table": self.block_table}


class World:
    """A runner with everything around it, and a persistent accumulator that its forward writes."""

    def __init__(self, *, spec: DeviceSpec = CPU, lag: int = 0, strict: bool = True, max_num_tokens: int = 8) -> None:
        self.spec = spec
        self.registry = DeviceRegistry()
        self.stream = make_stream(spec, lag=lag)
        self.backend = make_graph_backend(spec, self.registry)
        self.kv_cache = torch.zeros(16, device=spec.torch_device)
        self.registry.register("kv_cache", self.kv_cache)
        self.runner = CUDAGraphRunner(
            self.backend,
            stream=self.stream,
            spec=spec,
            registry=self.registry,
            max_num_tokens=max_num_tokens,
            strict=strict,
        )

    def forward(self, inputs) -> torch.Tensor:
        """Write each row's token to its slot of the cache; return 10 x token + position + kv_len."""
        self.kv_cache.index_copy_(0, inputs.seq_slots, inputs.input_ids.float())
        rows = inputs.input_ids * 10 + inputs.position_ids[0, 0]
        return (rows + inputs.attn_metadata.kv_lens).float()

    def capture(self, batch_size: int, *, metadata: Metadata | None = None, **options) -> KeyType:
        """Capture a greedy key of a size."""
        key = key_of(batch_size)
        metadata = metadata or Metadata(batch_size, self.spec.torch_device)
        with self.runner.allow_capture():
            self.runner.capture(key, self.forward, metadata, **options)
        return key

    def inputs(self, key: KeyType, tokens: list[int], *, metadata: Metadata | None = None) -> PreparedInputs:
        """Prepare a step for a key; row r has position 2 r and slot r."""
        device, num_rows = self.spec.torch_device, len(tokens)
        positions = torch.arange(num_rows, dtype=torch.int32, device=device) * 2
        return PreparedInputs(
            input_ids=torch.tensor(tokens, dtype=torch.int32, device=device),
            position_ids=positions.view(1, 1, -1),
            gather_ids=torch.arange(num_rows, device=device),
            seq_slots=torch.arange(num_rows, device=device),
            attn_metadata=metadata or self.runner.metadata_for(key),
            num_tokens=num_rows,
            writes=(),
        )


def key_of(batch_size: int, mode: SampleMode = SampleMode.GREEDY) -> KeyType:
    """A decode key."""
    return KeyType(batch_size, 0, mode)
