from pathlib import Path

import pytest

from engine.models.loading.fingerprint import weight_hash

SIZE = 3 << 20


@pytest.mark.parametrize("place", [0, 1000, (1 << 20) - 1, 1 << 20])
def test_a_changed_byte_that_is_sampled_changes_the_hash(place: int, tmp_path: Path):
    path = tmp_path / "w"
    path.write_bytes(bytes(SIZE))
    before = weight_hash([path])
    data = bytearray(SIZE)
    data[place] = 1
    path.write_bytes(data)
    assert weight_hash([path]) != before


def test_size_and_order_of_files_count_and_place_does_not(tmp_path: Path):
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    a.write_bytes(b"x" * 100)
    b.write_bytes(b"y" * 100)
    c.write_bytes(b"x" * 100)
    assert weight_hash([a]) == weight_hash([c])
    assert weight_hash([a, b]) != weight_hash([b, a])
    c.write_bytes(b"x" * 101)
    assert weight_hash([a]) != weight_hash([c])
