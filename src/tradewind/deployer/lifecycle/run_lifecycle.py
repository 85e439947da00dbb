"""One run on its way: the steps from its row to its end, each of which can be taken again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from tradewind.deployer.collecting import ResultCollector
from tradewind.deployer.ended import (
    RunEnding,
    ending_from_error,
    ending_from_status,
    load_ending,
    save_ending,
    wasted_seconds,
)
from tradewind.deployer.lifecycle.run_context import STAGES, BackgroundTask, RunContext, StagePhase, backoff_seconds
from tradewind.deployer.meter import CostMeter
from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.runner.base import Simulates, SubmitsTogether
from tradewind.deployer.staging import stage_in
from tradewind.errors import CapacityError, DeployError, MissingProgramError, TradewindError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Fault, Handle, Run, RunRequest, RunState, RunStatus

_log = logging.getLogger("tradewind.deployer")

_NO_PROGRAM = 127  # as shells have it: there is no such program, or it cannot be started
_REPEAT_SECONDS = 10.0
_STUBBORN_SECONDS = 30.0
"""A job that has not ended so long after it was told to is ended with the machines that were made for it."""


class RunLifecycle:
    """One run on its way.

    Args:
        run: Its row.
        request: What is to be run.
        context: What all runs share.
    """

    def __init__(self, run: Run, request: RunRequest, context: RunContext) -> None:
        self.run = run
        self.request = request
        self.reported: Run | None = None
        self.cluster: Cluster | None = None
        self.status: RunStatus | None = None
        self.background_task: BackgroundTask | None = None
        self.wants_submit = False
        self.ending: RunEnding | None = None
        self.retry_at = 0.0
        self._context = context
        self._phase = StagePhase.BEFORE
        self._tried_to_make = self._tried_to_submit = False
        self._error_hooks_due = True
        self._refusals = 0
        self._cancelled_at = self._destroyed_at = float("-inf")
        self._released_at = float("inf")
        self._meter = CostMeter(context.billing, makes=context.makes)
        self._collector = ResultCollector(context)
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
        if known := load_ending(self.request.folder):
            self.ending, status = known
            self._error_hooks_due = False
            self.note(status, None)
        elif self.run.handle is not None:
            # Whatever stage the row shows, only the end of the job is left to wait for.
            self._enter(RunState.EXECUTING)
            self._phase = StagePhase.ACT
            self.cluster = Cluster(self.run.run_id, ClusterState.UNKNOWN) if self._context.gives else None
        elif self.open:
            # Making and submitting again finds what is there already.
            self.run = replace(self.run, state=RunState.PENDING)

    def note(self, status: RunStatus | None, cluster: Cluster | None) -> None:
        """Take in what the runner and the provisioner say."""
        if status is not None:
            self.status = status
            self.run = self._context.seen(self.run, status, going=self.ending is None)
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
            self.ending = ending_from_status(self.status)
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
            self._enter(RunState.BOOTING)
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
        """A submission of many runs is on its way; ``handle`` gives this one's when ``task`` is done."""

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
            case RunState.COLLECTING if self._collector.needed(self.request):
                if self._context.runner.clock.now() < self.retry_at:
                    return False
                self._later(self._bring, self._brought)
            case _:
                self._next()
        return True

    def _boot(self) -> bool:
        context = self._context
        if self.cluster is None:
            if context.makes:
                self.run = replace(self.run, started=self.run.started or context.runner.clock.now())
            self._tried_to_make = True
            if not self._have(context.provisioner, self._make, lambda: self.note(None, self._made)):
                return True
        assert self.cluster is not None
        if self._lost:
            kind = CapacityError if self.cluster.crowded else DeployError
            raise kind(f"the machines did not come up: {self.cluster.reason or self.cluster.state}")
        if self.cluster.state is not ClusterState.READY:
            return False
        self.request = context.lent(self.request, self.cluster)
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
        self._made = self._context.provisioner.make(own.run_id, own.owner, own.expires, own.offer)

    def _submit(self) -> None:
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
            return self._lost
        if status.state in (RunState.PREEMPTED, RunState.CANCELLED):
            self.ending = ending_from_status(status)
        else:
            self._next()
        return True

    def _bring(self) -> None:
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
        if not self._over(ending.reason) or not self._give_back():
            return False
        self._charge()
        ended = ending.of(self.run, context.runner.clock.now())
        # Noted before the row ends: a process that is killed in between forgets no upload.
        where = context.results.offer(ended, self.request) if context.results is not None else ""
        self.run = replace(ended, results=where)
        return False

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
            found = (each for each in provisioner.find(self.request.owner) if each.run_id == self.run.run_id)
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
        """Giving back failed: it is tried again later, and the run stays open until it works."""
        delay = backoff_seconds(self._refusals)
        self._refusals += 1
        self.retry_at = self._context.runner.clock.now() + delay
        self.run = replace(self.run, reason=f"its machines are not given back yet: {problem}")
        _log.warning("run %s: %s; trying again in %g s", self.run.run_id, self.run.reason, delay)
