"""Ends the runs of a study that nobody goes on with, and gives back its machines."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tradewind.engine.cleanup.kept_leases import end_leases
from tradewind.engine.deployment import build_deployer, run_request_factory
from tradewind.engine.search import Search, SearchComponents, tags_in_use
from tradewind.engine.search_builder import accepted_exit_codes, build_metrics_reader
from tradewind.engine.state_machine.events import Interrupted, SearchOpened
from tradewind.engine.state_machine.search_machine import SearchMachine
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.errors import (
    CredentialsError,
    InputError,
    InterpretationError,
    MissingProgramError,
    NoOfferError,
    PluginError,
    PrerequisiteError,
    SpecError,
    TeardownError,
    TradewindError,
)
from tradewind.plugins import Settings
from tradewind.problem import Categorical, Configuration, Offer, Problem, Run, RunOutput, RunRequest, Space
from tradewind.searcher.base import NothingLeft, Searcher, SearchState
from tradewind.store.base import Store, StudyRow, this_process
from tradewind.utils.clock import Clock
from tradewind.utils.processes import NoSuchProcess, process_start_time

if TYPE_CHECKING:
    from tradewind.deployer.lifecycle.deployer import Deployer, FreeMachines
    from tradewind.deployer.lifecycle.kept_machines import KeptFleet
    from tradewind.deployer.runner.base import Runner
    from tradewind.problem.job_spec.spec import JobSpec

_HOLD_SECONDS = 3600.0
"""How long giving back may take; a process of this host that has died lets go at once."""

_OUTLAST_SECONDS = 15.0
"""Within this time a process whose study was taken has noticed: it says that it lives every 10 s."""

_PAUSE_SECONDS = 1.0

_LASTING = (CredentialsError, InputError, MissingProgramError, PluginError, PrerequisiteError)
"""What the next attempt says again: it is not waited for."""


@dataclass(frozen=True, slots=True)
class StudyTeardown:
    """The result of ending a study.

    Attributes:
        study: The study.
        runs: The rows of the runs that were open, as they are now.
        words: What was given back besides, in words.
        problems: What could not be given back, in words.
    """

    study: StudyRow
    runs: tuple[Run, ...] = ()
    words: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """USD that those runs have cost, total."""
        return sum(run.cost for run in self.runs)


def tear_down_study(
    store: Store,
    study: StudyRow,
    data_folder: Path,
    *,
    only: Collection[str] | None = None,
    reason: str = "it was ended by hand",
    force: bool = False,
) -> StudyTeardown:
    """End the open runs of a study, give back its machines, and let its rows say so with what it cost.

    A run whose job has ended by itself meanwhile keeps its result. The study can be gone on with.

    Args:
        store: Where it is kept.
        study: The study.
        data_folder: Where runners and provisioners keep what they need.
        only: End only these runs, by id, and give nothing else back.
        reason: Why, in words, for the rows.
        force: Do so even if a live process runs the study: it ends when it finds out.

    Raises:
        StudyBusyError: A live process runs it, without ``force``.
        TradewindError: Its specification cannot be used any more.
    """
    from tradewind.problem.job_spec.spec import JobSpec

    holder = store.summaries([study.id])[0].holder if force else ""
    token = store.hold(study.id, this_process(), _HOLD_SECONDS, force=force)
    try:
        open_runs = store.runs(study.id, open_only=True)
        chosen = {run.run_id for run in open_runs if only is None or run.run_id in only}
        if study.kind == "workflow":
            from tradewind.engine.cleanup.workflow_teardown import end_machines

            if holder and force:
                _wait_for_holder(holder)
            words, problems = end_machines(store, study, data_folder, token, chosen, reason)
            return _ended(store, study, chosen, words, problems)
        spec = JobSpec.from_json(study.spec)
        problems = _end_runs(spec, study, store, data_folder, chosen, reason) if chosen else []
        words = []
        if only is None:
            if chosen:  # the hold was passed on to those runs
                token = store.hold(study.id, this_process(), _HOLD_SECONDS, force=force)
            if holder and force:
                _wait_for_holder(holder)
            words, more = _give_back(spec, study, store, data_folder)
            problems += more
            if not more:
                end_leases(store, study.id, spec.billing, token)
        return _ended(store, study, chosen, words, problems)
    finally:
        store.release(study.id, token)


def _ended(
    store: Store, study: StudyRow, chosen: Collection[str], words: Sequence[str], problems: Sequence[str]
) -> StudyTeardown:
    """The result of ending a study whose open runs these were."""
    now = {run.run_id: run for run in store.runs(study.id)} if chosen else {}
    return StudyTeardown(study, tuple(now[run_id] for run_id in sorted(chosen)), tuple(words), tuple(problems))


def _end_runs(
    spec: JobSpec, study: StudyRow, store: Store, data_folder: Path, chosen: Collection[str], reason: str
) -> list[str]:
    """End some runs as the engine would that the user interrupts; what went wrong, in words."""
    problem = Problem(
        job=spec.job,
        # What may be chosen is of no interest any more, and no price list must be at hand for it.
        space=Space([Categorical(name="nothing", values=("-",))]),
        objective=spec.objective,
        constraints=spec.constraints,
        budget=spec.budget,
        resolver=_NoResolver(),
        terms=spec.terms,
    )
    try:
        codes, read = accepted_exit_codes(spec), build_metrics_reader(spec)
    except (PluginError, SpecError) as error:  # what was to read the outputs is gone: the machines go all the same
        codes, read = frozenset(), partial(_cannot_read, str(error))
    policy = SearchPolicy(owner=study.owner, retries=spec.retries, abort=spec.abort, exit_codes=codes, searcher="")
    deployer = _EndingDeployer(build_deployer(spec, study.owner, data_folder), reason)
    parts = SearchComponents(
        study=study,
        problem=problem,
        machine=SearchMachine(problem, policy),
        searcher=_NoSearcher(settings=Settings(), problem=problem),
        deployer=deployer,
        store=store,
        request=run_request_factory(spec, study, data_folder, deployer.clock.now),
        read=read,
    )
    _FinalSearch(parts).end_runs(chosen)
    return deployer.problems


def _cannot_read(why: str, output: RunOutput) -> dict[str, float]:
    raise InterpretationError("user-code", why, hint=f"what it left is in {output.folder}")


class _FinalSearch(Search):
    """The last turn of a search: it takes over what runs, and ends it."""

    def end_runs(self, chosen: Collection[str]) -> None:
        """End some open runs; the others stay as they are."""
        parts = self.parts
        study_id = parts.study.id
        self._token = parts.store.hold(study_id, this_process(), _HOLD_SECONDS)
        self._ours = False  # what was not chosen goes on
        try:
            runs = [
                replace(run, lease=None)  # machines that are kept are given back by their tags
                for run in parts.store.runs(study_id)
                if run.state.ended or run.run_id in chosen
            ]
            parts.machine.parallel = 0  # nothing new is begun
            self._feed(SearchOpened(parts.store.trials(study_id), runs, parts.study.elapsed))
            self._feed(Interrupted())
        finally:
            self.end()


class _EndingDeployer:
    """A deployer that ends what it is asked to take over."""

    def __init__(self, deployer: Deployer, reason: str) -> None:
        self.problems: list[str] = []
        self._deployer = deployer
        self._reason = reason

    @property
    def clock(self) -> Clock:
        return self._deployer.clock

    @property
    def runner(self) -> Runner:
        return self._deployer.runner

    @property
    def kept(self) -> KeptFleet:
        return self._deployer.kept

    def free_machines(self) -> list[FreeMachines]:
        return []

    def decide(self, run_id: str, *, keep: bool) -> None:
        return

    def launch(self, run: Run, request: RunRequest) -> Run:
        raise AssertionError(f"run {run.run_id} is not to be started")

    def adopt(self, run: Run, request: RunRequest, unwanted: str = "", *, repeats: bool = False) -> Run:
        try:
            return self._deployer.end(run, request, unwanted or self._reason)
        except TradewindError as error:  # the others are ended all the same
            self.problems.append(str(error))
            return run

    def poll(self) -> list[Run]:
        return []

    def wait(self, seconds: float) -> None:
        return

    def wake(self) -> None:
        """See `DeployerProtocol.wake`."""
        self._deployer.wake()

    def abort(self, reasons: Mapping[str, str], *, repeats: bool = False) -> list[Run]:
        return []

    def stop(self, reasons: Mapping[str, str]) -> None:
        return

    def cancel(self, run_id: str, reason: str) -> Run | None:
        return None

    def settle(self, run_id: str) -> None:
        self._deployer.settle(run_id)

    def sweep(self, known_run_ids: set[str]) -> list[str]:
        return []

    def output(self, run: Run, request: RunRequest) -> RunOutput:
        return self._deployer.output(run, request)

    def close(self) -> None:
        self._deployer.close()


class _NoSearcher(Searcher):
    """Proposes nothing and keeps nothing: the study's own searcher goes on where it was."""

    def ask(self, state: SearchState, count: int = 1) -> NothingLeft:
        return NothingLeft("the study is being ended")

    def state(self) -> Mapping[str, object]:
        return {}


