import dataclasses

import pytest
import torch

from engine.device import DeviceSpec, LaggedStream, make_stream
from engine.errors import CapacityError
from engine.kv_cache.storage import KVStorage

CPU = DeviceSpec(torch.device("cpu"), torch.float32, is_cuda=False)


@dataclasses.dataclass
class Copy:
    source: int
    target: int
    num_tokens: int


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
    storage.copy_blocks([Copy(1, 3, 2)], make_stream(CPU))
    assert torch.equal(storage.blocks[:, :, :, 3, :2], before[:, :, :, 1, :2])
    assert torch.equal(storage.blocks[:, :, :, 3, 2:], before[:, :, :, 3, 2:])
    others = [0, 1, 2, 4, 5]
    assert torch.equal(storage.blocks[:, :, :, others], before[:, :, :, others])


def test_block_copies_keep_stream_order(storage):
    stream = LaggedStream(10)
    storage.copy_blocks([Copy(0, 1, 4)], stream)
    storage.layer(0)[0][:, 0] = 7.0
    assert not storage.layer(0)[0][:, 1].any()
    stream.synchronize()
    assert (storage.layer(0)[0][:, 1] == 7.0).all()


@pytest.mark.parametrize("copy", [Copy(5, 0, 1), Copy(0, 5, 1), Copy(-1, 0, 1), Copy(0, 1, 5)])
def test_a_copy_outside_the_pool_is_refused_with_numbers(storage, copy):
    with pytest.raises(CapacityError, match="ids below 5 and at most 4 tokens, got source="):
        storage.copy_blocks([copy], make_stream(CPU))


def test_half_precision_pools_work_the_same():
    half = dataclasses.replace(CPU, dtype=torch.bfloat16)
    storage = KVStorage.allocate(num_layers=1, num_blocks=2, tokens_per_block=4, num_kv_heads=1, head_size=8, spec=half)
    storage.check()
    assert storage.blocks.dtype is torch.bfloat16
    assert storage.nbytes == 2 * 3 * 4 * 8 * 2
