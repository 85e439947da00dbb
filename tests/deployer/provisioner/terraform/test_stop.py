"""Several searches of machines are interrupted at once: with a program that only pretends to be Terraform."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deployer.helpers import OWNER, deployer_over, request_for, row
from tests.deployer.provisioner.terraform.helpers import OFFER
from tests.waiting import eventually

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.terraform.provisioner import TerraformProvisioner
from tradewind.deployer.provisioner.terraform.settings import TerraformSettings
from tradewind.problem import Run, RunState

_STOPS, _DESTROYS, _RUNS = 1.5, 0.5, 4

_FAKE = f"""#!{sys.executable} -IS
import json, os, signal, sys, time
verb, folder = sys.argv[1], os.getcwd()

def note(what):
    line = json.dumps([os.path.basename(folder), what, time.monotonic()]) + "\\n"
    with open({{log!r}}, "a") as file:
        file.write(line)

def interrupted(*_):
    note("interrupted")
    time.sleep({_STOPS})
    note("stopped")
    sys.exit(1)

if verb == "validate":
    print(json.dumps({{{{"diagnostics": []}}}}))
elif verb == "apply":
    signal.signal(signal.SIGINT, interrupted)
    with open("terraform.tfstate", "w") as file:
        json.dump({{{{"resources": [{{{{"mode": "managed", "type": "fake", "instances": [{{{{}}}}]}}}}]}}}}, file)
    note("applying")
    time.sleep(120)
elif verb == "destroy":
    time.sleep({_DESTROYS})
    os.unlink("terraform.tfstate")
    note("destroyed")
"""


@pytest.fixture
def deployer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployer]:
    """A deployer whose machines take minutes to make, and some time to be given up."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "terraform"
    program.write_text(_FAKE.format(log=str(tmp_path / "log")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    module = tmp_path / "module"
    module.mkdir()
    (module / "main.tf").write_text("# machines\n")
    given = {"module": module, "sweep": False, "caller_cidr": "127.0.0.1/32", "listing_seconds": 0.0, "ready": "none"}
    provisioner = TerraformProvisioner(settings=TerraformSettings.model_validate(given), data_folder=tmp_path / "data")
    made = deployer_over(tmp_path, provisioner=provisioner)
    yield made
    made.close()


def noted(folder: Path, what: str) -> list[float]:
    """When the programs noted something."""
    log = folder / "log"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [moment for _, verb, moment in lines if verb == what]


def launched(deployer: Deployer, folder: Path) -> list[str]:
    """Some runs whose machines are being made."""
    names = [f"run-{i}" for i in range(_RUNS)]
    for name in names:
        deployer.launch(row(name), request_for(folder, ("true",), name, offer=OFFER))
    eventually(lambda: deployer.poll() is not None and len(noted(folder, "applying")) == _RUNS)
    return names


def assert_given_back(deployer: Deployer, folder: Path, ended: list[Run | None]) -> None:
    """All were cancelled, and nothing is left of their machines."""
    assert [run and (run.state, run.reason) for run in ended] == [(RunState.CANCELLED, "enough")] * _RUNS
    assert all(run is not None and run.cost > 0 for run in ended), "machines that were begun are paid"
    assert deployer.provisioner.find(OWNER) == []
    assert len(noted(folder, "destroyed")) == _RUNS
    assert deployer.active == {}


@pytest.mark.slow
def test_they_are_interrupted_together_and_then_waited_for(deployer: Deployer, tmp_path: Path) -> None:
    names = launched(deployer, tmp_path)
    begun = time.monotonic()
    deployer.stop(dict.fromkeys([*names, "run-unknown"], "enough"))
    assert noted(tmp_path, "stopped") == [], "nobody is waited for yet"
    ended = [deployer.cancel(name, "enough") for name in names]
    took = time.monotonic() - begun
    interrupted, stopped = noted(tmp_path, "interrupted"), noted(tmp_path, "stopped")
    assert len(interrupted) == len(stopped) == _RUNS
    assert max(interrupted) < min(stopped), "one waited for another's end"
    assert took < 2 * (_STOPS + _DESTROYS), "one after the other"
    assert_given_back(deployer, tmp_path, ended)


@pytest.mark.slow
def test_each_can_be_stopped_alone(deployer: Deployer, tmp_path: Path) -> None:
    names = launched(deployer, tmp_path)
    first = deployer.cancel(names[0], "enough")
    assert len(noted(tmp_path, "interrupted")) == 1
    assert set(deployer.active) == set(names[1:])
    deployer.stop(dict.fromkeys(names, "enough"))
    rest = [deployer.cancel(name, "enough") for name in names[1:]]
    assert_given_back(deployer, tmp_path, [first, *rest])
