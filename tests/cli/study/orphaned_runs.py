"""Runs that their process has left alone, for the tests of those who clear up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.cli.common import open_store
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.runner.process import ProcessRunner
from tradewind.engine.deployment import build_deployer, run_request_factory
from tradewind.engine.search_builder import new_study
from tradewind.problem import Configuration, Handle, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.store.base import Change, Store, StudyRow
from tradewind.utils.paths import data_folder

JOB = """\
name: {name}
job: {{command: [sh, -c, {script!r}]}}
space: {{level: 1..9}}
objective: {{minimise: runtime}}
budget: {{trials: 3}}
searcher: random
deploy: {{provisioner: {{use: simulated, boot: 0.05, shutdown: {shutdown}, refusals: {refusals}}}}}
"""

OFFER = Offer("local", "small", 1, 1, 3600.0)
"""A dollar a second."""

PATIENCE = 60.0


@dataclass
class World:
    """A store with a study, and what runs for it.

    Attributes:
        folder: The job's folder.
        store: The store.
        spec: The job.
        study: Its study.
    """

    folder: Path
    store: Store
    spec: JobSpec
    study: StudyRow

    def leave(self, number: int = 0, *, until: RunState = RunState.EXECUTING, expires: float | None = None) -> Run:
        """Launch a run, and let go of it when it is in a state; nobody watches it then."""
        run_id = f"{self.study.owner}-{number:05d}-1"
        run = Run(run_id, number, started=time.time(), reserved=5.0)
        proposal = Proposal(Configuration({"level": number + 1}))
        trial = Trial(number, proposal, OFFER, TrialState.RUNNING, f"key-{number}", attempts=1, created=time.time())
        self.store.write(self.study.id, Change([trial], [run]))
        deployer = build_deployer(self.spec, self.study.owner, data_folder())
        request = run_request_factory(self.spec, self.study, data_folder(), time.time)(trial, run, None)
        if expires is not None:
            request = replace(request, expires=expires)
        run = deployer.launch(replace(run, folder=str(request.folder)), request)
        end = time.monotonic() + PATIENCE
        while run.state is not until:
            assert time.monotonic() < end and not run.state.ended, run
            deployer.wait(0.02)
            run = next(iter(deployer.poll()), run)
        self.store.write(self.study.id, Change(runs=[run]))
        deployer.close()
        return run

    def run(self, run_id: str) -> Run:
        """The row of a run as it is now."""
        return next(run for run in self.store.runs(self.study.id) if run.run_id == run_id)

    def found(self) -> set[str]:
        """The runs that the runner and the provisioner still find."""
        with self.deployer() as deployer:
            alive = [handle for handle in deployer.runner.find(None) if self._alive(deployer, handle)]
            return {handle.run_id for handle in alive} | {cluster.run_id for cluster in deployer.provisioner.find(None)}

    @staticmethod
    def _alive(deployer: Deployer, handle: Any) -> bool:
        return not deployer.runner.poll([handle])[handle.run_id].state.ended

    @contextmanager
    def deployer(self) -> Iterator[Deployer]:
        """A deployer of the study."""
        deployer = build_deployer(self.spec, self.study.owner, data_folder())
        yield deployer
        deployer.close()


@contextmanager
def world(
    folder: Path, script: str = "sleep 60", *, name: str = "sort", shutdown: float = 0.1, refusals: float = 0.0
) -> Iterator[World]:
    """A store with a study."""
    text = JOB.format(name=name, script=script, shutdown=shutdown, refusals=refusals)
    spec = parse_spec(text, base=folder)
    (folder / "job.yaml").write_text(text)
    store = open_store()
    made = World(folder, store, spec, store.create_study(new_study(spec)))
    find = ProcessRunner.find

    def of_this_world(self: ProcessRunner, owner: str | None) -> list[Handle]:
        return [handle for handle in find(self, owner) if handle.data["owner"] == made.study.owner]

    try:
        with pytest.MonkeyPatch.context() as patch:
            # Other tests run on this machine, too: theirs are neither seen nor ended.
            patch.setattr(ProcessRunner, "find", of_this_world)
            yield made
            with made.deployer() as deployer:
                for handle in deployer.runner.find(None):
                    deployer.runner.cancel(handle)
    finally:
        store.close()


def part(kind: str, name: str) -> Any:
    """A runner or provisioner with its usual settings."""
    return plugins.create(kind, name, {}, data_folder=data_folder())
