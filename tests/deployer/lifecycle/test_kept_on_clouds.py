"""Machines of real provisioners that are kept between trials: Terraform's in moto, and of a server like oned."""

from __future__ import annotations

import getpass
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engines import moto as moto_engine
from tests.engines import oned as oned_engine
from tests.engines.moto import DEBIAN, Moto, moto
from tests.engines.oned import Oned
from tests.engines.ssh import Sshd, sshd
from tests.waiting import eventually

from tradewind.cli.app import run as cli
from tradewind.errors import StoreError
from tradewind.problem import Run, RunState
from tradewind.store.base import store_at
from tradewind.utils.paths import store_url

__all__ = ["moto", "sshd"]

_OFFERS = (
    "API Name,Provider,CPU,Memory,Category,Price\nm1,opennebula,1,0.25,general,0.36\nm2,opennebula,2,0.5,general,0.72\n"
)


@dataclass(frozen=True)
class Cloud:
    """A cloud whose machines are played by an SSH server on loopback.

    Attributes:
        deploy: The parts of a job that make its machines and run on them.
        job: What a job has of the cloud beside that.
        types: Two of its machine types.
        made: Asks how many machines were made.
        alive: Asks which are there.
    """

    deploy: dict[str, Any]
    job: dict[str, Any]
    types: list[str]
    made: Callable[[], int]
    alive: Callable[[], list[Any]]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"  # what the machines and Tradewind itself have is beside it: the folder is packed
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def amazon(moto: Moto, sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    for name, value in moto_engine.environment(moto.folder).items():
        monkeypatch.setenv(name, value)
    ssh = {"host": "127.0.0.1", "user": getpass.getuser(), **sshd.facts}
    made: dict[str, Any] = {
        "use": "terraform",
        "ready": "ssh",
        "regions": ["us-east-1"],
        "endpoint": moto.endpoint,
        "image": DEBIAN,
    }
    made |= {"ssh": ssh, "caller_cidr": "127.0.0.1/32"}
    before = len(moto.asked)
    offers = {"provider": "aws", "region": "us-east-1"}
    return Cloud(
        {"provisioner": made, "runner": {"use": "ssh", "folder": str(tmp_path / "far")}},
        {"offers": offers},
        ["c7i.large", "c7i.xlarge"],
        lambda: moto.asked[before:].count(("us-east-1", "RunInstances")),
        lambda: [each for each in moto.leftovers("us-east-1") if each.startswith("i-")],
    )


@pytest.fixture
def opennebula(
    sshd: Sshd, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cloud]:
    monkeypatch.setenv("ONE_TEST_AUTH", f"ada:{oned_engine.USERS['ada'][0]}")
    Path("machines.csv").write_text(_OFFERS)
    running = oned_engine.running(tmp_path_factory.mktemp("oned"))
    oned: Oned = next(running)
    made: dict[str, Any] = {"use": "opennebula", "endpoint": oned.endpoint, "auth": "env:ONE_TEST_AUTH"}
    made |= {"template": "node", "user": "", "port": sshd.port, "identity": str(sshd.keys.client), "interval": 0.1}
    yield Cloud(
        {"provisioner": made, "runner": {"use": "ssh", "folder": str(tmp_path / "far")}},
        {"catalogues": {"csv": {"path": "machines.csv"}}, "offers": {"provider": "opennebula"}},
        ["m1", "m2"],
        lambda: oned.calls("template.instantiate"),
        oned.alive,
    )
    next(running, None)


def write(cloud: Cloud, command: str, **more: Any) -> None:
    document = {
        "name": "kept",
        "job": {"command": ["sh", "-c", command]},
        "space": {"n": [1, 2, 3], "instance": {"types": cloud.types}},
        "searcher": {"use": "exhaustive", "order": "shuffled"},
        "budget": {"dollars": 5},
        "abort": False,
        **cloud.job,
        "deploy": {"keep": "10m", "billing": {"granularity": "1ms"}, **cloud.deploy},
        **more,
    }
    Path("job.yaml").write_text(yaml.safe_dump(document))


def stored_runs() -> list[Run]:
    with closing(store_at(store_url())) as store:
        [study] = store.find_studies("kept")
        return sorted(store.runs(study.id), key=lambda run: run.run_id)


def keeps() -> bool:
    """True when machines are kept now; the store may be just being made."""
    try:
        return any(run.lease is not None and run.lease.ended is None for run in stored_runs())
    except (StoreError, ValueError):
        return False


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    assert cli(["status", "kept", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check_reuse(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """Trials are on one set of machines, which is set up and paid once; none is there at the end."""
    write(cloud, "true", space={"n": [1, 2], "instance": {"types": cloud.types[:1]}})
    assert cli(["tune", "job.yaml", "--quiet"]) == 0, capsys.readouterr().err
    assert (cloud.made(), cloud.alive()) == (1, [])
    found = shown(capsys)
    assert "kept" not in found
    runs = stored_runs()
    assert [run.state for run in runs] == [RunState.DONE] * 2
    first, second = runs
    assert second.taken is not None
    assert first.lease is not None
    assert (second.taken.cluster, first.lease.taken_by) == (first.lease.cluster, second.run_id)
    assert first.own_cost > 2 * second.own_cost > 0.0
    assert found["spent"] == pytest.approx(sum(run.cost for run in runs), abs=1e-9)


def check_switches(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial on another offer is paid with the machines that are made for it: what a switch costs is billed."""
    write(cloud, "true", space={"n": [1], "instance": {"types": cloud.types}})
    assert cli(["tune", "job.yaml", "--quiet"]) == 0, capsys.readouterr().err
    assert (cloud.made(), cloud.alive()) == (2, [])
    for run in stored_runs():
        assert run.taken is None
        assert run.lease is not None
        assert run.own_cost == pytest.approx(run.lease.seconds * run.lease.hourly / 3600, rel=0.1)
        assert run.lease.seconds > 5 * run.runtime  # their coming up is billed


def check_kill(cloud: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    """What a search had kept when it was killed is shown, leased until its time, and given back by ``reap``."""
    space = {"n": [1, 2], "instance": {"types": cloud.types[:1]}}
    write(cloud, "test {{ n }} = 1 || sleep 300", space=space, parallel=2, budget={"dollars": 5, "trials": 9})
    command = [sys.executable, "-c", "import sys; from tradewind.cli.app import run; sys.exit(run(sys.argv[1:]))"]
    with subprocess.Popen([*command, "tune", "job.yaml", "--quiet"], stderr=subprocess.PIPE) as search:
        eventually(keeps, 120)
        [kept] = shown(capsys)["kept"]
        search.send_signal(signal.SIGKILL)
        search.communicate()
    assert cloud.made() == len(cloud.alive()) == 2
    assert cli(["status", "kept"]) == 0
    assert "kept for the next trial: " in capsys.readouterr().out
    assert 0 < kept["until"] - time.time() <= 600
    assert cli(["reap", "--yes"]) == 0, capsys.readouterr().err
    assert len(cloud.alive()) == 1
    found = shown(capsys)
    assert "kept" not in found
    assert cli(["down", "kept", "--yes"]) == 0, capsys.readouterr().err
    assert cloud.alive() == []
    assert shown(capsys)["reserved"] == 0.0


@pytest.mark.xdist_group("opennebula")
@pytest.mark.parametrize(
    "check",
    [
        check_reuse,
        pytest.param(check_switches, marks=pytest.mark.slow),
        pytest.param(check_kill, marks=pytest.mark.slow),
    ],
)
def test_opennebula(check: Callable[..., None], opennebula: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    check(opennebula, capsys)


@pytest.mark.xdist_group("terraform")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("check", [check_reuse, check_switches, check_kill])
def test_terraform(check: Callable[..., None], amazon: Cloud, capsys: pytest.CaptureFixture[str]) -> None:
    check(amazon, capsys)
