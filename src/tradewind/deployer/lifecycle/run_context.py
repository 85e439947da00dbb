"""The parts and settings that all runs of a deployer share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import IntEnum

from tradewind.deployer.environment import resolve_secrets
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.lifecycle.kept_machines import KeptFleet
from tradewind.deployer.provisioner.base import Cluster, ClusterState, MakesMachines, Provisioner, ReachableBySsh
from tradewind.deployer.result_uploads import ResultUploader
from tradewind.deployer.runner.base import Runner, Simulates
from tradewind.deployer.staging import check_inputs
from tradewind.errors import TradewindError
from tradewind.problem import Billing, Handle, Run, RunRequest, RunState, RunStatus

_log = logging.getLogger("tradewind.deployer")

STAGES = (
    RunState.BOOTING,
    RunState.BOOTSTRAPPING,
    RunState.SUBMITTING,
    RunState.EXECUTING,
    RunState.COLLECTING,
)
"""The stages of a run, in their order."""


WAITS = "it waits: "
"""The beginning of the reason in the row of a run that its engine has not begun yet."""

_PREPARING = tuple(
    f"{moment}_{stage}" for stage in STAGES[: STAGES.index(RunState.EXECUTING)] for moment in ("before", "after")
)
"""When hooks may still bring what a run needs."""

StageListener = Callable[[str, RunState], None]
"""Called at once with the id of a run and the stage that it enters."""


def ignore_stage(run_id: str, stage: RunState) -> None:
    """Do nothing: the `StageListener` of a deployer that has none."""


class StagePhase(IntEnum):
    """Progress of a run within its stage: the hooks before it, the stage itself, the hooks after it."""

    BEFORE = 0
    ACT = 1
    AFTER = 2


@dataclass(frozen=True, slots=True)
class RunContext:
    """The parts and settings that all runs of a deployer share.

    Attributes:
        provisioner: The provisioner that makes the machines.
        runner: The runner of the jobs.
        billing: The rule by which time becomes money.
        hooks: The user's hooks.
        later: Does in a thread what takes long.
        results: Uploads what runs kept, or None.
        entered: Called for each stage that a run enters.
        kept: The machines that are kept between runs, or None where each run's machines go with it.
    """

    provisioner: Provisioner
    runner: Runner
    billing: Billing
    hooks: Hooks
    later: Callable[[Callable[[], None]], Future[None]]
    results: ResultUploader | None = None
    entered: StageListener = ignore_stage
    kept: KeptFleet | None = None

    @property
    def own(self) -> bool:
        """True when a run's job is on machines that were made for it, and ends with them."""
        return self.makes and isinstance(self.provisioner, ReachableBySsh)

    @property
    def makes(self) -> bool:
        """True when there are machines that cost money until they are destroyed."""
        return isinstance(self.provisioner, MakesMachines)

    @property
    def gives(self) -> bool:
        """True when runs get machines that are to be given back, also those that cost nothing: the user's own hosts."""
        return self.provisioner.gives_machines

    def check(self, request: RunRequest) -> None:
        """See, before machines are made, that what every run of the job needs is there, as far as that can be seen.

        A simulated run needs neither inputs nor secrets, and hooks may bring them. Where no machines are given the run
        itself finds out as soon.

        Raises:
            TradewindError: An input or a secret is not there.
        """
        if not self.gives or isinstance(self.runner, Simulates):
            return
        if not any(self.hooks.has(moment) for moment in _PREPARING):
            check_inputs(request)
            resolve_secrets(request.secrets)

    def lent(self, request: RunRequest, cluster: Cluster) -> RunRequest:
        """The request of a run that has got its machines: what it waited for the user's own hosts does not count.

        Machines that were made for it end when the lease does that they were made with.
        """
        if self.makes or cluster.expires is None:
            return request
        return replace(request, expires=max(request.expires, cluster.expires))

    def taken_over(self, cluster: str) -> Cluster:
        """The machines that a run takes over; what is not known here, after a crash, is to be asked of the provider."""
        found = self.kept.take(cluster) if self.kept is not None else None
        return found or Cluster(cluster, ClusterState.UNKNOWN)

    def seen(self, run: Run, status: RunStatus, *, going: bool) -> Run:
        """Give the row of a run after its runner was asked, with what keeps it from going on.

        Args:
            run: The row as it is.
            status: The runner's answer.
            going: False for one that is being ended: its row says why.
        """
        least = run.runtime if status.state is RunState.PREEMPTED else 0.0
        code = status.exit_code if status.state.ended else None
        used = replace(status.usage, resumed_seconds=run.usage.resumed_seconds)
        run = replace(run, runtime=max(least, status.runtime), exit_code=code, usage=used)
        if not going or status.state.ended or run.state is not RunState.EXECUTING:
            return run
        waits = bool(status.reason) and status.state is RunState.SUBMITTING
        return replace(run, reason=f"{WAITS}{status.reason}" if waits else status.reason)

    def abandon(self, run_id: str) -> Cluster | None:
        """Have the machines that are being made for a run given up.

        Returns:
            What has been begun by now, for the bill; None if nothing has.
        """
        seen = None
        try:
            seen = self.provisioner.poll([Cluster(run_id, ClusterState.UNKNOWN)])[run_id]
            self.provisioner.abandon(run_id)
        except TradewindError as error:  # what is being made now is given back when it is there
            _log.warning("run %s is to end, but the making of its machines goes on: %s", run_id, error)
        return seen if seen is not None and seen.setup_seconds > 0 else None


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """Work that takes long and is done in a thread.

    Attributes:
        task: The thread's.
        then: What to do when it is done, even if the run is to end by then.
        firm: It creates or destroys something, and its end is waited for whatever happens.
        creating: It creates something: when the run is to end anyway, that it failed does not matter.
    """

    task: Future[None]
    then: Callable[[], None]
    firm: bool = False
    creating: bool = False


def handle_of(run: Run, request: RunRequest, runner: Runner) -> Handle:
    """Give the handle of a run, or as much of one as its id and owner make."""
    return run.handle or Handle(run.run_id, runner.name, {"owner": request.owner, "folder": str(request.folder)})
