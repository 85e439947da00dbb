"""Copies of a run's files for records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.errors import RecordError
from tradewind.utils.log_copies import SecretMask, check_copies, copy_run_files, is_cut, write_copies

ALL = 1 << 20


def test_files_go_into_a_record_and_out_again(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "outputs/deep").mkdir(parents=True)
    files = {"stdout": b"a\r\nb", "stderr": b"", "metrics.jsonl": b'{"x": 1}', "outputs/deep/odd": b"\xff\x00"}
    for name, data in files.items():
        (one / name).write_bytes(data)
    (one / "secret.env").write_text("not a log")
    copies = json.loads(json.dumps(copy_run_files(one, None, ALL, SecretMask())))
    assert set(copies) == set(files)
    write_copies(two, check_copies(copies))
    assert {name: (two / name).read_bytes() for name in files} == files
    assert not is_cut(copies)
    assert not (two / "result.json").exists()
    assert set(copy_run_files(one, ["deep/odd", "gone"], ALL, SecretMask())) == set(files)
    assert set(copy_run_files(one, [], ALL, SecretMask())) == set(files) - {"outputs/deep/odd"}
    assert copy_run_files(tmp_path / "nowhere", None, ALL, SecretMask()) == {}


def test_of_a_long_log_whole_lines_of_both_ends_are_kept(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("".join(f"line {i}\n" for i in range(10_000)))
    copies = copy_run_files(tmp_path, [], 100, SecretMask())
    lines = copies["stdout"]["text"].splitlines()
    assert (lines[0], lines[-1]) == ("line 0", "line 9999")
    assert sum(line.startswith("[") for line in lines) == 1
    assert len(copies["stdout"]["text"]) < 200
    assert copies["stdout"]["cut"]
    write_copies(tmp_path / "there", copies)
    assert json.loads((tmp_path / "there/result.json").read_text()) == {"truncated": True}


def test_what_the_runner_has_cut_is_cut(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text("x")
    (tmp_path / "result.json").write_text('{"truncated": true}')
    assert is_cut(copy_run_files(tmp_path, [], ALL, SecretMask()))


def test_links_out_of_the_folder_are_no_files_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("private")
    folder = tmp_path / "run"
    (folder / "outputs").mkdir(parents=True)
    (folder / "stdout").symlink_to(tmp_path / "key")
    (folder / "outputs/x").symlink_to(tmp_path / "key")
    (folder / "outputs/up").symlink_to(tmp_path)
    assert copy_run_files(folder, None, ALL, SecretMask()) == {}
    assert copy_run_files(folder, ["x", "up/key"], ALL, SecretMask()) == {}


def test_secrets_are_replaced_but_not_single_letters(tmp_path: Path) -> None:
    mask = SecretMask(["pass", "password", "1"])
    (tmp_path / "stdout").write_bytes(b"password=1 pass \xff")
    (entry,) = copy_run_files(tmp_path, [], ALL, mask).values()
    assert "base64" in entry
    write_copies(tmp_path / "out", {"stdout": entry})
    assert (tmp_path / "out/stdout").read_bytes() == b"***=1 *** \xff"
    assert mask.document({"password": ["my password", 1]}) == {"password": ["my ***", 1]}


@pytest.mark.parametrize("entry", [None, {}, {"text": 1}, {"text": "\ud800"}, {"base64": "?"}])
def test_what_is_no_copy_is_refused(entry: object) -> None:
    with pytest.raises(RecordError, match=r"^logs\.stdout "):
        check_copies({"stdout": entry})
    with pytest.raises(RecordError, match="no mapping"):
        check_copies([entry])
