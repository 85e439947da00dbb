"""Which provisioners and runners go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.deployer.compatibility import (
    compatibility_matrix,
    incompatibility,
    is_simulated,
    offer_incompatibility,
)
from tradewind.deployer.provisioner.base import MakesMachines, Provisioner, ReachableBySsh, RunsDocker, TagsMachines
from tradewind.deployer.runner.base import HasOwnMachines, NeedsImages, Runner, Simulates, ThisMachine, UsesMachines
from tradewind.problem import Offer


class Hosts(Provisioner):
    name = "hosts"


class Pretended(Provisioner, MakesMachines, TagsMachines):
    name = "pretended"


class Cloud(Provisioner, MakesMachines, TagsMachines, ReachableBySsh):
    name = "cloud"


class DockerCloud(Cloud, RunsDocker):
    name = "docker_cloud"


class Here(Runner, ThisMachine):
    name = "here"


class Recorded(Runner, Simulates):
    name = "recorded"


class Cluster(Runner, HasOwnMachines):
    name = "cluster"


class Login(Runner, UsesMachines):
    name = "login"


class Containers(Runner, UsesMachines, NeedsImages):
    name = "containers"


class Plain(Runner):
    name = "plain"


PROVISIONERS: dict[str, type[Provisioner]] = {each.name: each for each in (Hosts, Pretended, Cloud, DockerCloud)}
RUNNERS: dict[str, type[Runner]] = {each.name: each for each in (Here, Recorded, Cluster, Login, Containers, Plain)}

EXPECTED = {
    "here": ("", "", "on this machine only", "on this machine only"),
    "recorded": ("", "", "nothing for real", "nothing for real"),
    "cluster": ("", "own machines", "own machines", "own machines"),
    "login": ("", "not real", "", ""),
    "containers": ("", "not real", "no container engine", ""),
    "plain": ("", "not real", "on this machine only", "on this machine only"),
}


@pytest.mark.parametrize("runner", RUNNERS)
def test_why_not(runner: str) -> None:
    for provisioner, words in zip(PROVISIONERS, EXPECTED[runner], strict=True):
        why = incompatibility(PROVISIONERS[provisioner], RUNNERS[runner])
        assert bool(why) == bool(words), f"{runner} on {provisioner}: {why}"
        assert words in why


def test_the_matrix_has_all_pairs() -> None:
    found = compatibility_matrix(PROVISIONERS, RUNNERS)
    assert list(found) == list(RUNNERS)
    assert all(list(row) == list(PROVISIONERS) for row in found.values())
    assert {(r, p) for r, row in found.items() for p, why in row.items() if not why} == {
        (runner, provisioner)
        for runner, row in EXPECTED.items()
        for provisioner, words in zip(PROVISIONERS, row, strict=True)
        if not words
    }


def test_each_installed_part_goes_with_something() -> None:
    """A part that says the wrong things of itself could never be used."""
    provisioners = {
        name: part for name, part in plugins.load_all("provisioner").items() if issubclass(part, Provisioner)
    }
    runners = {name: part for name, part in plugins.load_all("runner").items() if issubclass(part, Runner)}
    found = compatibility_matrix(provisioners, runners)
    assert [runner for runner, row in found.items() if all(row.values())] == []
    assert [made for made in provisioners if all(row[made] for row in found.values())] == []
    assert not found["process"]["none"] and not found["process"]["simulated"]


def _made(kind: str, use: str, folder: Path, **settings: Any) -> Any:
    return plugins.create(kind, use, settings, data_folder=folder)


_LOCAL, _THREE, _CLOUD = (
    Offer("local", "a", 1, 1, 0.1),
    Offer("lab", "b", 1, 1, 0.1, nodes=3),
    Offer("aws", "c", 1, 1, 1),
)
_HOSTS = {"hosts": ["a", "b", "c"]}
_OPENNEBULA = {"template": "node"}

SETTINGS: list[tuple[str, dict[str, Any], str, dict[str, Any], Offer, str]] = [
    ("none", {}, "process", {}, _LOCAL, ""),
    ("none", _HOSTS, "process", {}, _LOCAL, "process runs on this machine only"),
    ("none", _HOSTS, "slurm", {}, _THREE, "the engine of slurm has its own machines"),
    ("none", {}, "slurm", {"host": "login"}, _THREE, ""),
    ("none", _HOSTS, "ssh", {}, _THREE, ""),
    ("none", {}, "ssh", _HOSTS, _THREE, ""),
    ("none", {}, "ssh", {"hosts": ["a"]}, _THREE, "it has 1 host of its own"),
    ("none", {}, "ssh", {}, _LOCAL, "it has 0 hosts of its own"),
    ("opennebula", _OPENNEBULA, "ssh", {}, _THREE, ""),
    ("none", {}, "docker", {}, _LOCAL, ""),
    ("none", {}, "docker", {}, _CLOUD, "no machine of aws"),
    ("none", {}, "docker", {"host": "ssh://far"}, _CLOUD, ""),
    ("none", _HOSTS, "docker", {}, _CLOUD, ""),
    ("none", _HOSTS, "docker", {}, _THREE, "one machine, not on 3"),
    ("opennebula", _OPENNEBULA, "docker", {"host": "ssh://far"}, _CLOUD, "names ssh://far"),
    ("none", {}, "htcondor", {}, _THREE, "one machine, not on 3"),
    ("none", {}, "htcondor", {}, _LOCAL, ""),
]


@pytest.mark.parametrize(("provisioner", "theirs", "runner", "ours", "offer", "words"), SETTINGS)
def test_settings_decide_before_money_is_spent(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provisioner: str,
    theirs: dict[str, Any],
    runner: str,
    ours: dict[str, Any],
    offer: Offer,
    words: str,
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    made, runs = _made("provisioner", provisioner, tmp_path, **theirs), _made("runner", runner, tmp_path, **ours)
    why = offer_incompatibility(made, runs, offer)
    assert bool(why) == bool(words), why
    assert words in why


def test_an_engine_that_the_environment_names_may_be_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://far")
    made, runs = _made("provisioner", "none", tmp_path), _made("runner", "docker", tmp_path)
    assert offer_incompatibility(made, runs, _CLOUD) == ""


@pytest.mark.parametrize(
    ("runner", "simulated"),
    [({"use": "workflow"}, True), ("replay", True), ({"use": "workflow_local"}, False), ("gone", False), (None, False)],
)
def test_a_stored_specification_says_if_its_runs_are_simulated(runner: Any, *, simulated: bool) -> None:
    assert is_simulated({"job": {"space": {}, "deploy": {"runner": runner}}}) is simulated
    assert not is_simulated({"job": {"space": {}}})
