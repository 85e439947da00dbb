from __future__ import annotations

import json
from pathlib import Path

import pytest

from tradewind.cli.app import run


@pytest.mark.slow
def test_the_schema_is_printed_or_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["$schema"].endswith("2020-12/schema")
    target = tmp_path / "a" / "schema.json"
    assert run(["schema", "--out", str(target)]) == 0
    assert json.loads(target.read_text()) == printed
    assert capsys.readouterr().out == f"wrote {target}\n"
    assert run(["schema", "--built-in", "--out", str(tmp_path)]) == 3
    assert "cannot write" in capsys.readouterr().err
