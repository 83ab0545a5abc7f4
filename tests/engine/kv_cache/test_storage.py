import dataclasses
import hashlib
import random

import pytest
import torch

from engine.config import SamplingParams
from engine.device import DeviceSpec, LaggedStream, make_stream
from engine.errors import CapacityError
from engine.kv_cache.copies import BlockCopy, CopyKind
from engine.kv_cache.manager import KVCacheManager
from engine.kv_cache.storage import KVStorage
from engine.llm_request import LlmRequest, RequestSpec

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)


def device_copy(source, target, num_tokens=4):
    return BlockCopy(CopyKind.DEVICE, source, target, num_tokens)


def digest(blocks):
    """A hash of the bytes, in the order of [L, 2, G, I, D]."""
    return hashlib.sha256(blocks.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def with_host(num_blocks=5, num_host_blocks=3, spec=CPU):
    return KVStorage.allocate(
        num_layers=3,
        num_blocks=num_blocks,
        tokens_per_block=4,
        num_kv_heads=2,
        head_size=8,
        spec=spec,
        num_host_blocks=num_host_blocks,
    )


@pytest.fixture
def storage():
    return KVStorage.allocate(num_layers=3, num_blocks=5, tokens_per_block=4, num_kv_heads=2, head_size=8, spec=CPU)


def test_a_pool_is_zeroed_and_holds_one_sink_more(storage):
    storage.check()
    assert not storage.blocks.any()
    assert (storage.num_blocks, storage.sink_block) == (5, 5)
    keys, values = storage.layer(2)
    assert keys.shape == values.shape == (2, 6, 4, 8)
    per_block = KVStorage.bytes_per_block(
        num_layers=3, tokens_per_block=4, num_kv_heads=2, head_size=8, dtype=torch.float32
    )
    assert storage.nbytes == 6 * per_block


def test_layers_keys_and_values_do_not_overlap(storage):
    for layer in range(3):
        for side, value in zip(storage.layer(layer), (1.0, 2.0), strict=True):
            side.fill_(10 * layer + value)
    assert storage.blocks.unique().tolist() == [1.0, 2.0, 11.0, 12.0, 21.0, 22.0]


def test_a_head_of_neighbouring_blocks_is_one_stretch_of_tokens(storage):
    keys, _ = storage.layer(1)
    assert keys[:, 1:4].flatten(1, 2).is_contiguous() is False
    assert keys[0, 1:4].is_contiguous()
    assert keys[0, 1:4].view(-1, 8).data_ptr() == keys[0, 1].data_ptr()


def test_a_block_copy_copies_its_leading_tokens_in_all_layers(storage):
    storage.blocks.copy_(torch.randn(storage.blocks.shape))
    before = storage.blocks.clone()
    storage.run_copies([device_copy(1, 3, 2)], make_stream(CPU))
    assert torch.equal(storage.blocks[:, :, :, 3, :2], before[:, :, :, 1, :2])
    assert torch.equal(storage.blocks[:, :, :, 3, 2:], before[:, :, :, 3, 2:])
    others = [0, 1, 2, 4, 5]
    assert torch.equal(storage.blocks[:, :, :, others], before[:, :, :, others])


def test_block_copies_keep_stream_order(storage):
    stream = LaggedStream(10)
    storage.run_copies([device_copy(0, 1)], stream)
    storage.layer(0)[0][:, 0] = 7.0
    assert not storage.layer(0)[0][:, 1].any()
    stream.synchronize()
    assert (storage.layer(0)[0][:, 1] == 7.0).all()


@pytest.mark.parametrize("copy", [device_copy(5, 0), device_copy(0, 5), device_copy(-1, 0), device_copy(0, 1, 5)])
def test_a_copy_outside_the_pool_is_refused_with_numbers(storage, copy):
    with pytest.raises(CapacityError) as caught:
        storage.run_copies([copy], make_stream(CPU))
    assert str(caught.value) == (
        f"a block copy (DEVICE) needs a source below 5, a target below 5 and at most 4 tokens, got "
        f"source={copy.source} target={copy.target} num_tokens={copy.num_tokens}"
    )


@pytest.mark.parametrize("kind", [CopyKind.OFFLOAD, CopyKind.ONBOARD])
def test_without_a_host_tier_nothing_moves_between_tiers(storage, kind):
    with pytest.raises(CapacityError, match="below 0"):
        storage.run_copies([BlockCopy(kind, 0, 0, 4)], make_stream(CPU))


@pytest.mark.parametrize("lag", [0, 3, 50])
def test_a_block_comes_back_from_the_host_byte_for_byte(lag):
    storage, stream = with_host(), make_stream(CPU, lag=lag)
    storage.blocks.copy_(torch.randn(storage.blocks.shape))
    before, third = digest(storage.blocks[:, :, :, 1]), storage.blocks[:, :, :, 3].clone()
    storage.run_copies([BlockCopy(CopyKind.OFFLOAD, 1, 2, 4)], stream)
    stream.launch(lambda: storage.blocks[:, :, :, 1].fill_(float("nan")))  # the block's new owner
    storage.run_copies([BlockCopy(CopyKind.ONBOARD, 2, 4, 4), BlockCopy(CopyKind.ONBOARD, 2, 3, 1)], stream)
    stream.synchronize()
    assert digest(storage.blocks[:, :, :, 4]) == digest(storage.host_blocks[2]) == before
    assert torch.equal(storage.blocks[:, :, :, 3, :1], storage.blocks[:, :, :, 4, :1])
    assert torch.equal(storage.blocks[:, :, :, 3, 1:], third[:, :, :, 1:])


def computed(beginning):
    """Keys and values of the last of these tokens: a function of all of them."""
    return torch.randn(3, 2, 2, 8, generator=torch.Generator().manual_seed(hash(beginning) % 2**32))


@pytest.mark.parametrize("lag", [0, 4, 100])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_prompt_is_credited_is_what_was_computed_for_it(lag, seed):
    """Sequences are written, evicted to the host, brought back elsewhere; the bytes of every credit are compared."""
    storage, stream, dice = with_host(num_blocks=6, num_host_blocks=8), make_stream(CPU, lag=lag), random.Random(seed)
    kv = KVCacheManager(num_blocks=6, tokens_per_block=4, max_seq_len=24, host_blocks=8)
    moved = set()
    for request_id in range(60):
        prompt = tuple(
            dice.choice(((1, 1, 1, 1), (2, 2, 2, 2), (1, 2, 1, 2)))[i % 4] for i in range(dice.randint(5, 20))
        )
        prompt = tuple([token + i // 4 * dice.choice((0, 0, 10)) for i, token in enumerate(prompt)])
        request, copies = LlmRequest(RequestSpec(request_id, prompt, SamplingParams())), []
        credit = dict(kv.claim([(request, len(prompt))], copies)).get(request_id, 0)
        kv.reserve(request_id, len(prompt), copies=copies)
        storage.run_copies(copies, stream)
        moved |= {copy.kind for copy in copies}
        table = kv.block_table(request_id)
        for position in range(credit, len(prompt)):
            made = computed(prompt[: position + 1])
            place = storage.blocks[:, :, :, table[position // 4], position % 4]
            stream.launch(lambda place=place, made=made: place.copy_(made))
        if request_id % 7 == 0:
            stream.synchronize()
            for position in range(len(prompt)):
                got = storage.blocks[:, :, :, table[position // 4], position % 4]
                assert digest(got) == digest(computed(prompt[: position + 1])), f"position {position} of {prompt}"
        kv.commit(request_id, len(prompt))
        kv.free(request_id)
        kv.check()
    assert moved == set(CopyKind), "the run met every kind of copy"


def test_half_precision_pools_work_the_same():
    half = dataclasses.replace(CPU, dtype=torch.bfloat16)
    storage = KVStorage.allocate(num_layers=1, num_blocks=2, tokens_per_block=4, num_kv_heads=1, head_size=8, spec=half)
    storage.check()
    assert storage.blocks.dtype is torch.bfloat16
    assert storage.nbytes == 2 * 3 * 4 * 8 * 2
