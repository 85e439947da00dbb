"""What users read of a run's folder: never anything else, whatever the job has put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import NotFoundError
from tradewind.service.requests.run_files import (
    RunFileEntry,
    RunLogPart,
    is_declared,
    list_files,
    log_part,
    open_file,
    read_log,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "tw-1" / "tw-1-00000-1"
    (run / "outputs" / "deep").mkdir(parents=True)
    (run / "stdout").write_text("hello\n")
    (run / "outputs" / "deep" / "a.dat").write_bytes(b"12345")
    (run / "result.json").write_text("{}")
    (run / "inputs").mkdir()
    (run / "inputs" / "secret").write_text("secret")
    (tmp_path / "outside").write_text("secret")
    return run


def test_the_logs_and_kept_files_are_listed(folder: Path) -> None:
    assert list_files(folder) == [RunFileEntry("outputs/deep/a.dat", 5), RunFileEntry("stdout", 6)]
    assert list_files(folder / "nowhere") == []


def test_a_file_is_read(folder: Path) -> None:
    with open_file(folder, "outputs/deep/a.dat") as file:
        assert file.read() == b"12345"


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "/etc/passwd", "outputs", "outputs/deep", "outputs/missing", "result.json", "inputs/secret"),
        *("../../../outside", "outputs/../result.json", "outputs/../../../../outside", "stdout/x", "stdout\0"),
        *("./../tw-1-00000-1/stdout", "outputs//etc/passwd", "OUTPUTS/deep/a.dat", "\ud800", "outputs/" + "x" * 300),
    ],
)
def test_nothing_else_is(folder: Path, path: str) -> None:
    with pytest.raises(NotFoundError, match="the run has no file"):
        open_file(folder, path)


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../outside", "stdout", "missing"])
def test_links_are_neither_listed_nor_followed(folder: Path, target: str) -> None:
    (folder / "stderr").symlink_to(target)
    (folder / "outputs" / "link").symlink_to(target)
    (folder / "outputs" / "folder").symlink_to("/etc")
    listed = {entry.path for entry in list_files(folder)}
    assert listed == {"outputs/deep/a.dat", "stdout"}
    for path in ("stderr", "outputs/link", "outputs/folder/passwd"):
        with pytest.raises(NotFoundError):
            open_file(folder, path)
    assert read_log(folder, "stderr", 0, 100, over=True) is None


def test_pipes_and_devices_hold_up_nobody(folder: Path) -> None:
    os.mkfifo(folder / "stderr")
    assert [entry.path for entry in list_files(folder)] == ["outputs/deep/a.dat", "stdout"]
    with pytest.raises(NotFoundError):
        open_file(folder, "stderr")


def test_a_log_is_read_in_parts(folder: Path) -> None:
    (folder / "stdout").write_bytes("aé€\U0001f600z".encode())  # characters of 1 to 4 bytes
    whole, offset = "", 0
    for _ in range(20):
        part = read_log(folder, "stdout", offset, 4, over=True)
        assert part is not None
        whole, offset = whole + part.text, part.next
        if part.ended:
            break
    assert whole == "aé€\U0001f600z"
    assert offset == 11
    assert read_log(folder, "stdout", 999, 4, over=True) == RunLogPart("", 11, True)
    assert read_log(folder, "stdout", -5, 4, over=False) == RunLogPart("aé", 3, False)


def test_a_running_log_has_not_ended_and_keeps_half_a_character(folder: Path) -> None:
    (folder / "stdout").write_bytes(b"ab\xe2\x82")
    assert read_log(folder, "stdout", 0, 100, over=False) == RunLogPart("ab", 2, False)
    assert read_log(folder, "stdout", 0, 100, over=True) == RunLogPart("ab\ufffd", 4, True)
    assert read_log(folder, "stderr", 0, 100, over=True) is None


@pytest.mark.slow
@given(st.binary(max_size=60), st.integers(4, 9))
def test_any_bytes_are_read_to_their_end(data: bytes, size: int) -> None:
    offset, text = 0, ""
    for _ in range(100):
        piece = data[offset : offset + size]
        part = log_part(piece, offset, last=offset + size >= len(data))
        text, offset = text + part.text, part.next
        if part.ended:
            break
    assert offset == len(data)
    assert text == data.decode("utf-8", "replace")


def test_the_hole_of_a_log_that_grows_over_its_limit_is_passed_over(folder: Path) -> None:
    with (folder / "stdout").open("wb") as file:
        file.write(b"begin\n")
        file.seek(1 << 20)
        file.write(b"end\n")
    if (folder / "stdout").stat().st_blocks * 512 > 1 << 19:
        pytest.skip("this file system makes no holes")
    part = read_log(folder, "stdout", 300_000, 1 << 20, over=False)
    assert part == RunLogPart("end\n", (1 << 20) + 4, ended=False)


@pytest.mark.parametrize("other", ["machines", "pilots", "journal.jsonl", "store.json", "run"])
def test_what_is_private_in_the_run_of_a_workflow_is_no_result(folder: Path, other: str) -> None:
    run = folder / "outputs" / "deep" / "plan.run"
    for name in ("secret", "machines/.rows/a", "pilots/p/secret", "files/picture", "tasks/a/1/stdout", "results.json"):
        if name.partition("/")[0] in ("secret", "files", "tasks", "results.json", other):
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text("x")
    if other not in ("machines", "pilots"):
        (run / other).write_text("x")
    shown = {entry.path.partition("plan.run/")[2] for entry in list_files(folder) if "plan.run" in entry.path}
    journal = {"journal.jsonl"} & {other}
    assert shown == {"files/picture", "tasks/a/1/stdout", "results.json"} | journal
    for name in ("secret", "machines/.rows/a", "pilots/p/secret", "store.json", "run"):
        with pytest.raises(NotFoundError):
            open_file(folder, f"outputs/deep/plan.run/{name}")
    for name in shown:
        open_file(folder, f"outputs/deep/plan.run/{name}").close()


def test_a_file_that_happens_to_be_called_so_is_a_result(folder: Path) -> None:
    (folder / "outputs" / "secret").write_text("x")
    assert "outputs/secret" in {entry.path for entry in list_files(folder)}
    open_file(folder, "outputs/secret").close()


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("stdout", True),
        ("outputs/report.txt", True),
        ("outputs/pictures/a.png", True),
        ("outputs/pictures/a.svg", False),
        ("outputs/pictures/deep/a.png", False),
        ("outputs/table/deep/a.csv", True),
        ("outputs/tables", False),
        ("outputs/secret", False),
        ("outputs", False),
    ],
)
def test_an_application_lists_its_results(path: str, declared: bool) -> None:
    assert is_declared(path, ["report.txt", "pictures/*.png", "table"]) == declared
    assert is_declared(path, [])
