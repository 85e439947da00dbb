"""Containers are started with their limits, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from tests.deployer.helpers import OFFER
from tests.deployer.runner.docker.helpers import in_container

from tradewind.deployer.runner.docker import names
from tradewind.deployer.runner.docker.engine import ContainerEngine, default_address
from tradewind.deployer.runner.docker.settings import DockerSettings
from tradewind.deployer.runner.docker.submit import ContainerStart
from tradewind.errors import PrerequisiteError
from tradewind.problem import Offer

pytest.importorskip("docker")

_FACTS = {"NCPU": 8, "MemoryLimit": True, "SwapLimit": True, "CpuCfsQuota": True}
_HINT = "Delegate=cpu cpuset memory pids"


class _Engine:
    """An engine that says of itself, and of what it creates, what a test wants."""

    mounts, podman, rootless, architecture = True, False, True, "x86_64"

    def __init__(self, warnings: Sequence[str] = (), **facts: Any) -> None:
        self.fitting_images: set[str] = set()
        self.address = "unix:///run/user/1000/docker.sock"
        self.warnings = warnings
        self.said = {key: value for key, value in {**_FACTS, **facts}.items() if value is not None}
        self.there: dict[str, dict[str, Any]] = {}
        self.started: list[str] = []

    def call(self, function: Callable[[Any], Any], seconds: float = 0.0) -> Any:
        return function(self)

    def facts(self) -> Mapping[str, Any]:
        return self.said

    def runs(self, architecture: str) -> bool:
        return architecture == self.architecture

    def inspect_image(self, image: str) -> Mapping[str, Any]:
        return {"Architecture": "amd64"}

    def clock(self) -> float:
        return 0.0

    def containers(self, **_: object) -> list[dict[str, Any]]:
        return list(self.there.values())

    def networks(self, **_: object) -> list[dict[str, Any]]:
        return []

    def create_container_from_config(self, document: Mapping[str, Any], name: str) -> dict[str, Any]:
        row = {"Id": "c1", "Names": [f"/{name}"], "Labels": document["Labels"], "State": "created", "Created": 0}
        self.there["c1"] = row
        return {"Id": "c1", "Warnings": self.warnings}

    def remove_container(self, container: str, **_: object) -> None:
        del self.there[container]

    def start(self, container: str) -> None:
        self.started.append(container)


def submit(base: Path, engine: _Engine, offer: Offer = OFFER, expires: float | None = None) -> None:
    request = replace(in_container(base, ("true",)), offer=offer)
    start = ContainerStart(cast("ContainerEngine", engine), DockerSettings(), request, base / "cache", lambda *_: None)
    start.run(expires=expires)


def test_the_expiry_of_one_that_has_waited_is_a_later_one(tmp_path: Path) -> None:
    engine = _Engine()
    submit(tmp_path, engine, expires=4e9)
    assert engine.there["c1"]["Labels"][names.EXPIRES] == repr(4e9)


@pytest.mark.parametrize(
    ("fact", "words"), [("MemoryLimit", "cannot limit the memory of"), ("CpuCfsQuota", "cannot limit the CPUs of")]
)
def test_an_engine_that_keeps_no_limit_starts_nothing(fact: str, words: str, tmp_path: Path) -> None:
    engine = _Engine((), **{fact: False})
    with pytest.raises(PrerequisiteError, match=words) as caught:
        submit(tmp_path, engine)
    assert _HINT in str(caught.value)
    assert (engine.there, engine.started) == ({}, [])


@pytest.mark.parametrize(
    "said",
    [
        "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
        "Resource limits are not supported and ignored on cgroups V1 rootless systems",
    ],
)
def test_an_engine_that_drops_the_limit_of_a_container_does_not_start_it(said: str, tmp_path: Path) -> None:
    engine = _Engine([said])
    with pytest.raises(PrerequisiteError, match="cannot limit the memory of") as caught:
        submit(tmp_path, engine)
    assert _HINT in str(caught.value)
    assert (engine.there, engine.started) == ({}, [])


@pytest.mark.parametrize("facts", [{}, {"SwapLimit": False}, dict.fromkeys(_FACTS)])
def test_an_engine_that_keeps_them_or_does_not_say_is_trusted(facts: dict[str, Any], tmp_path: Path) -> None:
    engine = _Engine(**facts)
    submit(tmp_path, engine)
    assert engine.started == ["c1"]


@pytest.mark.parametrize(
    ("host", "files", "options", "mounts"),
    [
        ("unix:///tmp/d.sock", "auto", ["name=seccomp,profile=default"], True),
        ("unix:///tmp/d.sock", "auto", ["name=seccomp,profile=default", "name=userns"], False),
        ("unix:///tmp/d.sock", "mount", ["name=userns"], True),
        ("unix:///tmp/d.sock", "copy", [], False),
        ("ssh://far.example", "auto", [], False),
    ],
)
def test_folders_are_mounted_where_the_users_in_containers_can_write_into_them(
    host: str, files: Literal["auto", "mount", "copy"], options: list[str], mounts: bool
) -> None:
    settings = DockerSettings(host=host, files=files)
    engine = ContainerEngine(default_address(settings), settings)
    engine._facts = {"SecurityOptions": options}
    assert engine.mounts is mounts


def test_limits_that_are_not_asked_for_need_not_be_kept(tmp_path: Path) -> None:
    engine = _Engine(["Resource limits are not supported"], MemoryLimit=False, CpuCfsQuota=False)
    submit(tmp_path, engine, replace(OFFER, vcpu=0, memory_gib=0))
    assert engine.started == ["c1"]


def test_other_warnings_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = _Engine([f"Memory limited without swap. ({tmp_path})"])
    with caplog.at_level(logging.WARNING, "tradewind.deployer"):
        for _ in range(2):
            submit(tmp_path, engine)
            engine.there.clear()
    assert [record.getMessage() for record in caplog.records] == [
        f"the container engine at {engine.address}: Memory limited without swap. ({tmp_path})"
    ]