class _NoResolver:
    machine_parameters: tuple[str, ...] = ()

    def resolve(self, configuration: Configuration) -> Offer:
        raise NoOfferError("the study is being ended")


def _give_back(spec: JobSpec, study: StudyRow, store: Store, data_folder: Path) -> tuple[list[str], list[str]]:
    """Give back what a study's open runs do not need; what was, and what could not be, in words."""
    known = tags_in_use(store.runs(study.id, open_only=True))
    try:
        with contextlib.closing(build_deployer(spec, study.owner, data_folder)) as deployer:
            return sweep_machines(deployer, known)
    except _LASTING as error:
        # A row is written before anything is made: without one, what never could begin has left nothing.
        return [], [str(error)] if store.runs(study.id) else []


def sweep_machines(deployer: Deployer, known: set[str]) -> tuple[list[str], list[str]]:
    """Give back all that belongs to no open run, and wait until the provider confirms it.

    Raises:
        TradewindError: Nothing can be asked, now or later: one of `_LASTING`.
    """
    words: dict[str, None] = {}
    until = time.monotonic() + max(30.0, deployer.provisioner.patience_seconds)
    while True:
        try:
            words |= dict.fromkeys(deployer.sweep(known))
            left = [cluster for cluster in deployer.provisioner.find(deployer.owner) if cluster.run_id not in known]
            problem = f"the machines of {', '.join(sorted(c.run_id for c in left))} are still there" if left else ""
        except _LASTING:
            raise
        except TradewindError as error:
            left, problem = [], str(error)
        if not problem:
            return list(words), []
        if time.monotonic() > until:
            return list(words), [problem]
        pause = deployer.provisioner.next_change(left) if left else _PAUSE_SECONDS
        deployer.clock.sleep(min(_PAUSE_SECONDS, pause) if pause > 0 else _PAUSE_SECONDS)


def _wait_for_holder(holder: str) -> None:
    """Wait until the process that ran the study has noticed: what it was just creating is there then."""
    host, _, pid = holder.rpartition(":")
    until = time.monotonic() + _OUTLAST_SECONDS
    while time.monotonic() < until:
        if host == socket.gethostname() and pid.isdigit():
            try:
                process_start_time(int(pid))
            except NoSuchProcess:
                return
        time.sleep(0.2)


def teardown_error(problems: Collection[str]) -> TeardownError:
    """The error for what could not be given back."""
    first, *others = problems
    more = f" (and {len(others)} more)" if others else ""
    return TeardownError(f"not everything could be given back: {first}{more}", hint="it may still cost money")
