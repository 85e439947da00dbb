"""``tradewind cluster start``: what it notes of itself for the service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tradewind.cli.app import run
from tradewind.store.base import this_process
from tradewind.store.clusters.cluster_store import ClusterStore, JobRow


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


def test_people_get_their_shares_over_time_unless_another_rule_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    monkeypatch.setenv("TRADEWIND_STORE", url)
    assert run(["cluster", "start", "--until-empty", "--share", "half_life=3600"]) == 0
    assert "(fair_share, gain)" in capsys.readouterr().out
    assert run(["cluster", "start", "--until-empty", "--fairness", "drf", "--share", "half_life=3600"]) != 0
    assert "half_life" in capsys.readouterr().err


def test_queue_says_when_the_next_run_of_a_tenant_starts_at_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    monkeypatch.setenv("TRADEWIND_STORE", url)
    with closing(ClusterStore(url)) as store:
        store.submit(JobRow(0, "physics", "train", {}))
        token = store.hold("default", this_process(), 60.0, {})
        tenants = {"physics": {"within": 90.0}, "biology": {"within": None}}
        store.renew("default", token, 60.0, {"tenants": tenants})
        assert run(["queue"]) == 0
        found = capsys.readouterr().out
        assert "The next run of physics starts within 1m 30s at the latest." in found
        assert "biology" not in found
        assert run(["queue", "--tenant", "biology"]) == 0
        assert "physics" not in capsys.readouterr().out


FAILS = """
name: fails
job: {command: [sh, -c, "echo no such file >&2; exit 3"]}
space: {x: 1..9}
objective: {minimise: runtime}
searcher: random
budget: {trials: 2}
"""


@pytest.mark.slow
def test_searches_end_as_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path))
    monkeypatch.setenv("TRADEWIND_STORE", f"sqlite:///{tmp_path}/store.db")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fails.yaml").write_text(FAILS)
    (tmp_path / "large.yaml").write_text(FAILS.replace("fails", "large").replace("exit 3", "exit 0"))
    (tmp_path / "aims.yaml").write_text(FAILS + "stop: {target: .nan}\n")
    (tmp_path / "prog.py").write_text("print(1)\n")
    for words, said in (
        (["fails.yaml", "--target", "nan"], "--target nan: that is no result"),
        (["aims.yaml"], "aims.yaml:8: stop: target: value: Input should be a finite number"),
        (["prog.py"], "for a program, tradewind init writes a job.yaml; prog.py goes into its command"),
    ):
        assert run(["submit", *words]) == 3
        assert said in capsys.readouterr().err
    assert run(["submit", "fails.yaml"]) == 0
    assert run(["submit", "large.yaml", "--demand", "cpu=5000"]) == 0
    assert run(["queue"]) == 0
    assert "The cluster does not run: tradewind cluster start goes on with what is left." in capsys.readouterr().out
    assert run(["cluster", "start", "--until-empty"]) == 7
    all_failed = "all of 2 trials failed: the program exited with code 3"
    assert "2 searches failed: search " in capsys.readouterr().err
    assert run(["queue", "--all"]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert f"  1: {all_failed}" in " ".join(out.splitlines())
    assert "no node that is large enough" in " ".join(out.split())
    assert "does not run" not in out
    with closing(ClusterStore(f"sqlite:///{tmp_path}/store.db")) as store:
        assert [row.state for row in store.jobs(open_only=False)] == ["failed", "failed"]
        assert store.durations(store.job(1)) == [], "it is no example of how long such searches take"
