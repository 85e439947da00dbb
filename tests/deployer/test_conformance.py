"""Every installed runner and provisioner passes its suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.deployer.provisioner.base import Provisioner
from tradewind.deployer.runner.base import Runner
from tradewind.testing.provisioners import Bench, ProvisionerConformance
from tradewind.testing.runners import RunnerBench, RunnerConformance
from tradewind.utils.clock import SimulatedClock

_RECORDED = "kind,runtime,status\ngood,2.5,ok\nbad,1,crashed\nlong,60,ok\nhog,60,ok\ncpus,1,ok\n"


_HERE = {"runner": ("process", "replay"), "provisioner": ("none", "simulated")}
"""Parts that need no engine; each other one has a test file of its own with its suite."""

_NO_COMMANDS = ("workflow_local",)
"""Runners of whole workflows, which the suite's jobs cannot be given to: tests/workflow/job has their tests."""

_TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("kind", "suite"), [("runner", "RunnerConformance"), ("provisioner", "ProvisionerConformance")]
)
def test_every_installed_part_has_its_suite(kind: str, suite: str) -> None:
    for name in sorted(set(plugins.names(kind)) - {*_HERE[kind], *_NO_COMMANDS}):
        if plugins.origin(kind, name)[0] != "tradewind":
            continue
        *packages, module = plugins.load(kind, name).__module__.split(".")[1:]
        file = _TESTS.joinpath(*packages, f"test_{module}.py")
        assert file.is_file(), f"{kind} {name} has no {file}"
        assert suite in file.read_text(), f"{file} does not inherit {suite}"


class InstalledRunner(RunnerBench):
    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self.name = name
        self.settings: dict[str, object] = {}
        if name == "replay":
            recorded = folder / "recorded.csv"
            recorded.write_text(_RECORDED)
            self.settings = {"file": str(recorded), "status": "status"}

    def make(self) -> Runner:
        made = plugins.create("runner", self.name, self.settings, data_folder=self.folder / "data")
        assert isinstance(made, Runner)
        return made


class TestRunners(RunnerConformance):
    @pytest.fixture(params=_HERE["runner"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunnerBench]:
        bench = InstalledRunner(tmp_path, request.param)
        yield bench
        bench.close()


class TestProvisioners(ProvisionerConformance):
    @pytest.fixture(params=_HERE["provisioner"])
    def bench(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
        clock = SimulatedClock(1e9)

        def make() -> Provisioner:
            made = plugins.create("provisioner", request.param, {}, data_folder=tmp_path)
            assert isinstance(made, Provisioner)
            made.clock = clock
            return made

        yield make
