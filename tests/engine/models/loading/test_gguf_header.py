from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter

from engine.errors import ModelError
from engine.models.loading.gguf_header import read_header
from tests.engine.models.model_files import write_gguf


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_gguf(path, GGMLQuantizationType.Q4_1)
    return path.read_bytes()


def test_values_and_tensors_equal_what_the_package_reads(whole_file: bytes, tmp_path: Path):
    path = tmp_path / "small.gguf"
    path.write_bytes(whole_file)
    header, reader = read_header(path), GGUFReader(path)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF."):
            contents = field.contents()
            assert header.values[key] == (tuple(contents) if isinstance(contents, list) else contents)
    assert list(header.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        stored = header.tensors[tensor.name]
        assert stored.type_name == tensor.tensor_type.name
        assert stored.shape == tuple(tensor.shape[::-1].tolist())
        assert stored.data.tobytes() == tensor.data.tobytes()


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
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_array("floats", [0.5, 0.25])
    writer.add_tensor("t", np.zeros(4, np.float32))
    for write in (
        writer.write_header_to_file,
        writer.write_kv_data_to_file,
        writer.write_tensors_to_file,
        writer.close,
    ):
        write()
    values = read_header(path).values
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
        "nested": ((1, 2), (3,)),
        "floats": (0.5, 0.25),
    }


@pytest.mark.parametrize("kept", [5, 12, 23, 100, 3000, 20000, -1])
def test_a_truncated_file_is_named(kept: int, whole_file: bytes, tmp_path: Path):
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole_file[:kept])
    with pytest.raises(
        ModelError, match=r"cut\.gguf is truncated or damaged \(.*the file ends at byte .*download it again"
    ):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\x03\x04 a zip archive", b"<html>not found</html>"])
def test_a_file_that_is_no_gguf_is_named(content: bytes, tmp_path: Path):
    path = tmp_path / "page.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"page\.gguf is not a GGUF file: it must begin with b'GGUF', got b'"):
        read_header(path)


def test_damage_in_the_header_is_an_error_and_no_crash(whole_file: bytes, tmp_path: Path):
    path, rng = tmp_path / "noise.gguf", np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(whole_file)
        for place in rng.integers(4, 4000, 4):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(damaged)
        try:
            read_header(path)
        except ModelError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("alignment", [0, "wide"])
def test_an_impossible_alignment_is_damage(alignment: int | str, tmp_path: Path):
    path = tmp_path / "odd.gguf"
    write_gguf(path, GGMLQuantizationType.F32, general__alignment=alignment)
    with pytest.raises(ModelError, match="is truncated or damaged"):
        read_header(path)


def test_arrays_nested_without_end_are_damage(tmp_path: Path):
    path = tmp_path / "nested.gguf"
    counts = (3).to_bytes(4, "little") + (0).to_bytes(8, "little") + (1).to_bytes(8, "little")
    nested = ((9).to_bytes(4, "little") + (1).to_bytes(8, "little")) * 100_000
    path.write_bytes(b"GGUF" + counts + (1).to_bytes(8, "little") + b"k" + (9).to_bytes(4, "little") + nested)
    with pytest.raises(ModelError, match="is truncated or damaged"):
        read_header(path)


def test_another_version_or_byte_order_is_named(whole_file: bytes, tmp_path: Path):
    path = tmp_path / "old.gguf"
    path.write_bytes(whole_file[:4] + (1).to_bytes(4, "little") + whole_file[8:])
    with pytest.raises(ModelError, match="version 2 or 3 in little-endian order is required, got 1"):
        read_header(path)
