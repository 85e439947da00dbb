"""Takes one run from its row to its end, by steps each of which can be taken again.

How a run ends is noted in its folder before its machines are given back: after a crash they cannot be asked any more.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from tradewind.deployer.lifecycle.checkpoint_keeper import CheckpointKeeper
from tradewind.deployer.lifecycle.cost_meter import CostMeter
from tradewind.deployer.lifecycle.run_context import STAGES, BackgroundTask, RunContext, StagePhase
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.runner.architectures import CANNOT_EXECUTE, failed_for_architecture
from tradewind.deployer.runner.base import HasOwnFiles, Runner, Simulates, SubmitsTogether
from tradewind.deployer.runner.exit_reasons import fault_of
from tradewind.deployer.staging import stage_in, stage_out
from tradewind.errors import (
    ArchitectureError,
    CapacityError,
    DeployError,
    MissingProgramError,
    TradewindError,
    UnreachableError,
)
from tradewind.plugins import CallsNetwork
from tradewind.problem import Fault, Handle, MachineLease, Run, RunRequest, RunState, RunStatus, Usage
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.retries import Backoff

_log = logging.getLogger("tradewind.deployer")

_ENDING_FILE = "ended.json"
_BACKOFF = Backoff((1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0))


@dataclass(frozen=True, slots=True)
class RunEnding:
    """State, reason and fault that a run gets as soon as its machines are back."""

    state: RunState
    reason: str = ""
    fault: Fault | None = None

    def of(self, run: Run, now: float) -> Run:
        """Give the ended row of a run whose machines are back."""
        return replace(run, state=self.state, reason=self.reason, fault=self.fault, ended=now, machines=())


def ending_from_status(status: RunStatus) -> RunEnding:
    """Give the ending of a run whose job has ended with a status."""
    return RunEnding(status.state, status.reason, status.fault)


def ending_of_job(status: RunStatus, request: RunRequest) -> RunEnding:
    """Give the ending of a run whose job has ended with a status, and whose output is here.

    What a program for another processor architecture ends with, shells and engines say in its output only.
    """
    own = status.state is RunState.FAILED and status.fault is Fault.JOB
    if own and (why := failed_for_architecture(status.exit_code, request)):
        return RunEnding(status.state, why, Fault.ARCHITECTURE)
    return ending_from_status(status)


def ending_from_error(error: Exception) -> RunEnding:
    """Give the ending of a run that an error has stopped."""
    if not isinstance(error, TradewindError):
        return RunEnding(RunState.FAILED, f"{type(error).__name__}: {error}", Fault.INFRASTRUCTURE)
    return RunEnding(RunState.FAILED, str(error), fault_of(error))


def wasted_seconds(error: Exception) -> float:
    """Seconds of machines that were made in vain and taken back before anybody could see them: they are paid for."""
    return error.paid_seconds if isinstance(error, DeployError) else 0.0


def save_ending(folder: Path, ending: RunEnding, status: RunStatus | None) -> None:
    """Note how a run ended, in its folder; the first note stays.

    Args:
        folder: The run's folder.
        ending: The ending.
        status: The last status that its runner gave, or None.
    """
    path = folder / _ENDING_FILE
    if path.exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"ending": asdict(ending), "status": asdict(status) if status else None}))
    except OSError as error:  # machines are given back all the same
        _log.warning("how the run of %s ended cannot be noted: %s", folder, error)


def load_ending(folder: Path) -> tuple[RunEnding, RunStatus | None] | None:
    """Read the ending of a run whose machines an earlier process was giving back; None where none was."""
    try:
        noted = json.loads((folder / _ENDING_FILE).read_bytes())
        end, last = noted["ending"], noted["status"]
        ending = RunEnding(RunState(end["state"]), end["reason"], _fault(end["fault"]))
        if last is None:
            return ending, None
        facts = {
            **last,
            "state": RunState(last["state"]),
            "fault": _fault(last["fault"]),
            "usage": Usage(**last["usage"]),
        }
        return ending, RunStatus(**facts)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError) as error:
        _log.warning("how the run of %s ended cannot be read: %s", folder, error)
        return None


def _fault(value: str | None) -> Fault | None:
    return None if value is None else Fault(value)


_PATIENCE_SECONDS = 900.0
"""Machines that hold results are kept, and paid for, so long; to run the job again mostly costs more."""
_PAUSE_SECONDS = 1.0


class ResultCollector:
    """Brings what one run's ended job has left into the run's folder.

    Where a connection breaks it is tried again: the results have been paid for.

    Args:
        context: What all runs share.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._tries = 0
        self._until: float | None = None

    def needed(self, request: RunRequest) -> bool:
        """True when there is something to bring."""
        return bool(request.outputs) or type(self._context.runner).collect is not Runner.collect

    def bring(self, run: Run, request: RunRequest, status: RunStatus | None) -> None:
        """Bring logs, metrics and outputs into the run's folder; of a run that failed, as far as it goes.

        Raises:
            TradewindError: They cannot be brought, and the job went well.
        """
        assert run.handle is not None
        try:
            self._context.runner.collect(run.handle, request)
            if not isinstance(self._context.runner, HasOwnFiles):
                stage_out(request)
        except TradewindError as error:
            if status is None or status.state is RunState.DONE:
                raise
            _log.warning("run %s: %s", run.run_id, error)

    def again(self, error: Exception, run: Run, request: RunRequest) -> tuple[Run, float] | None:
        """The run's row while it waits, and when bringing is tried again; None when the run is to end for the error."""
        if not isinstance(error, UnreachableError):
            return None
        now = self._context.runner.clock.now()
        if self._until is None:
            self._until = min(now + _PATIENCE_SECONDS, request.expires)
        delay = _BACKOFF.pause(self._tries)
        self._tries += 1
        if now + delay >= self._until:
            return None
        reason = f"its results are not here yet: {error}; trying again"
        _log.warning("run %s: %s in %g s", run.run_id, reason, delay)
        return replace(run, reason=reason), now + delay

    @staticmethod
    def retry_until(first: Callable[[], None], again: Callable[[], None], until: float) -> RunEnding | None:
        """Bring what a stopped run has left; where the connection breaks, again until a moment of ``time.monotonic``.

        Returns:
            How the run ends that it cannot be brought of: an end like any other, and no error of who stops it.
        """
        attempt = first
        while True:
            try:
                attempt()
            except Exception as error:
                if not isinstance(error, UnreachableError) or time.monotonic() + _PAUSE_SECONDS > until:
                    return ending_from_error(error)
            else:
                return None
            time.sleep(_PAUSE_SECONDS)
            attempt = again


