"""``tradewind cluster start``: what it notes of itself for the service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.store.cluster import ClusterStore


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
