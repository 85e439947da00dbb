"""The HTCondor runner, against programs that behave like HTCondor's and really run the jobs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.deployer.helpers import eventually, python, request_for
from tests.engines import condor as engine
from tests.engines.condor import Condor, condorlib

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.deployer.runner.htcondor import HtCondorRunner
from tradewind.deployer.runner.htcondor_events import read_log
from tradewind.deployer.runner.htcondor_settings import HtCondorSettings
from tradewind.deployer.runner.htcondor_status import status_of, story_of
from tradewind.deployer.runner.htcondor_submit import quoted
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    SpecError,
    TradewindError,
    UnreachableError,
)
from tradewind.problem import Fault, Handle, RunRequest, RunState
from tradewind.testing.runners import RunnerBench, RunnerConformance, ended, until

pytestmark = pytest.mark.xdist_group("htcondor")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Condor]:
    yield from engine.running(tmp_path_factory.mktemp("condor"))


@pytest.fixture
def condor(server: Condor) -> Iterator[Condor]:
    server.config()
    yield server
    server.config()


def runner_over(condor: Condor, folder: Path, **settings: Any) -> HtCondorRunner:
    given = {"bin": str(condor.bin), "interval": 0.2, "grace": 0.3, **settings}
    return HtCondorRunner(settings=HtCondorSettings(**given), data_folder=folder / "data")


class Bench(RunnerBench):
    wall_seconds = 1.0

    def __init__(self, folder: Path, condor: Condor, files: str) -> None:
        super().__init__(folder)
        self.condor, self.files = condor, files

    def make(self) -> Runner:
        return runner_over(self.condor, self.folder, files=self.files)

    def request(self, kind: str, run_id: str = "run-1", owner: str = "") -> RunRequest:
        made = super().request(kind, run_id, owner) if owner else super().request(kind, run_id)
        if kind == "good":
            # The job may run in a copy of the working folder.
            made = replace(made, argv=("sh", "-c", f"echo ran >> {made.workdir}/count; echo hello"))
        return made


class TestHtCondor(RunnerConformance):
    @pytest.fixture(params=["transfer", "shared"])
    def bench(self, tmp_path: Path, condor: Condor, request: pytest.FixtureRequest) -> Iterator[RunnerBench]:
        bench = Bench(tmp_path, condor, request.param)
        yield bench
        bench.close()
        assert condor.left() == []
