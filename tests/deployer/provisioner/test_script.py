"""Machines that a script of the user's own makes: none is left, whatever the script does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployer.helpers import example_script

from tradewind import plugins
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.script import ScriptProvisioner
from tradewind.errors import CapacityError, CredentialsError, DeployError, PrerequisiteError, TeardownError
from tradewind.problem import Offer
from tradewind.testing.provisioners import Bench, ProvisionerConformance

OFFER = Offer("lab", "big", 4, 8, 0.5, nodes=2)
LATER = 4e9


class TestScriptProvisioner(ProvisionerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
        script, there = example_script(tmp_path), tmp_path / "machines"
        monkeypatch.setenv("MACHINES", str(there))
        yield lambda: provisioner(tmp_path, script)
        assert not list(there.glob("*")), "the suite has given all back"


def provisioner(folder: Path, script: Path, **given: object) -> ScriptProvisioner:
    made = plugins.create("provisioner", "script", {"program": script, **given}, data_folder=folder / "data")
    assert isinstance(made, ScriptProvisioner)
    return made


def scripted(folder: Path, make: str = "", destroy: str = "", **given: object) -> ScriptProvisioner:
    """A provisioner whose script writes down its calls; `make` leaves a file for each run that `destroy` removes."""
    script = folder / "deploy.sh"
    script.write_text(
        "#!/bin/sh\n"
        f"cd {folder}\n"
        'echo "$1 $TRADEWIND_RUN_ID" >> calls\n'
        "case $1 in\n"
        f"make) touch there-$TRADEWIND_RUN_ID\n{make}\n;;\n"
        f"destroy) {destroy}\nrm -f there-$TRADEWIND_RUN_ID;;\n"
        "esac\n"
    )
    script.chmod(0o755)
    return provisioner(folder, script, **given)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_the_script_is_told_in_json_and_its_machines_come_back(tmp_path: Path) -> None:
    printed = json.dumps({"machines": [{"id": "a", "address": "10.0.0.1", "user": "me"}, {"id": "b", "address": "h"}]})
    there = scripted(tmp_path, f"cp \"$2\" seen.json; echo '{printed}'")
    cluster = there.make("run-1", "me", LATER, OFFER)
    assert cluster.state is ClusterState.READY
    first, second = cluster.machines
    assert (first.id, first.address, dict(first.data)) == ("a", "10.0.0.1", {"user": "me"})
    assert (second.id, second.address) == ("b", "h")
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["run_id"], seen["owner"], seen["expires"], seen["nodes"]) == ("run-1", "me", LATER, 2)
    assert seen["offer"]["instance_type"] == "big"
    there.destroy(cluster)
    assert calls(tmp_path) == ["make run-1", "destroy run-1"]


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        ("echo no quota >&2; exit 75", CapacityError, "no quota"),
        ("echo who are you >&2; exit 77", CredentialsError, "who are you"),
        ("exit 78", PrerequisiteError, "exit code 78"),
        ("exit 3", DeployError, "exit code 3"),
        ("kill -9 $$", DeployError, "exit code -9"),
        ("echo hello", PrerequisiteError, "printed no JSON object: 'hello'"),
        ("echo '[]'", PrerequisiteError, "printed no JSON object"),
        ('echo \'{"machines": [{"id": "a"}]}\'', PrerequisiteError, "has made 1 machines, 2 were wanted"),
        ('echo \'{"machines": [{"id": "a"}, {"id": "a"}]}\'', PrerequisiteError, "2 were wanted"),
        ('echo \'{"machines": [{"name": "a"}]}\'', PrerequisiteError, "no list of objects with an id"),
    ],
)
def test_what_a_failed_make_has_left_is_destroyed(
    tmp_path: Path, make: str, kind: type[DeployError], words: str
) -> None:
    there = scripted(tmp_path, make)
    with pytest.raises(kind, match=words) as caught:
        there.make("run-1", "me", LATER, OFFER)
    assert type(caught.value) is kind
    assert calls(tmp_path) == ["make run-1", "destroy run-1"]
    assert not (tmp_path / "there-run-1").exists()
    assert there.find(None) == []


def test_a_destroy_that_fails_leaves_the_note_and_is_called_again(tmp_path: Path) -> None:
    there = scripted(tmp_path, "exit 3", "[ -e ready ] || { echo not now >&2; exit 1; }")
    with pytest.raises(DeployError, match="exit code 3"):
        there.make("run-1", "me", LATER, OFFER)
    [left] = scripted(tmp_path, "exit 3", "[ -e ready ] || { echo not now >&2; exit 1; }").find("me")
    assert (left.run_id, left.state) == ("run-1", ClusterState.BOOTING), "it may cost money"
    with pytest.raises(TeardownError, match="not now"):
        there.destroy(left)
    assert there.find("me")
    (tmp_path / "ready").touch()
    assert there.destroy(left).state is ClusterState.GONE
    assert there.find(None) == []


def test_the_note_is_there_before_the_script_is_called(tmp_path: Path) -> None:
    note = tmp_path / "data" / "script" / "run-1.run.json"
    there = scripted(tmp_path, f"cp {note} noted.json")
    there.make("run-1", "me", LATER, OFFER)
    assert json.loads((tmp_path / "noted.json").read_text())["ready"] is None


def test_after_a_kill_in_the_middle_of_make_it_is_destroyed_and_made_anew(tmp_path: Path) -> None:
    there = scripted(tmp_path)
    there.make("run-1", "me", LATER, OFFER)
    note = tmp_path / "data" / "script" / "run-1.run.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "ready": None, "machines": []}))
    assert there.poll([Cluster("run-1", ClusterState.READY)])["run-1"].state is ClusterState.BOOTING
    assert scripted(tmp_path).make("run-1", "me", LATER, OFFER).state is ClusterState.READY
    assert calls(tmp_path) == ["make run-1", "destroy run-1", "make run-1"]


def test_what_cannot_be_read_counts_as_alive_and_can_be_destroyed(tmp_path: Path) -> None:
    there = scripted(tmp_path)
    cluster = there.make("run-1", "me", LATER, OFFER)
    (tmp_path / "data" / "script" / "run-1.run.json").write_text("{")
    assert there.poll([cluster])["run-1"].state is ClusterState.UNKNOWN
    with pytest.raises(DeployError, match="cannot be read"):
        there.find("me")
    assert there.destroy(cluster).state is ClusterState.GONE
    assert not (tmp_path / "there-run-1").exists()
    assert there.find("me") == []


def test_a_make_that_is_not_wanted_any_more_ends_with_all_that_it_started(tmp_path: Path) -> None:
    there = scripted(tmp_path, "sleep 60 & sleep 60")
    failures: list[BaseException] = []

    def make() -> None:
        try:
            there.make("run-1", "me", LATER, OFFER)
        except DeployError as error:
            failures.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    while not (tmp_path / "there-run-1").exists():
        time.sleep(0.01)
    there.abandon("run-1")
    thread.join(30)
    assert not thread.is_alive()
    assert failures
    assert calls(tmp_path)[-1] == "destroy run-1"
    assert not (tmp_path / "there-run-1").exists()


def test_a_make_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    there = scripted(tmp_path, "sleep 60", make_seconds=0.05)
    with pytest.raises(DeployError, match="it took too long"):
        there.make("run-1", "me", LATER, OFFER)
    assert there.find(None) == [] and calls(tmp_path)[-1] == "destroy run-1"


@pytest.mark.parametrize(("mode", "words"), [(None, "there is no script"), (0o644, "is not executable .chmod")])
def test_a_script_that_cannot_be_called_is_one_line(tmp_path: Path, mode: int | None, words: str) -> None:
    script = tmp_path / "deploy.sh"
    if mode is not None:
        script.write_text("#!/bin/sh\n")
        script.chmod(mode)
    there = provisioner(tmp_path, script)
    with pytest.raises(PrerequisiteError, match=words):
        there.make("run-1", "me", LATER, OFFER)
    with pytest.raises(TeardownError, match=words):
        there.destroy(Cluster("run-1", ClusterState.BOOTING))
