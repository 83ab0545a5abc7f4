"""Prefill chains as CUDA graphs: attention eager between them, one pool, statics that never move."""

import pytest
import torch

from engine.device import resolve_device
from engine.models.tiny import TINY_CONFIG
from tests.engine.cuda_graphs.prefill_world import BUCKETS, World

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device (make gpu)"),
]
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture(params=["native", "vanilla"])
def world(request):
    return World(request.param, spec=resolve_device("cuda", "float32"))


def test_every_bucket_gives_the_hidden_states_of_the_whole_model(world):
    world.capture()
    for lengths, bucket in (([3], 4), ([4], 4), ([5, 2], 8), ([16], 16), ([1, 8], 16), ([2], 16), ([1], 4)):
        hidden, check = world.run(lengths, bucket)
        assert check.passed
        torch.testing.assert_close(hidden[: sum(lengths)], world.expect(lengths), **CLOSE)
        assert not hidden.isnan().any()
        world.graphs.check()


def test_padding_rows_write_no_keys(world):
    world.capture()
    world.storage.blocks.fill_(9.0)
    world.run([3], 16)
    written = (world.storage.blocks[:, :, :, : world.storage.num_blocks] != 9.0).any(-1).any(2).any(1).any(0)
    assert written.nonzero().tolist() == [[0, 0], [0, 1], [0, 2]]


def test_chains_and_a_decode_graph_share_one_pool_and_take_turns(world):
    world.capture()
    reports = world.graphs.reports
    assert [report.num_tokens for report in reports] == list(BUCKETS[::-1])
    assert all(report.num_segments == TINY_CONFIG.num_layers + 1 and not report.simulated for report in reports)
    assert reports[0].pool_bytes > 0
    assert [report.pool_bytes for report in reports[1:]] == [0, 0], "the largest bucket pays for the rest"
    ids = world.graphs.statics.input_ids
    decode = world.graph_backend.capture(lambda: world.model.enter(ids[:1]))
    expected = {bucket: world.expect([bucket - 1]) for bucket in BUCKETS}
    for bucket in (8, 4, 16, 4, 8, 8, 16, 4):
        hidden = world.run([bucket - 1], bucket)[0]
        decode.replay()
        torch.testing.assert_close(hidden[: bucket - 1], expected[bucket], **CLOSE)
        assert hidden.data_ptr() == world.graphs.statics.hidden.data_ptr()
