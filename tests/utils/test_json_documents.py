"""Files of JSON documents, whole and damaged."""

from __future__ import annotations

import gzip
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tradewind.errors import RecordError
from tradewind.utils import json_documents
from tradewind.utils.json_documents import read_json_documents


def test_documents_as_lines_and_as_an_array(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_text('{"a": 1}\n\n{"a": 2}\n')
    assert list(read_json_documents(path)) == [(1, {"a": 1}), (3, {"a": 2})]
    path.write_text(' \n[{"a": 1}, {"a": 2}]')
    assert [content for _, content in read_json_documents(path)] == [{"a": 1}, {"a": 2}]
    path.write_text('\ufeff[\n{"a": 1},\n{"a": 2}\n]\n')
    assert [content for _, content in read_json_documents(path)] == [{"a": 1}, {"a": 2}]


def test_what_gzip_has_packed_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "records"
    packed = gzip.compress(b'{"a": 1}\n{"a": 2}\n')
    path.write_bytes(packed)
    assert [line for line, _ in read_json_documents(path)] == [1, 2]
    path.write_bytes(packed[:-12])
    with pytest.raises(RecordError, match="gzip has packed is damaged"):
        list(read_json_documents(path))


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_text, '{"a": 1}\n{"a": 2}\n')
        assert len(list(read_json_documents(pipe))) == 2
        written.result(10)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1}\n{"a": \n', "records:2: it is not JSON"),
        (b'{"a": 1}\n7\n', "records:2: is no record: a JSON object is wanted"),
        (b'[{"a": 1},\n{"a" 2}]', "records:2: it is not JSON"),
        (b'\n\n[{"a": 1},\n{"a" 2}]', "records:4: it is not JSON"),
        (b'[{"a": 1}, 7]', "entry 2 is no record: a JSON object is wanted"),
        (b'{"a": "\xff"}\n', "it is not UTF-8"),
        (b"PAR1\x15\x04\x15\xfe", "it is not UTF-8"),
        (b"number,state\n0,succeeded\n", "records:1: it is not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "records:1: it is no record: Exceeds the limit"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "records:1: it is no record: its JSON has too many levels"),
        (b"", "records: there is nothing in it"),
        (b"\n \n", "records: there is nothing in it"),
        (b"[]", "records: there is no record in it"),
    ],
)
def test_what_is_wrong_is_placed(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "records"
    path.write_bytes(content)
    with pytest.raises(RecordError) as caught:
        list(read_json_documents(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_documents, "LONGEST", 1000)
    path = tmp_path / "records"
    path.write_text(json.dumps({"a": 1}) + "\n" + json.dumps({"a": "x" * 1000}) + "\n")
    with pytest.raises(RecordError, match=r"records:2: a line is longer than 1000 B: it is no record"):
        list(read_json_documents(path))
    path.write_text("[" + ",\n".join(['{"a": 1}'] * 200) + "]")
    with pytest.raises(RecordError, match="an array of more than 1000 B"):
        list(read_json_documents(path))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        list(read_json_documents(tmp_path))
