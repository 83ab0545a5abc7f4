import errno

import pytest
import torch

from engine import footprint as footprint_module
from engine.config import CudaGraphConfig, EngineConfig, KVCacheConfig, SchedulerConfig
from engine.device import DeviceSpec
from engine.errors import ConfigError
from engine.footprint import footprint, naming_lack_of_memory, require_memory
from engine.llm import LLM
from engine.models.tiny import TINY_CONFIG

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)
CUDA = DeviceSpec(torch.device("cuda", 0), torch.bfloat16, is_cuda=True)


def parts(config, spec=CPU, num_blocks=9):
    return {part.name: part for part in footprint(config, TINY_CONFIG, spec, num_blocks=num_blocks)}


def num_bytes(tensors):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors.values()}.values())


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(device="cpu"),
        EngineConfig(device="cpu", max_seq_len=4096, kv_cache=KVCacheConfig(tokens_per_block=8, num_blocks=1000)),
        EngineConfig(device="cpu", scheduler=SchedulerConfig(max_batch_size=40, max_num_tokens=64)),
    ],
)
def test_no_part_is_estimated_below_what_the_engine_allocates(config):
    with LLM("tiny", config) as llm:
        parts_of = llm._model_engine._runner._parts
        storage = parts_of.eager_metadata.storage
        estimate = parts(config, num_blocks=storage.num_blocks)
        pool = num_bytes(storage.tensors())
        assert pool <= estimate["the KV pool"].num_bytes <= 1.05 * pool
        sampling = num_bytes(llm._executor._samples._sampler.tensors())
        assert sampling <= estimate["sampling"].num_bytes
        metadata = [parts_of.eager_metadata, *parts_of.key_metadata.values()]
        apart = ("kv_blocks", "scratch")
        tables = sum(num_bytes({n: t for n, t in m.tensors().items() if n not in apart}) for m in metadata)
        scratch = parts_of.eager_metadata.scratch.untyped_storage().nbytes()
        assert scratch <= estimate["gathered keys and values"].num_bytes <= 1.1 * scratch
        rows = num_bytes(llm.input_buffers.tensors())
        assert tables + rows <= estimate["block tables"].num_bytes + estimate["the rows of a step"].num_bytes