_NO_PROGRAM = 127  # as shells have it: there is no such program, or it cannot be started
_REPEAT_SECONDS = 10.0
_STUBBORN_SECONDS = 30.0
"""A job that has not ended so long after its cancellation is ended with the machines that were made for it."""


class RunLifecycle:
    """One run on its way.

    Args:
        run: The row that it begins with.
        request: The job that is to be run.
        context: The parts that all runs share.
    """

    def __init__(self, run: Run, request: RunRequest, context: RunContext) -> None:
        self.run = run
        self.request = request
        self.reported: Run | None = None
        self.cluster: Cluster | None = None
        self.status: RunStatus | None = None
        self.background_task: BackgroundTask | None = None
        self.wants_submit = False
        self.unwanted = False
        self.repeats = False
        self.ending: RunEnding | None = None
        self.retry_at = 0.0
        self.keeps: bool | None = None if context.kept is not None else False
        self.free = False
        self._context = context
        self._phase = StagePhase.BEFORE
        self._tried_to_make = self._tried_to_submit = False
        self._error_hooks_due = self._saves = True
        self._refusals = 0
        self._cancelled_at = self._destroyed_at = float("-inf")
        self._released_at = float("inf")
        self._meter = CostMeter(context.billing, makes=context.makes)
        if run.taken is not None:
            self._meter.take_over(run.taken, run.started or context.runner.clock.now())
        self._collector = ResultCollector(context)
        self._checkpoints = CheckpointKeeper(context.runner, request, context.later)
        self._made: Cluster | None = None
        self._handle: Handle | None = None

    @property
    def open(self) -> bool:
        """True until the run has ended and its machines are back."""
        return not self.run.state.ended

    @property
    def running(self) -> bool:
        """False once the runner has said that the job has ended."""
        return self.status is None or not self.status.state.ended

    @property
    def asks_to_keep(self) -> bool:
        """True while it waits for the answer whether its machines are kept for the next run."""
        return self.free and self.keeps is None and self.open

    @property
    def to_be_decided(self) -> bool:
        """True when it waits for that answer, or has it and is to go on at once."""
        return self.free and self.open and self.keeps is not False

    @property
    def machine_seconds(self) -> float:
        """Seconds that its machines have been billed for."""
        return self._meter.machine_seconds(self.run)

    @property
    def machines_expire(self) -> float | None:
        """The tag of when anyone may destroy its machines, or None where that is not known."""
        if self.run.taken is not None:
            return self.run.taken.expires
        return None if self.cluster is None else self.cluster.expires

    @property
    def _fetching(self) -> bool:
        """True while what an ended job has left is fetched, or is to be fetched again."""
        return self.run.state is RunState.COLLECTING and self._phase is StagePhase.ACT

    @property
    def _lost(self) -> bool:
        """True when the provisioner says that the machines are not what they were: no job goes on there."""
        return self.cluster is not None and self.cluster.state in (ClusterState.FAILED, ClusterState.GONE)

    def resume(self) -> None:
        """Go on with a run that an earlier process launched."""
        self._tried_to_make = self._tried_to_submit = True
        self._meter.resume(self.run)
        self.run = self._checkpoints.resumed(self.run)
        if known := load_ending(self.request.folder):
            self.ending, status = known
            self._error_hooks_due = False
            self.note(status, None)
        elif self.run.handle is not None:
            # Whatever stage the row shows, only the end of the job is left to wait for.
            self._enter(RunState.EXECUTING)
            self._phase = StagePhase.ACT
            self.cluster = Cluster(self.run.cluster, ClusterState.UNKNOWN) if self._context.gives else None
        elif self.open:
            # Making and submitting again finds what is there already.
            self.run = replace(self.run, state=RunState.PENDING)

    def note(self, status: RunStatus | None, cluster: Cluster | None) -> None:
        """Take in what the runner and the provisioner say."""
        if status is not None:
            self.status, before = status, self.run.runtime
            self.run = self._context.seen(self.run, status, going=self.ending is None)
            if self._lost and not status.state.ended:
                # A runner reckons that what it cannot reach goes on; nothing runs, or is paid for, on lost machines.
                self.run = replace(self.run, runtime=min(before, self.run.runtime))
        if cluster is not None:
            self.cluster = cluster
            self._meter.note(cluster, self._context.runner.clock.now())
            if cluster.machines:
                self.run = replace(self.run, machines=cluster.machines)
        self._charge()

    def advance(self) -> None:
        """Take all steps that can be taken now."""
        while True:
            try:
                while self.open and self._step():
                    pass
                break
            except Exception as error:
                self._meter.paid(wasted_seconds(error))
                if not isinstance(error, TradewindError):
                    # A bug in a plugin must not keep machines that cost money.
                    _log.exception("run %s", self.run.run_id)
                elif isinstance(error, MissingProgramError):
                    self.run = replace(self.run, exit_code=_NO_PROGRAM)
                elif isinstance(error, ArchitectureError):
                    self.run = replace(self.run, exit_code=CANNOT_EXECUTE)
                ending = ending_from_error(error)
                waits = self.ending is None and self._fetching and not self._lost
                again = self._collector.again(error, self.run, self.request) if waits else None
            if self.ending is not None:
                self._put_off(ending.reason)
                break
            if again is not None:
                self.run, self.retry_at = again
                break
            self.ending = ending
        self._charge()

    def stop(self, ending: RunEnding, until: float = 0.0) -> None:
        """Let it end at once, without the stages and hooks that are left; what an ended job has left is brought.

        Where the connection breaks, that is tried again ``until`` a moment of ``time.monotonic``.
        """
        if not self.unwanted:  # all is to go
            self.keeps = False
        copying = self.background_task if self._fetching else None
        if self.background_task is not None and not self.background_task.firm:
            self._context.hooks.stop(self.run.run_id)
            self.background_task = None
        elif self.background_task is not None and self.background_task.creating and self.run.state is RunState.BOOTING:
            self.note(None, self._context.abandon(self.run.run_id))
        self.wants_submit, self._error_hooks_due, self.retry_at = False, False, 0.0
        if self.ending is None and (status := self.status) is not None and status.state.ended:
            ending = ending_from_status(status)
            collecting = self.run.state is RunState.COLLECTING and self._phase is not StagePhase.AFTER
            if collecting or self.run.state is RunState.EXECUTING:
                first = copying.task.result if copying is not None else self._bring
                ending = self._collector.retry_until(first, self._bring, until) or ending
        self.ending = self.ending or ending

    def _charge(self) -> None:
        """The cost so far, whatever became of the run."""
        self._meter.tick(self._context.runner.clock.now())
        cost = self._meter.cost(self.run, self.request.offer.hourly)
        if cost is not None and cost != self.run.cost:
            self.run = replace(self.run, cost=cost)

    def _enter(self, stage: RunState) -> None:
        self._context.entered(self.run.run_id, stage)
        self.run = replace(self.run, state=stage)
        self._phase = StagePhase.BEFORE

    def _next(self) -> None:
        if self._phase is not StagePhase.AFTER:
            self._phase = StagePhase(self._phase + 1)
        elif self.run.state is RunState.COLLECTING:
            assert self.status is not None
            self.ending = ending_of_job(self.status, self.request)
        else:
            self._enter(STAGES[STAGES.index(self.run.state) + 1])

    def _step(self) -> bool:
        """Take one step; False when there is nothing to do but wait."""
        if self.background_task is not None:
            return self._land(self.background_task)
        if self.ending is not None:
            return self._release()
        if self.wants_submit:
            return False
        if self.run.state is RunState.PENDING:
            self._context.check(self.request)
            self._checkpoints.check()
            self._enter(RunState.BOOTING)
            if self.run.taken is not None:  # hooks about booting are for machines that boot
                self._phase = StagePhase.ACT
            return True
        if self._phase is StagePhase.ACT:
            return self._act()
        moment = f"{self._phase.name.lower()}_{self.run.state}"
        if self._context.hooks.has(moment):
            self._later(partial(self._context.hooks.run, moment, self.run, self.request))
        else:
            self._next()
        return True

    def _later(self, work: Callable[[], None], then: Callable[[], None] | None = None, *, firm: bool = False) -> None:
        """Do something in a thread, and ``then`` here; without it, the next step is taken."""
        task = self._context.later(work)
        self.background_task = BackgroundTask(
            task, then or self._unless_ending, firm, creating=firm and self.ending is None
        )

    def await_submission(self, task: Future[None], handle: Callable[[], Handle]) -> None:
        """Wait for a submission of many runs; ``handle`` gives this one's when ``task`` is done."""

        def submitted() -> None:
            self._handle = handle()
            self._submitted()

        self.wants_submit = False
        self._tried_to_submit = True
        self.background_task = BackgroundTask(task, submitted, firm=True, creating=True)

    def _unless_ending(self) -> None:
        if self.ending is None:
            self._next()

    def _land(self, background_task: BackgroundTask) -> bool:
        """Take in what a thread has done; False while it is at it."""
        if not background_task.task.done():
            return False
        self.background_task = None
        try:
            background_task.task.result()
            background_task.then()
        except TradewindError as error:
            if self.ending is None or not background_task.creating:
                raise
            self._meter.paid(wasted_seconds(error))
            # What was created in spite of the error is looked for by its tags.
            _log.info("run %s, which ends anyway: %s", self.run.run_id, error)
        return True

    def _act(self) -> bool:
        match self.run.state:
            case RunState.BOOTING:
                return self._boot()
            case RunState.BOOTSTRAPPING if self.request.inputs:
                self._later(partial(stage_in, self.request))
            case RunState.SUBMITTING:
                self._submit()
            case RunState.EXECUTING:
                return self._execute()
            case RunState.COLLECTING if self._collector.needed(self.request) or self._checkpoints.kept:
                if self._context.runner.clock.now() < self.retry_at:
                    return False
                self._later(self._bring, self._brought)
            case _:
                self._next()
        return True

    def _boot(self) -> bool:
        context = self._context
        if self.cluster is None and self.run.taken is not None:
            self.note(None, context.taken_over(self.run.taken.cluster))
        if self.cluster is None:
            if context.makes:
                self.run = replace(self.run, started=self.run.started or context.runner.clock.now())
            self._tried_to_make = True
            if not self._have(context.provisioner, self._make, lambda: self.note(None, self._made)):
                return True
        assert self.cluster is not None
        if self._lost and self.run.taken is not None:
            raise DeployError(f"the machines that were kept are lost: {self.cluster.reason or self.cluster.state}")
        if self._lost:
            kind = CapacityError if self.cluster.crowded else DeployError
            raise kind(f"the machines did not come up: {self.cluster.reason or self.cluster.state}")
        if self.cluster.state is not ClusterState.READY:
            return False
        self.request = context.lent(self.request, self.cluster)
        if self.run.taken is not None:
            self._enter(RunState.BOOTSTRAPPING)
        else:
            self._next()
        return True

    def _have(self, part: object, work: Callable[[], None], then: Callable[[], None]) -> bool:
        """Have a part do something, in a thread where it calls over a network; True when it is done."""
        if isinstance(part, CallsNetwork):
            self._later(work, then, firm=True)
            return False
        work()
        then()
        return True

    def _make(self) -> None:
        own = self.request
        expires = own.expires if own.machines_expire is None else own.machines_expire
        self._made = self._context.provisioner.make(own.run_id, own.owner, expires, own.offer)

    def _submit(self) -> None:
        self.run = self._checkpoints.begin(self.run)
        self.wants_submit = isinstance(self._context.runner, SubmitsTogether)
        if not self.wants_submit:
            self._tried_to_submit = True
            self._have(self._context.runner, self._hand_over, self._submitted)

    def _hand_over(self) -> None:
        self._handle = self._context.runner.submit(self.request, self.run.machines)

    def _submitted(self) -> None:
        now = self._context.runner.clock.now()
        self.run = replace(self.run, handle=self._handle, started=self.run.started or now)
        self._unless_ending()

    def _execute(self) -> bool:
        status = self.status
        if status is None or not status.state.ended:
            if self._lost and self.cluster is not None:
                reason = f"its machines are lost: {self.cluster.reason or self.cluster.state}"
                self.ending = RunEnding(RunState.PREEMPTED, reason, Fault.INFRASTRUCTURE)
            elif status is not None and status.state is RunState.EXECUTING:
                self._checkpoints.look(self.run)
            return self._lost
        if status.state in (RunState.PREEMPTED, RunState.CANCELLED):
            self.ending = ending_from_status(status)
        else:
            self._next()
        return True

    def _bring(self) -> None:
        self._checkpoints.finish(self.run)
        self._collector.bring(self.run, self.request, self.status)

    def _brought(self) -> None:
        self.run = replace(self.run, reason="")
        self._unless_ending()

    def _release(self) -> bool:
        """End what runs, give the machines back, and end the run when they are gone."""
        assert self.ending is not None
        context, ending = self._context, self.ending
        if context.runner.clock.now() < self.retry_at:
            return False
        if self._error_hooks_due:
            self._error_hooks_due = False
            unhappy = ending.state not in (RunState.DONE, RunState.CANCELLED)
            if unhappy and context.hooks.has("on_error"):
                about = replace(self.run, reason=ending.reason)
                self._later(partial(context.hooks.run, "on_error", about, self.request))
                return True
        if context.makes and not isinstance(context.runner, Simulates):
            save_ending(self.request.folder, ending, self.status)
        if not self._over(ending.reason):
            return False
        goes_on = self._checkpoints.needed(ending.state, ending.fault, unwanted=self.unwanted)
        if self._saves and goes_on and ending.state is not RunState.DONE:
            self._saves = False
            self._later(partial(self._checkpoints.save_last, self.run, told=self.repeats))
            return True
        if self.keeps is not False and not self._fit_to_keep(ending):
            self.keeps = False
        if self.keeps is None:
            self.free = True
            return False
        if not self.keeps and not self._give_back():
            return False
        self._charge()
        self._checkpoints.end(ending.state, ending.fault, unwanted=self.unwanted)
        ended = ending.of(self.run, context.runner.clock.now())
        if self.keeps:
            ended = replace(ended, lease=self._lease())
        # Noted before the row ends: a process that is killed in between forgets no upload.
        where = context.results.offer(ended, self.request) if context.results is not None else ""
        self.run = replace(ended, results=where)
        return False

    def _fit_to_keep(self, ending: RunEnding) -> bool:
        """True when its machines are as good as new ones: they are there, and the runner has nothing left on them."""
        status, cluster = self.status, self.cluster
        if status is None or not status.state.ended or status.state is RunState.PREEMPTED:
            return False
        sound = ending.state is not RunState.PREEMPTED and ending.fault in (None, Fault.JOB)
        there = cluster is not None and cluster.state is ClusterState.READY and not cluster.vanished
        return sound and there and self.machines_expire is not None

    def _lease(self) -> MachineLease:
        """Hand its machines over to those that are kept; they are on its own bill until now."""
        assert self.cluster is not None and self._context.kept is not None and self.machines_expire is not None
        self._context.kept.put(self.cluster)
        return MachineLease(
            self.run.cluster,
            self.machine_seconds,
            self.machines_expire,
            max(self._meter.until, self.run.started or 0.0),
        )

    def _over(self, reason: str) -> bool:
        """True when no job goes on, or when giving back its machines is what is left to end it."""
        now = self._context.runner.clock.now()
        self._released_at = min(self._released_at, now)
        stubborn = self._context.own and now >= self._released_at + _STUBBORN_SECONDS
        try:
            return self._end_job(reason) or self._lost or stubborn
        except TradewindError as error:
            if not self._context.own:
                raise
            _log.warning("run %s is ended with its machines: %s", self.run.run_id, error)
            return True

    def _end_job(self, reason: str) -> bool:
        """True when the runner has nothing left of the run."""
        runner, run = self._context.runner, self.run
        if self.status is not None and self.status.state.ended:
            return True
        handle = run.handle
        if handle is None and self._tried_to_submit:
            # The answer to the submission may have been lost, and the job may run all the same.
            handle = next((each for each in runner.find(self.request.owner) if each.run_id == run.run_id), None)
            self.run = replace(run, handle=handle)
        if handle is None:
            return True
        now = runner.clock.now()
        if now >= self._cancelled_at + _REPEAT_SECONDS:
            runner.cancel(handle, reason)
            self._cancelled_at = now
        self.note(runner.poll([handle]).get(handle.run_id), None)
        return self.status is not None and self.status.state.ended

    def _give_back(self) -> bool:
        """True when the provisioner confirms that the machines are gone; they may be at once."""
        provisioner, clock = self._context.provisioner, self._context.runner.clock
        if self.cluster is None and self._context.gives and self._tried_to_make:
            found = (each for each in provisioner.find(self.request.owner) if each.run_id == self.run.cluster)
            self.note(None, next(found, None))
        if self.cluster is None or self.cluster.state is ClusterState.GONE:
            return True
        if clock.now() < self._destroyed_at + _REPEAT_SECONDS:
            return False
        self._destroyed_at = clock.now()
        self._meter.note_destroy_request(self._destroyed_at)
        return self._have(provisioner, self._destroy, lambda: self.note(None, self._made)) and self._give_back()

    def _destroy(self) -> None:
        assert self.cluster is not None
        self._made = self._context.provisioner.destroy(self.cluster)
        self._meter.accepted()

    def _put_off(self, problem: str) -> None:
        """Try giving back again later, since it failed; the run stays open until it works."""
        delay = _BACKOFF.pause(self._refusals)
        self._refusals += 1
        self.retry_at = self._context.runner.clock.now() + delay
        self.run = replace(self.run, reason=f"its machines are not given back yet: {problem}")
        _log.warning("run %s: %s; trying again in %g s", self.run.run_id, self.run.reason, delay)
