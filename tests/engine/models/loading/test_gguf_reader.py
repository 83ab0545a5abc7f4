import weakref
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from engine.errors import ModelError
from engine.models.loading import gguf_reader
from engine.models.loading.gguf_reader import read_gguf
from tests.engine.models.model_files import write_gguf


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_1)
    return path.read_bytes()


@pytest.fixture
def mappings(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref]:
    """References to every mapping that is made, which do not keep it."""
    made, memmap = [], np.memmap

    def recording(*args, **kwargs):
        array = memmap(*args, **kwargs)
        made.append(weakref.ref(array._mmap))
        return array

    monkeypatch.setattr(np, "memmap", recording)
    return made


def test_values_and_tensors_equal_what_the_package_reads_unchecked(whole_file: bytes, tmp_path: Path):
    path = tmp_path / "small.gguf"
    path.write_bytes(whole_file)
    (values, tensors), reader = read_gguf(path), GGUFReader(path)
    assert values == {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert list(tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        stored = tensors[tensor.name]
        assert stored.type_name == tensor.tensor_type.name
        assert stored.shape == tuple(tensor.shape[::-1].tolist())
        assert whole_file[stored.offset : stored.offset + stored.num_bytes] == tensor.data.tobytes()


def test_every_kind_of_value_is_read(tmp_path: Path):
    path = tmp_path / "values.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -300)
    writer.add_int32("i32", -70000)
    writer.add_uint64("u64", 1 << 40)
    writer.add_int64("i64", -(1 << 40))
    writer.add_float64("f64", 0.1)
    writer.add_bool("flag", val=True)
    writer.add_string("text", "naïve")
    writer.add_array("floats", [0.5, 0.25])
    writer.add_tensor("t", np.zeros(4, np.float32))
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    values, _ = read_gguf(path)
    values.pop("general.architecture")
    assert values == {
        "u8": 200,
        "i8": -3,
        "u16": 60000,
        "i16": -300,
        "i32": -70000,
        "u64": 1 << 40,
        "i64": -(1 << 40),
        "f64": 0.1,
        "flag": True,
        "text": "naïve",
        "floats": [0.5, 0.25],
    }


@pytest.mark.parametrize("kept", [4, 5, 12, 23, 100, 3000, 20000, -1])
def test_a_truncated_file_is_named(kept: int, whole_file: bytes, tmp_path: Path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole_file[:kept])
    with pytest.raises(
        ModelError, match=r"cut\.gguf is truncated or damaged \(.*the file ends at byte .*download it again"
    ):
        read_gguf(path)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip archive", b"<html>not found</html>"])
def test_a_file_that_is_no_gguf_is_named(content: bytes, tmp_path: Path):
    path = tmp_path / "page.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"page\.gguf is not a GGUF file: it must begin with b'GGUF', got b'"):
        read_gguf(path)


def test_damage_in_the_header_is_an_error_and_no_crash(whole_file: bytes, tmp_path: Path):
    path, rng = tmp_path / "noise.gguf", np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole_file)
        for place in rng.integers(4, 4000, 4):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            read_gguf(path)
        except ModelError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("alignment", [0, "wide"])
def test_an_impossible_alignment_is_damage(alignment: int | str, tmp_path: Path):
    path = tmp_path / "odd.gguf"
    write_gguf(path, GGMLQuantizationType.F32, general__alignment=alignment)
    with pytest.raises(ModelError, match="is truncated or damaged"):
        read_gguf(path)


def test_arrays_nested_without_end_are_damage(tmp_path: Path):
    path = tmp_path / "nested.gguf"
    counts = (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    nested = ((9).to_bytes(4, "little") + (1).to_bytes(8, "little")) * 100_000
    path.write_bytes(b"GGUF" + counts + (1).to_bytes(8, "little") + b"k" + (9).to_bytes(4, "little") + nested)
    with pytest.raises(ModelError, match="is truncated or damaged"):
        read_gguf(path)


def test_another_version_or_byte_order_is_named(whole_file: bytes, tmp_path: Path):
    path = tmp_path / "old.gguf"
    path.write_bytes(whole_file[:4] + (1).to_bytes(4, "little") + whole_file[8:])
    with pytest.raises(ModelError, match="version 2 or 3 in little-endian order is required, got 1"):
        read_gguf(path)


def test_a_damaged_count_does_not_go_on_past_the_end(tmp_path: Path):
    path = tmp_path / "endless.gguf"
    counts = (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    array_of_int32 = (9).to_bytes(4, "little") + (5).to_bytes(4, "little") + (1 << 60).to_bytes(8, "little")
    path.write_bytes(b"GGUF" + counts + (1).to_bytes(8, "little") + b"k" + array_of_int32 + bytes(400))
    with pytest.raises(ModelError, match=r"is truncated or damaged \(the file ends at byte 449, inside data up to"):
        read_gguf(path)


def test_a_damaged_count_does_not_go_on_through_a_large_file(
    whole_file: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "small.gguf"
    path.write_bytes(whole_file)
    monkeypatch.setattr(gguf_reader, "_MAX_READS", 1000)
    with pytest.raises(ModelError, match=r"is truncated or damaged \(its header holds more than 1000 values"):
        read_gguf(path)


@pytest.mark.parametrize("place", ["dimension", "offset"])
def test_sizes_that_overflow_are_damage(place: str, whole_file: bytes, tmp_path: Path):
    path, data = tmp_path / "vast.gguf", bytearray(whole_file)
    sizes = whole_file.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 4
    start = sizes if place == "dimension" else sizes + 20
    data[start : start + 8] = b"\xff" * 8
    path.write_bytes(data)
    with pytest.raises(ModelError, match="is truncated or damaged"):
        read_gguf(path)


def test_an_unknown_tensor_type_is_damage(whole_file: bytes, tmp_path: Path):
    path, data = tmp_path / "odd.gguf", bytearray(whole_file)
    data[whole_file.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight") + 20] = 200
    path.write_bytes(data)
    with pytest.raises(
        ModelError, match=r"odd\.gguf is truncated or damaged \(200 is not a valid GGMLQuantizationType"
    ):
        read_gguf(path)


def test_nothing_stays_mapped_after_reading(whole_file: bytes, tmp_path: Path, mappings: list[weakref.ref]):
    path = tmp_path / "small.gguf"
    path.write_bytes(whole_file)
    result = read_gguf(path)
    assert result
    assert [mapping() for mapping in mappings] == [None]


def test_nothing_stays_mapped_while_an_error_is_held(whole_file: bytes, tmp_path: Path, mappings: list[weakref.ref]):
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole_file[:20000])
    with pytest.raises(ModelError) as held:
        read_gguf(path)
    assert held.value.__cause__ is not None
    assert [mapping() for mapping in mappings] == [None]
