"""``tradewind cluster start``: what it notes of itself for the service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.store.clusters.cluster_store import ClusterStore


@pytest.mark.parametrize(("words", "own_code"), [([], False), (["--own-code"], True)])
def test_whether_it_runs_programs_of_ordinary_users_stands_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], own_code: bool
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    monkeypatch.setenv("TRADEWIND_STORE", url)
    assert run(["cluster", "start", "--until-empty", *words]) == 0
    with closing(ClusterStore(url)) as store:
        (found,) = store.clusters()
    assert (found.settings["engine"], found.settings["own_code"]) == ("process", own_code)


def test_containers_without_an_engine_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    monkeypatch.setenv("TRADEWIND_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    assert run(["cluster", "start", "--docker", "--until-empty"]) != 0
    said = capsys.readouterr()
    assert "nobody.sock" in said.err
    assert "Ctrl-C ends it" not in said.out


def test_containers_of_another_machine_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    assert run(["cluster", "start", "--docker", "--set", "host=ssh://me@lab.example"]) == 3
    assert "shares this machine, and the container engine is at ssh://me@lab.example" in capsys.readouterr().err
    monkeypatch.setenv("DOCKER_HOST", "tcp://lab.example:2376")
    assert run(["cluster", "start", "--docker", "--until-empty"]) == 3
    assert "unset DOCKER_HOST" in capsys.readouterr().err
    assert run(["cluster", "start", "--docker", "--ray"]) == 3
    assert "--docker, --ray, --slurm and --kubernetes exclude each other" in capsys.readouterr().err
