from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.study.orphaned_runs import OFFER, World, world
from tests.engine.test_crash_recovery import alive_with
from tests.waiting import eventually

from tradewind import plugins
from tradewind.cli.app import run
from tradewind.engine.cleanup import study_teardown
from tradewind.engine.search_builder import new_study
from tradewind.errors import CredentialsError, StudyBusyError, TeardownError
from tradewind.problem import Configuration, Proposal, Run, RunState, Trial, TrialState
from tradewind.store.base import Change, Store, StudyRow
from tradewind.utils.paths import data_folder

ELSEWHERE = "another-host.example:17:1.00"


@pytest.fixture
def left(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_runs_end_machines_go_and_the_bill_is_right(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = left.leave(0), left.leave(1)
    time.sleep(0.3)
    assert run(["down", "sort", "--yes"]) == 0
    assert "2 runs ended" in capsys.readouterr().out
    assert left.found() == set()
    for launched in (first, second):
        ended = left.run(launched.run_id)
        assert (ended.state, ended.machines) == (RunState.CANCELLED, ())
        assert "down" in ended.reason
        # A dollar a second, booting included.
        assert 0.3 < ended.runtime < 60
        assert ended.runtime <= ended.cost <= ended.runtime + 30
        assert ended.ended is not None
    trials = left.store.trials(left.study.id)
    assert [trial.state for trial in trials] == [TrialState.PENDING] * 2
    assert sum(trial.spent for trial in trials) == pytest.approx(left.store.summaries()[0].spent)
    summary = left.store.summaries()[0]
    assert (summary.reserved, summary.holder, summary.study.state) == (0.0, "", "interrupted")
    assert run(["down", "sort", "--yes"]) == 0
    assert "nothing runs" in capsys.readouterr().out


def test_checkpoints_go_where_the_user_says_so(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data_folder() / "checkpoints" / left.study.owner
    for number in ("00000", "00003"):
        (folder / number / "copy").mkdir(parents=True)
        (folder / number / "copy" / "state").write_bytes(b"x" * 2048)
    assert run(["down", "sort", "--yes"]) == 0
    assert "checkpoints" not in capsys.readouterr().out
    assert run(["down", "sort", "--yes", "--checkpoints"]) == 0
    assert "its checkpoints are removed, of 2 trials, 4 KiB" in capsys.readouterr().out
    assert not folder.exists()
    assert run(["down", "sort", "--yes", "--checkpoints"]) == 0
    assert "nothing runs" in capsys.readouterr().out


def test_checkpoints_that_cannot_be_removed_are_a_problem(
    left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder() / "checkpoints" / left.study.owner / "00000").mkdir(parents=True)

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    assert run(["down", "sort", "--yes", "--checkpoints"]) == TeardownError.exit_code
    assert "its checkpoints cannot be removed: permission denied: " in capsys.readouterr().err


@pytest.mark.parametrize("force", [False, True])
def test_checkpoints_of_a_study_that_somebody_goes_on_with_stay(
    left: World, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    folder = data_folder() / "checkpoints" / left.study.owner
    (folder / "00000").mkdir(parents=True)
    tear_down = study_teardown.tear_down_study

    def resumed_at_once(store: Store, study: StudyRow, *given: Any, **more: Any) -> Any:
        done = tear_down(store, study, *given, **more)
        store.hold(study.id, ELSEWHERE, 60)
        return done

    monkeypatch.setattr(study_teardown, "tear_down_study", resumed_at_once)
    code = run(["down", "sort", "--yes", "--checkpoints", *(["--force"] if force else [])])
    assert (code, folder.exists()) == ((0, False) if force else (StudyBusyError.exit_code, True))


@pytest.mark.slow
def test_what_ended_by_itself_keeps_its_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with world(tmp_path, "sleep 0.2") as left:
        left.leave()
        eventually(lambda: any(b'"state"' in found.read_bytes() for found in left.folder.rglob("result.json")))
        assert run(["down", "sort", "--yes", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [each["state"] for each in document[0]["runs"]] == ["done"]
        assert left.store.trials(left.study.id)[0].state is TrialState.SUCCEEDED
        assert left.found() == set()


@pytest.mark.slow
def test_machines_go_although_what_was_to_read_the_outputs_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package of an interpreter may have been removed since: machines that cost money must not wait for it."""
    create = plugins.create

    def without(kind: str, name: str, *given: Any, **more: Any) -> Any:
        return create(kind, "removed" if kind == "interpreter" else name, *given, **more)

    with world(tmp_path, "sleep 0.2") as left:
        left.leave(0)
        eventually(lambda: any(b'"state"' in found.read_bytes() for found in left.folder.rglob("result.json")))
        left.leave(1)
        monkeypatch.setattr(plugins, "create", without)
        assert run(["down", "sort", "--yes"]) == 0
        assert left.found() == set()
        ended, cut = left.store.trials(left.study.id)
        assert ended.observation is not None
        assert "there is no interpreter named 'removed'" in ended.observation.reason
        assert cut.state in (TrialState.PENDING, TrialState.FAILED)  # it may have ended by itself, too


def test_a_row_for_which_nothing_was_made_begins_nothing(left: World) -> None:
    """The controller died between the row and the machines: they are not made only to be given back."""
    row = Run(f"{left.study.owner}-00000-1", 0, started=time.time(), reserved=1.0)
    trial = Trial(0, Proposal(Configuration({"level": 1})), OFFER, TrialState.RUNNING, "key", attempts=1)
    left.store.write(left.study.id, Change([trial], [row]))
    assert run(["down", "sort", "--yes"]) == 0
    ended = left.run(row.run_id)
    assert (ended.state, ended.cost) == (RunState.CANCELLED, 0.0)
    assert not list(left.folder.rglob("started.json"))
    assert not (left.folder / "home" / "simulated-fleet.json").exists() or left.found() == set()


def test_machines_without_a_row_go_too(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    with left.deployer() as deployer:
        deployer.provisioner.make("orphan", left.study.owner, time.time() + 600, OFFER)
    assert run(["down", "--all", "--yes"]) == 0
    assert "back the machines of run orphan" in capsys.readouterr().out
    assert left.found() == set()


@pytest.mark.slow
def test_a_study_that_is_being_run_is_left_alone(
    left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = left.leave()
    token = left.store.hold(left.study.id, ELSEWHERE, 600)
    assert run(["down", "sort", "--yes"]) == StudyBusyError.exit_code
    err = capsys.readouterr().err
    assert "another-host.example:17" in err and "--force" in err and err.count("\n") == 1
    assert launched.run_id in left.found()
    assert run(["down", "--all", "--yes"]) == TeardownError.exit_code
    monkeypatch.setattr(study_teardown, "_OUTLAST_SECONDS", 0.1)
    assert run(["down", "sort", "--yes", "--force"]) == 0
    assert left.found() == set()
    with pytest.raises(StudyBusyError):
        left.store.renew(left.study.id, token, 60)


@pytest.mark.slow
def test_what_the_provider_refuses_ends_with_11_and_the_row_stays_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tradewind.deployer.lifecycle.deployer._PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("tradewind.deployer.provisioner.base.Provisioner.patience_seconds", 0.2)
    with world(tmp_path, refusals=0.999) as left:
        launched = left.leave()
        assert run(["down", "sort", "--yes"]) == TeardownError.exit_code
        err = capsys.readouterr().err
        assert "did not destroy" in err and err.count("\n") == 1
        assert not left.run(launched.run_id).state.ended
        assert launched.run_id in left.found()


@pytest.mark.slow
def test_after_kill_nine_nothing_is_left(left: World) -> None:
    """The controller is killed at random moments; one command gives back all that it had made."""
    chance = random.Random(4)
    for _ in range(2):
        words = [sys.executable, "-m", "tradewind", "tune", "job.yaml", "--quiet"]
        with subprocess.Popen(words, cwd=left.folder, env=dict(os.environ), stderr=subprocess.DEVNULL) as process:
            eventually(left.found)
            time.sleep(chance.uniform(0.0, 0.5))
            process.kill()
        assert run(["down", "sort", "--yes"]) == 0
        assert left.found() == set()
        assert not alive_with(left.study.owner)
        runs = left.store.runs(left.study.id)
        assert runs and all(each.state.ended for each in runs)
        spent = sum(trial.spent for trial in left.store.trials(left.study.id))
        assert left.store.summaries()[0].spent == pytest.approx(spent) == pytest.approx(sum(one.cost for one in runs))


def test_a_study_that_cannot_be_asked_is_a_problem_at_once_and_without_a_run_none(
    left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = json.loads(json.dumps(left.study.spec))
    spec["job"]["deploy"]["runner"] = {"use": "replay", "file": "gone.csv"}
    left.store.write(left.study.id, Change(study={"spec": spec}))
    assert run(["down", "sort", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["problems"] == []
    number = left.store.create_study(new_study(left.spec)).id
    for study in (left.study.id, number):
        done = Run(f"run-{study}", 0, state=RunState.DONE, started=1.0, ended=2.0)
        trial = Trial(0, Proposal(Configuration({"level": 1})), OFFER, TrialState.SUCCEEDED, "key", attempts=1)
        left.store.write(study, Change([trial], [done]))

    def refused(*_: object) -> list[str]:
        raise CredentialsError("nobody knows us")

    monkeypatch.setattr("tradewind.deployer.lifecycle.deployer.Deployer.sweep", refused)
    began = time.monotonic()
    assert run(["down", "--all", "--yes", "--json"]) == TeardownError.exit_code
    assert time.monotonic() - began < 10, "neither is tried for half a minute"
    shown = {one["id"]: one["problems"] for one in json.loads(capsys.readouterr().out)}
    assert "gone.csv" in shown[left.study.id][0]
    assert "nobody knows us" in shown[number][0]


def test_a_live_process_is_reported_in_json(left: World, capsys: pytest.CaptureFixture[str]) -> None:
    left.store.hold(left.study.id, ELSEWHERE, 600)
    assert run(["down", "--all", "--yes", "--json"]) == TeardownError.exit_code
    assert "another-host.example:17" in json.loads(capsys.readouterr().out)[0]["problems"][0]


def test_it_asks_first(left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    launched = left.leave()
    assert run(["down", "sort"]) == 3
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: "sort (1 open run)" not in question)
    assert run(["down", "sort"]) == 0
    assert launched.run_id in left.found()


@pytest.mark.parametrize("words", [["down"], ["down", "sort", "--all"], ["down", "sort", "--json"]])
def test_it_wants_to_know_what(left: World, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_of_many_studies_only_those_are_ended_that_have_something_to_be_ended(
    left: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    end_study = study_teardown.tear_down_study

    def noting(store: Store, study: StudyRow, *arguments: Any, **named: Any) -> study_teardown.StudyTeardown:
        asked.append(study.id)
        return end_study(store, study, *arguments, **named)

    monkeypatch.setattr(study_teardown, "tear_down_study", noting)
    left.leave()
    done = {"level": 1}
    idle, orphan, named, held, uploads, unknown = [left.store.create_study(new_study(left.spec)) for _ in range(6)]
    for study in (idle, orphan, named, held, uploads, unknown):
        row = Run(f"{study.owner}-00000-1", 0, state=RunState.DONE, started=1.0, ended=2.0)
        trial = Trial(0, Proposal(Configuration(done)), OFFER, TrialState.SUCCEEDED, "key", attempts=1)
        left.store.write(study.id, Change([trial], [row]))
    more = [left.store.create_study(new_study(left.spec)).id for _ in range(20)]
    with left.deployer() as deployer:
        deployer.provisioner.make("orphan", orphan.owner, time.time() + 600, OFFER)
        deployer.provisioner.make(f"{named.owner}-00007-1", "somebody", time.time() + 600, OFFER)
    left.store.hold(held.id, ELSEWHERE, 600)
    note = data_folder() / "uploads" / uploads.owner / "run.json"
    note.parent.mkdir(parents=True)
    note.write_text("{}")
    spec = json.loads(json.dumps(unknown.spec))
    spec["job"]["deploy"]["runner"] = {"use": "uninstalled"}
    left.store.write(unknown.id, Change(study={"spec": spec}))
    assert run(["down", "--all", "--yes", "--json"]) == TeardownError.exit_code
    shown = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert shown.keys() == {left.study.id, idle.id, orphan.id, named.id, held.id, uploads.id, unknown.id, *more}
    assert sorted(asked) == sorted([left.study.id, orphan.id, named.id, held.id, uploads.id, unknown.id])
    assert {one for one in shown if shown[one]["problems"]} == {held.id, unknown.id}
    assert shown[left.study.id]["runs"] and "orphan" in shown[orphan.id]["given_back"][0]
    assert left.found() == {f"{named.owner}-00007-1"}, "what has another's tag is another's"
    asked.clear()
    monkeypatch.setattr("tradewind.deployer.provisioner.simulated.SimulatedProvisioner.find", _refuse)
    assert run(["down", "--all", "--yes", "--json"]) == TeardownError.exit_code
    assert len(asked) == len(shown), "who cannot be asked for all at once is asked for each"


def _refuse(*_: object) -> list[Any]:
    raise CredentialsError("nobody knows us")
