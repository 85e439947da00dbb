"""A zip file of results, made while it is sent."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import BinaryIO

import pytest

from tradewind.errors import NotFoundError
from tradewind.service.requests.run_archive import LEFT_OUT, archive_pieces, name_in_archive
from tradewind.service.requests.run_files import RunFileEntry, list_files, open_file


def test_an_archive_has_the_results_and_nothing_else(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "outputs" / "plan.run").mkdir(parents=True)
    (run / "outputs" / "heat.csv").write_text("1,2\n")
    (run / "outputs" / "..\\evil.txt").write_text("x")
    (run / "outputs" / "link").symlink_to("/etc/passwd")
    for name in ("secret", "results.json", "run"):
        (run / "outputs" / "plan.run" / name).write_text(name)
    (run / "handle.json").write_text("{}")
    pieces = list(archive_pieces(list_files(run), lambda path: open_file(run, path)))
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == [
            "outputs/.._evil.txt",
            "outputs/heat.csv",
            "outputs/plan.run/results.json",
        ]
        assert archive.read("outputs/heat.csv") == b"1,2\n"


def test_it_is_sent_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    with (tmp_path / "outputs" / "large").open("wb") as file:
        file.truncate(40 * 2**20)
    longest = max(map(len, archive_pieces(list_files(tmp_path), lambda path: open_file(tmp_path, path))))
    assert longest < 2**20


def test_what_went_meanwhile_is_named() -> None:
    def gone(path: str) -> BinaryIO:
        raise NotFoundError("the run has no such file")

    pieces = b"".join(archive_pieces([RunFileEntry("outputs/a", 1)], gone))
    with zipfile.ZipFile(io.BytesIO(pieces)) as archive:
        assert archive.read(LEFT_OUT) == b"outputs/a: the run has no such file\n"


@pytest.mark.parametrize(
    ("path", "name"), [("../../x", "x"), ("/etc/passwd", "etc/passwd"), ("a\\..\\b", "a_.._b"), ("..", "file")]
)
def test_names_lead_out_of_no_folder(path: str, name: str) -> None:
    assert name_in_archive(path) == name