@pytest.mark.parametrize(
    ("config", "spec", "free", "text"),
    [
        (
            EngineConfig(kv_cache=KVCacheConfig(num_blocks=10**6)),
            CPU,
            8 << 30,
            (
                "the engine needs 11.5 GiB on cpu (11.4 GiB of it for the KV pool), and 8.0 GiB are free; lower "
                "KVCacheConfig.num_blocks=1000000"
            ),
        ),
        (
            EngineConfig(max_seq_len=8192),
            CPU,
            10 << 20,
            (
                "the engine needs 66.1 MiB on cpu (48.0 MiB of it for the KV pool), and 10.0 MiB are free; lower "
                "EngineConfig.max_seq_len=8192"
            ),
        ),
        (
            EngineConfig(kv_cache=KVCacheConfig(memory_fraction=1.0)),
            CUDA,
            5 << 20,
            (
                "the engine needs 7.0 MiB on cuda:0 (6.0 MiB of it for the KV pool), and 5.0 MiB are free; lower "
                "KVCacheConfig.memory_fraction=1.0"
            ),
        ),
        (
            EngineConfig(scheduler=SchedulerConfig(max_num_tokens=1 << 24)),
            CPU,
            1 << 30,
            (
                "the engine needs 53.3 GiB on cpu (53.2 GiB of it for the rows of a step), and 1.0 GiB are free; lower "
                "SchedulerConfig.max_num_tokens=16777216"
            ),
        ),
        (
            EngineConfig(scheduler=SchedulerConfig(max_batch_size=1 << 14, max_num_tokens=1 << 14)),
            CPU,
            1 << 30,
            (
                "the engine needs 42.6 GiB on cpu (24.0 GiB of it for the KV pool), and 1.0 GiB are free; lower "
                "EngineConfig.max_seq_len=2048"
            ),
        ),
        (
            EngineConfig(
                scheduler=SchedulerConfig(max_batch_size=1 << 14, max_num_tokens=1 << 14),
                kv_cache=KVCacheConfig(num_blocks=200),
            ),
            CPU,
            1 << 30,
            (
                "the engine needs 18.6 GiB on cpu (10.5 GiB of it for block tables), and 1.0 GiB are free; lower "
                "SchedulerConfig.max_batch_size=16384"
            ),
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sizes_and_the_field(config, spec, free, text, monkeypatch):
    monkeypatch.setattr(footprint_module, "free_memory", lambda _: free)
    per_sequence = -(-config.max_seq_len // config.kv_cache.tokens_per_block)
    num_blocks = config.kv_cache.num_blocks or config.scheduler.max_batch_size * per_sequence
    with pytest.raises(ConfigError) as caught:
        require_memory(footprint(config, TINY_CONFIG, spec, num_blocks=num_blocks), spec)
    assert str(caught.value) == text


def test_what_fits_is_no_matter(monkeypatch):
    fitting = footprint(EngineConfig(), TINY_CONFIG, CPU, num_blocks=9)
    monkeypatch.setattr(footprint_module, "free_memory", lambda _: sum(part.num_bytes for part in fitting))
    require_memory(fitting, CPU)


def test_graphs_cost_tables_and_none_do_not():
    without = parts(EngineConfig(cuda_graph=CudaGraphConfig(enabled=False)))["block tables"].num_bytes
    assert parts(EngineConfig())["block tables"].num_bytes > without > 0


def test_an_engine_that_cannot_fit_is_refused_before_anything_is_allocated():
    with pytest.raises(ConfigError, match=r"and .* are free; lower KVCacheConfig\.num_blocks=67108864"):
        LLM("tiny", EngineConfig(device="cpu", kv_cache=KVCacheConfig(num_blocks=1 << 26)))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 52428800000 bytes"),
    ],
)
def test_memory_that_runs_out_all_the_same_names_what_to_lower(error):
    message = r"memory ran out on cpu while the engine was built, .* are free now \(.*\); lower SchedulerConfig\.max_"
    with pytest.raises(ConfigError, match=message), naming_lack_of_memory(CPU):
        raise error


def test_any_other_failure_stays_what_it_is():
    bug = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug") as failure, naming_lack_of_memory(CPU):
        raise bug
    assert failure.value is bug


def test_the_host_tier_is_counted_apart_from_the_device(monkeypatch):
    config = EngineConfig(device="cpu", kv_cache=KVCacheConfig(host_blocks=100))
    with LLM("tiny", config) as llm:
        storage = llm._model_engine._runner._parts.eager_metadata.storage
        estimate = parts(config, num_blocks=storage.num_blocks)
        assert estimate["the host's KV pool"].num_bytes == num_bytes({"host": storage.host_blocks})
        pool = num_bytes({**storage.tensors(), "staging": storage._staging})
        assert pool <= estimate["the KV pool"].num_bytes <= 1.05 * pool
    free = {CPU.torch_device: 1 << 20, CUDA.torch_device: 64 << 30}
    monkeypatch.setattr(footprint_module, "free_memory", lambda spec: free[spec.torch_device])
    needed = footprint(EngineConfig(kv_cache=KVCacheConfig(host_blocks=1000)), TINY_CONFIG, CUDA, num_blocks=9)
    with pytest.raises(ConfigError) as caught:
        require_memory(needed, CUDA)
    assert str(caught.value) == (
        "the engine needs 5.9 MiB on cpu (5.9 MiB of it for the host's KV pool), and 1.0 MiB are free; lower "
        "KVCacheConfig.host_blocks=1000"
    )
