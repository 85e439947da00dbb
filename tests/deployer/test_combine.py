"""Which provisioners and runners go together."""

from __future__ import annotations

import pytest

from tradewind import plugins
from tradewind.deployer.combine import matrix, why_not
from tradewind.deployer.provisioner.base import MakesMachines, Provisioner, ReachableBySsh, RunsDocker, TagsMachines
from tradewind.deployer.runner.base import HasOwnMachines, NeedsImages, Runner, Simulates, ThisMachine, UsesMachines


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
        why = why_not(PROVISIONERS[provisioner], RUNNERS[runner])
        assert bool(why) == bool(words), f"{runner} on {provisioner}: {why}"
        assert words in why


def test_the_matrix_has_all_pairs() -> None:
    found = matrix(PROVISIONERS, RUNNERS)
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
    found = matrix(provisioners, runners)
    assert [runner for runner, row in found.items() if all(row.values())] == []
    assert [made for made in provisioners if all(row[made] for row in found.values())] == []
    assert not found["process"]["none"] and not found["process"]["simulated"]
