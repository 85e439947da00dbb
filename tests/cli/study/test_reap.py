from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.study.orphaned_runs import OFFER, World, part, world

from tradewind import plugins
from tradewind.cli.app import run
from tradewind.cli.common import open_store
from tradewind.deployer.provisioner.simulated import SimulatedProvisioner
from tradewind.deployer.provisioner.terraform import gcp as terraform_gcp
from tradewind.deployer.runner.run_files import RunNotes
from tradewind.deployer.ssh_connection import SshTarget
from tradewind.engine.search_builder import new_study
from tradewind.errors import TeardownError, UnreachableError
from tradewind.problem import RunState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.store.base import Change
from tradewind.utils.paths import data_folder


@pytest.fixture
def left(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


def orphan(world: World, run_id: str, owner: str, expires: float) -> None:
    """Machines that no row knows."""
    with world.deployer() as deployer:
        deployer.provisioner.make(run_id, owner, time.time() + expires, OFFER)


def document(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run(["reap", "--json", *words]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_nothing_is_left_over(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["reap"]) == 0
    assert capsys.readouterr().out == "Nothing is left over.\n"


@pytest.mark.slow
def test_what_goes_and_what_stays(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    watched = left.leave(0)
    orphan(left, "orphan", left.study.owner, 600)
    orphan(left, "theirs", "tw-other", 600)
    orphan(left, "theirs-past", "tw-other", -60)
    found = document(capsys, "--dry-run")
    assert {(one["what"], one["run"], one["fate"]) for one in found["left_over"]} == {
        ("machines", "orphan", "destroy"),
        ("machines", "theirs-past", "destroy"),
    }
    for one in found["left_over"]:
        assert one["price_per_hour"] == OFFER.hourly
        assert one["spent"] == pytest.approx(one["age"]), "a dollar a second"
    assert {(one["what"], one["run"]) for one in found["kept"]} == {
        ("machines", watched.run_id),
        ("job", watched.run_id),
        ("machines", "theirs"),
    }
    assert left.found() == {watched.run_id, "orphan", "theirs", "theirs-past"}, "only looked"
    assert run(["reap", "--dry-run"]) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert " ".join(lines[0].split()) == "what from run owner age expiry why price per hour so far"
    assert any("theirs-past" in line and "1m 0" in line for line in lines)
    assert run(["reap", "--yes"]) == 0
    assert left.found() == {watched.run_id, "theirs"}
    assert run(["reap", "--yes", "--foreign"]) == 0
    assert left.found() == {watched.run_id}
    assert not left.run(watched.run_id).state.ended


@pytest.mark.slow
def test_an_expired_run_ends_with_its_row_and_its_bill(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    expired, watched = left.leave(0, expires=time.time() - 5), left.leave(1)
    found = document(capsys, "--yes")
    # The engine of processes keeps no expiry: the machines have it, and their job ends with them.
    assert {(one["run"], one["fate"], one["gone"]) for one in found["left_over"]} == {(expired.run_id, "settle", True)}
    ended = left.run(expired.run_id)
    assert (ended.state, ended.reason) == (RunState.CANCELLED, "it had expired")
    assert ended.cost >= ended.runtime > 0
    assert not left.run(watched.run_id).state.ended
    assert left.found() == {watched.run_id}


@pytest.mark.slow
def test_the_job_of_an_ended_run_goes(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    launched = left.leave()
    from dataclasses import replace

    left.store.write(left.study.id, Change(runs=[replace(launched, state=RunState.PREEMPTED)]))
    [job, machines] = sorted(document(capsys, "--yes")["left_over"], key=lambda one: str(one["what"]))
    assert (job["what"], job["from"], job["why"], job["gone"]) == ("job", "process", "its run has ended", True)
    assert (machines["what"], machines["price_per_hour"]) == ("machines", 3600.0)
    assert left.found() == set()
    assert document(capsys, "--yes")["left_over"] == [], "the engine has forgotten it, too"


def test_a_study_that_is_being_run_is_never_touched(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    launched = left.leave(0, expires=time.time() - 5)
    orphan(left, "orphan", left.study.owner, -600)
    left.store.hold(left.study.id, "another-host.example:17:1.00", 600)
    assert document(capsys, "--yes", "--foreign")["left_over"] == []
    assert left.found() == {launched.run_id, "orphan"}


def test_a_study_that_is_taken_meanwhile_is_not_touched(
    left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    orphan(left, "orphan", left.study.owner, 600)
    from tradewind.cli.study import reap

    def take(number: int) -> bool:
        left.store.hold(left.study.id, "another-host.example:17:1.00", 600)
        return True

    monkeypatch.setattr(reap, "_agreed", take)
    assert run(["reap"]) == 0
    assert "kept: machines of run orphan" in capsys.readouterr().out
    assert left.found() == {"orphan"}


@pytest.mark.slow
def test_what_cannot_be_given_back_does_not_keep_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(tmp_path) as left:
        for name in ("a", "b", "c"):
            orphan(left, name, left.study.owner, 600)
        plain = SimulatedProvisioner.destroy

        def refuse(self: SimulatedProvisioner, cluster: Any) -> Any:
            if cluster.run_id == "b":
                raise TeardownError("the provider says no")
            if cluster.run_id == "a":
                raise ZeroDivisionError("a bug")
            return plain(self, cluster)

        monkeypatch.setattr(SimulatedProvisioner, "destroy", refuse)
        assert run(["reap", "--yes"]) == TeardownError.exit_code
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1 and "(and 1 more)" in captured.err
        assert "gone: machines of run c" in captured.out
        assert "STILL THERE: machines of run b (simulated): the provider says no" in captured.out
        assert left.found() == {"a", "b"}


def test_a_provider_that_cannot_be_asked(
    left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: SimulatedProvisioner, owner: str | None) -> Any:
        raise UnreachableError("the cloud does not answer")

    monkeypatch.setattr(SimulatedProvisioner, "find", unreachable)
    assert "simulated could not be asked" in document(capsys, "--dry-run", code=11)["problems"][0]


def test_parts_that_no_study_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_store().close()
    cloud = part("provisioner", "simulated")
    cloud.make("run-1", "tw-other", time.time() - 60, OFFER)
    assert document(capsys, "--dry-run")["left_over"] == []
    [one] = document(capsys, "--provisioner", "simulated", "--runner", "process", "--yes")["left_over"]
    assert (one["run"], one["gone"]) == ("run-1", True)
    assert cloud.find(None) == []
    assert run(["reap", "--provisioner", "nobody"]) == 13


_AT_GOOGLE = """
name: lost
job: {command: [sh, -c, exit]}
space: {level: 1..9}
objective: {minimise: cost}
budget: {trials: 3}
deploy:
  provisioner: {use: terraform, providers: [gcp], variables: {project: mine}, caller_cidr: 127.0.0.1/32}
"""


def test_parts_with_the_settings_of_a_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the store is lost, no study says at which provider they are."""
    open_store().close()
    labels = {"tradewind-run": "run-1", "tradewind-owner": "tw-other", "tradewind-expires": "1000000000"}
    machine = {"name": "m", "zone": "projects/mine/zones/europe-west1-b", "labels": labels}
    asked = []

    def ask(_provider: str, program: str, *words: str, **_: Any) -> Any:
        asked.append(words[-2:])
        return [machine] if "instances" in words else []

    monkeypatch.setattr(terraform_gcp, "ask", ask)
    job = tmp_path / "job.yaml"
    job.write_text(_AT_GOOGLE)
    assert document(capsys, "--dry-run")["left_over"] == []
    [one] = document(capsys, "--dry-run", "--like", str(job), "--like", str(job))["left_over"]
    assert (one["run"], one["from"], one["fate"]) == ("run-1", "terraform", "destroy")
    assert set(asked) == {("--project", "mine")}
    assert len(asked) == 3, "machines, disks and rules, once"
    job.write_text(_AT_GOOGLE.replace("[gcp]", "[gpc]"))
    assert run(["reap", "--dry-run", "--like", str(job)]) == 3
    assert "job.yaml:8: deploy.provisioner.providers.0: 'gpc'" in capsys.readouterr().err


def test_a_part_that_is_not_installed_any_more_is_a_note(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    spec = json.loads(json.dumps(left.study.spec))
    spec["job"]["deploy"]["runner"] = {"use": "gone"}
    left.store.write(left.study.id, Change(study={"spec": spec}))
    found = document(capsys, "--dry-run")
    assert (len(found["notes"]), found["problems"]) == (1, [])


def test_older_than(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    orphan(left, "new", left.study.owner, 600)
    orphan(left, "old", left.study.owner, -7200)
    assert [one["run"] for one in document(capsys, "--dry-run", "--older-than", "1h")["left_over"]] == ["old"]


def test_it_asks_first(left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    orphan(left, "orphan", left.study.owner, 600)
    assert run(["reap"]) == 3
    assert "--dry-run" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: False)
    assert run(["reap"]) == 0
    assert left.found() == {"orphan"}
    assert run(["reap", "--json"]) == 3


def test_simulated_studies_are_not_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "replay" in plugins.names("runner")
    with world(tmp_path) as left:
        spec = json.loads(json.dumps(left.study.spec))
        spec["job"]["deploy"]["runner"] = {"use": "replay", "file": "nowhere.csv"}
        left.store.write(left.study.id, Change(study={"spec": spec}))
        orphan(left, "orphan", left.study.owner, 600)
        assert document(capsys, "--dry-run") == {"left_over": [], "kept": [], "problems": [], "notes": []}


def test_the_job_of_machines_that_are_gone_is_forgotten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for what ran on machines that their provisioner does not have any more."""
    (tmp_path / "main.tf").write_text("")
    made = f"{{use: terraform, module: {tmp_path}, providers: [], sweep: false, region: here}}"
    deploy = f"{{runner: ssh, provisioner: {made}}}"
    text = f"name: far\njob: {{command: [run]}}\nspace: {{x: 1..3}}\ndeploy: {deploy}\n"
    with closing(open_store()) as store:
        owner = store.create_study(new_study(parse_spec(text, base=tmp_path))).owner
    place = SshTarget(host="127.0.0.1", port=9).to_json()
    data = {"expires": time.time() + 9e5, "name": "r", "machines": [place], "load": False, "program": "run"}
    notes = RunNotes(data_folder() / "ssh" / "runs")
    for whose, run_id in ((owner, f"{owner}-00000-1"), ("tw-other", "theirs")):
        notes.write(whose, run_id, {**data, "owner": whose})
    began = time.monotonic()
    found = document(capsys, "--yes")
    [one] = found["left_over"]
    assert (one["what"], one["alive"], one["fate"], one["gone"]) == ("job", False, "forget", True)
    assert [each["run"] for each in found["kept"]] == ["theirs"]
    assert time.monotonic() - began < 25
    assert not list(notes.all(owner))


def test_what_stays_is_counted_in_good_english(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    for number, words in ((1, "1 more is there and stays"), (2, "2 more are there and stay")):
        orphan(left, f"theirs-{number}", "tw-somebody", 600)
        assert run(["reap", "--dry-run"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"{words}: --json --dry-run says why."
