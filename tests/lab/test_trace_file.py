import dataclasses
import errno
import gzip
import json
import os
from collections.abc import Mapping
from typing import Any
from unittest.mock import Mock

import pytest

from engine.errors import TraceError
from lab.trace_file import read_content, require_types, trace_source


def test_the_content_of_a_file_comes_back(tmp_path):
    path = tmp_path / "ünï😀.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"a": "😀"}).encode()))
    assert read_content(trace_source(path)) == {"a": "😀"}


@pytest.mark.parametrize("name", [None, 5, b"bytes", "x" * 5000])
def test_what_names_no_file_is_refused(name):
    with pytest.raises(TraceError, match=r"a trace is read from a file, and .* cannot name one: ") as refused:
        trace_source(name)
    assert len(str(refused.value)) < 400


def test_a_folder_is_told_from_a_file_and_what_it_holds_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"is a folder, a trace is a file; record one with `stepscope trace record"):
        trace_source(tmp_path)
    (tmp_path / "run.trace.json.gz").write_bytes(b"")
    with pytest.raises(TraceError, match=r"is a folder, a trace is a file; it holds 'run\.trace\.json\.gz'"):
        trace_source(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"format": 1}', r"it is not gzip-compressed \(Not a gzipped file .*\); record one with"),
        (gzip.compress(b'{"a": 1}')[:15], r"it is cut off or damaged \(.*\); record it again"),
        (gzip.compress(b"{nothing"), r"it holds no such JSON \(Expecting property name"),
        (gzip.compress(b"\xff\xfe\xfd"), r"it holds no such JSON \("),
        (gzip.compress(b"[" * 200_000), r"it holds no such JSON \(maximum recursion"),
    ],
)
def test_each_kind_of_damage_has_its_words(data, message, tmp_path):
    path = tmp_path / "t.gz"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=rf"t\.gz cannot be read as a trace: {message}"):
        read_content(path)


def test_a_small_file_that_unfolds_into_a_huge_one_is_left_alone(tmp_path):
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(b"0" * 5001))
    with pytest.raises(TraceError, match=r"t\.gz cannot be read as a trace: it holds more than 5000 bytes of JSON"):
        read_content(path, most_bytes=5000)


def test_a_file_without_permission_says_so(monkeypatch, tmp_path):
    path = tmp_path / "t.gz"
    path.touch(mode=0)
    if os.geteuid() == 0:  # who may read everything
        opens = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied", str(path)))
        monkeypatch.setattr(gzip, "open", opens)
    with pytest.raises(TraceError, match=r"t\.gz cannot be read: Permission denied"):
        read_content(path)


@dataclasses.dataclass(frozen=True)
class Inner:
    name: str


@dataclasses.dataclass(frozen=True)
class Outer:
    count: int = 1
    share: float = 0.5
    inner: Inner = Inner("a")
    items: tuple[Inner, ...] = ()
    names: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    maybe: tuple[int, ...] | None = None


@pytest.mark.parametrize(
    "values", [{}, {"share": 1}, {"items": (Inner("b"),)}, {"names": {"a": object()}}, {"maybe": (1, 2)}]
)
def test_values_that_keep_to_their_hints_pass(values):
    require_types(Outer(**values), "header")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "1"}, r"header\.count is '1'"),
        ({"count": True}, r"header\.count is True"),
        ({"share": "x"}, r"header\.share is 'x'"),
        ({"inner": {"name": "a"}}, r"header\.inner is {'name': 'a'}"),
        ({"inner": Inner(5)}, r"header\.inner is Inner\(name=5\)"),
        ({"items": (Inner([]),)}, r"header\.items is \(Inner\(name=\[\]\),\)"),
        ({"names": {1: 2}}, r"header\.names is {1: 2}"),
        ({"maybe": ("a",)}, r"header\.maybe is \('a',\)"),
    ],
)
def test_a_value_of_another_type_is_named(values, message):
    with pytest.raises(TypeError, match=message):
        require_types(Outer(**values), "header")
