"""What handles tell is typed, and rows of earlier versions are still understood."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tradewind.deployer.runner.docker.engine import EngineAddress
from tradewind.deployer.runner.docker.status import DockerData
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.runner.htcondor.status import HtCondorData
from tradewind.deployer.runner.kubernetes.status import KubernetesData
from tradewind.deployer.runner.process import ProcessData
from tradewind.deployer.runner.ray.status import RayData
from tradewind.deployer.runner.simulated import SimulatedRunPlan
from tradewind.deployer.runner.slurm.handle import SlurmData, SlurmRun
from tradewind.deployer.runner.ssh.status import SshData
from tradewind.deployer.ssh_target import SshTarget
from tradewind.problem import Handle

TARGET = {"host": "node-1", "port": 22}
LIMITS: dict[str, Any] = {"memory_bytes": 1024, "wall_seconds": 60.0}
LEASE: dict[str, Any] = {"owner": "tw-1", "expires": 1700003600.0, "created": 1700000000.0, "price_per_hour": 0.5}

STORED: dict[str, tuple[type[HandleData], dict[str, Any]]] = {
    "process": (ProcessData, {"folder": "/runs/1", "owner": "tw-1"}),
    "docker": (
        DockerData,
        {
            "owner": "tw-1",
            "folder": "/runs/1",
            "engine": {"host": "unix:///var/run/docker.sock", "target": None},
            "expires": 1700003600.0,
            "asked": 1700000001.5,
            "ports": {"80": 32768},
        },
    ),
    "ssh": (SshData, {**LEASE, **LIMITS, "name": "run-1", "machines": [TARGET], "load": True, "program": "sh"}),
    "slurm": (
        SlurmData,
        {
            "folder": "/runs/1",
            "expires": 1700003600.0,
            "submitted": 1700000000.0,
            "program": "sh",
            "workdir": "/work",
            "wall_seconds": 60.0,
            "asked": False,
            "memory_bytes": 1024,
            "spread": True,
            "batch": "run-1+1",
            "index": 1,
            "owner": "tw-1",
            "handed": True,
            "created": 1700000000.0,
            "job": "7",
        },
    ),
    "htcondor": (
        HtCondorData,
        {**LEASE, "program": "sh", "wall": 60.0, "cluster": 3, "process": 4, "submitted": 17e8, "folder": "/runs/1"},
    ),
    "kubernetes": (
        KubernetesData,
        {
            **LEASE,
            **LIMITS,
            "folder": "/runs/1",
            "program": "sh",
            "lasts": 3600.0,
            "patience": {"image_seconds": 60.0, "schedule_seconds": 600.0},
            "job": "tw-run-1",
            "uid": "0-1",
        },
    ),
    "ray": (RayData, {**LEASE, **LIMITS, "folder": "/runs/1", "lasts": 3600.0, "secrets": {"KEY": "env:KEY"}}),
    "replay": (
        SimulatedRunPlan,
        {
            "owner": "tw-1",
            "started": 10.0,
            "reason": "it crashed",
            "seconds": 2.5,
            "state": "failed",
        },
    ),
}
"""Data of handles as they were in the store before they were typed."""


@pytest.mark.parametrize("name", STORED)
def test_rows_of_an_earlier_version_are_understood(name: str) -> None:
    kind, stored = STORED[name]
    row = {"run_id": "run-1", "runner": name, "data": {**stored, "of_another_version": {"x": 1}}}
    data = kind.of(Handle.from_json(json.loads(json.dumps(row))))
    assert {key: getattr(data, key) for key in stored} == stored
    again = data.handle("run-1", name)
    assert (again.run_id, again.runner) == ("run-1", name)
    assert kind.of(Handle.from_json(json.loads(json.dumps(again.to_json())))) == data


@pytest.mark.parametrize("name", STORED)
def test_what_is_not_there_has_its_default(name: str) -> None:
    kind, stored = STORED[name]
    assert kind.from_json({}) == kind() == kind.from_json(dict.fromkeys(stored))
    assert kind().to_json() == {}


def test_places_are_read_from_what_is_stored() -> None:
    assert SshData.from_json(STORED["ssh"][1]).targets == [SshTarget(**TARGET)]  # type: ignore[arg-type]
    assert DockerData.from_json(STORED["docker"][1]).address == EngineAddress("unix:///var/run/docker.sock")
    assert DockerData().address is None
    assert ProcessData().place is None
    run = SlurmRun.of(Handle("run 2", "slurm", STORED["slurm"][1]))
    assert (run.key, str(run.folder)) == (("run-1+1", 1), "/runs/1")
    assert SlurmRun.of(Handle("run 2", "slurm", {})).key == ("run%202", 0)


def test_time_in_a_queue_does_not_count() -> None:
    data = HandleData(owner="tw-1", expires=200.0, created=100.0)
    assert data.waiting().expires is None
    assert data.begun(150.0, None).expires == 250.0, "what an earlier version wrote lasts as long as it did then"
    assert data.begun(150.0, 30.0).expires == 200.0
    assert data.begun(190.0, 30.0).expires == 220.0
    assert data.waiting().begun(150.0, 30.0).expires is None
