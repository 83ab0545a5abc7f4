"""Numbers arrive as they are."""

import torch

from engine.ops.send_to_host import send_to_host_


def test_every_number_arrives_in_its_place():
    target = torch.zeros(3, 5, dtype=torch.int32)
    source = torch.arange(10, dtype=torch.int32).view(2, 5)
    send_to_host_(target[:2], source)
    assert target.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [0] * 5]
