"""``tradewind submit`` says at once that there is no GPU for a search."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.gpus import have_nvidia

from tradewind.cli.app import run
from tradewind.cli.cluster.submit import _missing_gpus
from tradewind.errors import InputError
from tradewind.store.clusters.cluster_store import ClusterRow, ClusterStore

JOB = "name: j\njob: {command: [run]}\nspace: {n: [1, 2]}\n"


def row(gpus: float | None, engine: str = "process", **changes: Any) -> ClusterRow:
    nodes = {} if gpus is None else {"here": {"has": {"cpu": 2.0, "gpu": gpus}}}
    return replace(ClusterRow("default", {"engine": engine}, {"nodes": nodes}, 0.0, "host 1"), **changes)


def test_a_cluster_without_any_refuses_and_one_that_grows_waits() -> None:
    with pytest.raises(InputError, match="cluster default has no node with 2 GPUs, which each run takes"):
        _missing_gpus([row(1.0), row(8.0, name="other")], "default", 2.0)
    assert _missing_gpus([row(1.0), row(8.0, name="other")], None, 2.0) == ""
    assert _missing_gpus([row(None)], None, 2.0) == "", "it has not said yet what it has"
    assert "the search waits until there is one" in _missing_gpus([row(0.0, "slurm")], None, 1.0)
    with pytest.raises(InputError, match=r"a run cannot have 1\.5 GPUs"):
        _missing_gpus([row(8.0)], None, 1.5)


@pytest.mark.slow
def test_the_first_line_says_that_this_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    have_nvidia(monkeypatch, tmp_path, 0)
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    (tmp_path / "job.yaml").write_text(JOB)
    words = ["submit", str(tmp_path / "job.yaml"), "--live-folder", "--store", url]
    assert run([*words, "--demand", "gpu=1"]) == 0
    assert "notice: this machine has no GPU" in capsys.readouterr().err.splitlines()[0]
    assert run(words) == 0
    assert capsys.readouterr().err == ""
    with closing(ClusterStore(url)) as store:
        assert [job.options.get("demand") for job in store.jobs()] == [None, {"gpu": 1.0}]
