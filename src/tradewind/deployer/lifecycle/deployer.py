"""Takes runs from their row in the store to their end, and gives the machines back on every way."""

from __future__ import annotations

import concurrent.futures
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tradewind.deployer.environment import METRICS
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.lifecycle.kept_machines import KeptFleet
from tradewind.deployer.lifecycle.orphans import destroy_orphans
from tradewind.deployer.lifecycle.run_context import RunContext, StageListener, handle_of, ignore_stage
from tradewind.deployer.lifecycle.run_lifecycle import RunEnding, RunLifecycle
from tradewind.deployer.provisioner.base import Cluster, ClusterState, MakesMachines, Provisioner
from tradewind.deployer.result_uploads import ResultUploader
from tradewind.deployer.runner.base import AnswersFromRecords, Runner, Simulates, SubmitsTogether
from tradewind.errors import TeardownError, TradewindError
from tradewind.problem import Billing, Configuration, Handle, Offer, Run, RunOutput, RunRequest, RunState
from tradewind.utils.clock import Clock

_GLANCE_SECONDS = 0.05
_PATIENCE_SECONDS = 30.0
_RESULTS_SECONDS = 10.0
"""Whoever stops runs waits so long, for all of them, for results whose connection breaks."""


@dataclass(frozen=True, slots=True)
class FreeMachines:
    """Machines of a run that is all but over, which could serve the next one.

    Attributes:
        run_id: The run.
        seconds: Seconds that they have been billed for.
        expires: When anyone may destroy them, in seconds since the epoch.
    """

    run_id: str
    seconds: float
    expires: float


class Deployer:
    """Takes runs from their row in the store to their end, and gives the machines back on every way.

    A run goes ``pending -> booting -> bootstrapping -> submitting -> executing -> collecting -> done``, or to
    ``failed``, ``timed_out``, ``preempted`` or ``cancelled`` from any of them, with the user's hooks before and after
    each stage. It reaches an ended state only when the provisioner has confirmed that its machines are gone; until then
    its row keeps them, and giving them back is tried again and again. What takes long (hooks, staging) is done in
    threads; no run waits for another one's.

    Money: a run costs what `Billing` makes of the time it executed, at the price of its offer at launch, whatever
    its end. Setup is what ``billing`` declares, or what the provisioner measured if it makes machines. A run costs
    nothing only when nothing was ever started for it.

    Args:
        provisioner: Who makes the machines.
        runner: Who runs the job on them.
        billing: How time becomes money.
        owner: The tag of everything that is created.
        hooks: The user's hooks.
        results: Uploads what runs kept, or None.
        entered: Called for each stage that a run enters, or None.
        keeps: Whether a run whose machines could serve the next one waits for `decide` before they are given back.

    Attributes:
        kept: The machines that are kept between runs.
    """

    def __init__(
        self,
        *,
        provisioner: Provisioner,
        runner: Runner,
        billing: Billing,
        owner: str,
        hooks: Hooks | None = None,
        results: ResultUploader | None = None,
        entered: StageListener | None = None,
        keeps: bool = False,
    ) -> None:
        self.provisioner = provisioner
        self.runner = runner
        self.owner = owner
        provisioner.clock = runner.clock
        self._results = results
        simulated = isinstance(runner, Simulates)
        self.kept = KeptFleet(provisioner, lambda: self.clock, self._later, simulated=simulated)
        makes = isinstance(provisioner, MakesMachines)
        self._context = RunContext(
            provisioner,
            runner,
            billing,
            hooks or Hooks(),
            self._later,
            results,
            entered or ignore_stage,
            self.kept if keeps and makes else None,
        )
        self._lifecycles: dict[str, RunLifecycle] = {}
        self._stopping: dict[str, RunLifecycle] = {}

    @property
    def clock(self) -> Clock:
        """The clock that the runs take place on."""
        return self.runner.clock

    @property
    def active(self) -> Mapping[str, Run]:
        """The rows of the runs that have not ended, by run id."""
        return {run_id: lifecycle.run for run_id, lifecycle in self._lifecycles.items() if lifecycle.open}

    @property
    def kill_seconds(self) -> float:
        """Seconds that a run may go on after its wall time at most."""
        return self.runner.kill_seconds

    def room(self, offer: Offer, running: Sequence[Offer]) -> bool:
        """True when a run on ``offer`` may start beside those on ``running`` without disturbing them."""
        return self.runner.room(offer, running)

    def launch(self, run: Run, request: RunRequest) -> Run:
        """Start a run whose row, in state pending, is in the store already; starting it again changes nothing.

        Returns:
            Its row as it is now. What goes wrong is in the row, not raised.
        """
        return self._take(run, request, resume=False)

    def adopt(self, run: Run, request: RunRequest, unwanted: str = "", *, repeats: bool = False) -> Run:
        """Find a run again after a restart, by its handle or else by its id; there is never a second copy of it.

        Args:
            run: Its row as the store has it.
            request: The same request as at its launch.
            unwanted: Why it is to be ended, in words: nothing that is missing is made or submitted for it, and `poll`
                takes it to its end. Empty where it is to go on.
            repeats: Its trial is run again after that: what it has saved of its work stays.

        Returns:
            Its row as it is now.
        """
        return self._take(run, request, resume=True, unwanted=unwanted, repeats=repeats)

    def _take(self, run: Run, request: RunRequest, *, resume: bool, unwanted: str = "", repeats: bool = False) -> Run:
        lifecycle = self._lifecycles.get(run.run_id)
        if lifecycle is None:
            lifecycle = self._lifecycles[run.run_id] = RunLifecycle(run, request, self._context)
            if resume and lifecycle.open:
                lifecycle.resume()
                self._look([lifecycle])
                if unwanted:
                    _give_up(lifecycle, unwanted, repeats=repeats)
            lifecycle.advance()
        lifecycle.reported = lifecycle.run
        return lifecycle.run

    def poll(self) -> list[Run]:
        """Take all runs as far as they go now.

        Returns:
            The rows that changed since they were last returned; an ended row is returned once.
        """
        lifecycles = [lifecycle for lifecycle in self._lifecycles.values() if lifecycle.open]
        self._look(lifecycles)
        for lifecycle in lifecycles:
            lifecycle.advance()
        self.kept.advance()
        if self._results is not None:
            self._results.poll()
        self._submit_together([lifecycle for lifecycle in lifecycles if lifecycle.wants_submit])
        changed = [lifecycle for lifecycle in self._lifecycles.values() if lifecycle.run != lifecycle.reported]
        for lifecycle in changed:
            lifecycle.reported = lifecycle.run
        return [lifecycle.run for lifecycle in changed]

    def free_machines(self) -> list[FreeMachines]:
        """The machines of runs that wait for `decide`."""
        return [
            FreeMachines(lifecycle.run.run_id, lifecycle.machine_seconds, lifecycle.machines_expire or 0.0)
            for lifecycle in self._lifecycles.values()
            if lifecycle.asks_to_keep
        ]

    def decide(self, run_id: str, *, keep: bool) -> None:
        """Say whether the machines of a run are kept for the next one; its lease must be in the store with its end."""
        if (lifecycle := self._lifecycles.get(run_id)) is not None and lifecycle.asks_to_keep:
            lifecycle.keeps = keep

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, when woken, or after ``seconds`` on the clock."""
        lifecycles = [lifecycle for lifecycle in self._lifecycles.values() if lifecycle.open]
        if any(
            lifecycle.wants_submit or lifecycle.to_be_decided or lifecycle.run != lifecycle.reported
            for lifecycle in self._lifecycles.values()
        ):
            return
        tasks = [lifecycle.background_task.task for lifecycle in lifecycles if lifecycle.background_task is not None]
        if tasks and isinstance(self.runner, Simulates):
            # Hooks and staging take real time, in which its clock stands still.
            concurrent.futures.wait(tasks, min(seconds, _GLANCE_SECONDS), concurrent.futures.FIRST_COMPLETED)
            return
        if tasks:  # their end wakes the runner, if it can be woken
            seconds = min(seconds, _GLANCE_SECONDS)
        now = self.clock.now()
        moving = [f.cluster for f in lifecycles if f.cluster is not None and _moves(f)] + self.kept.moving
        if moving:
            seconds = min(seconds, self.provisioner.next_change(moving))
        seconds = self.kept.next_try(seconds)
        for lifecycle in lifecycles:
            if lifecycle.retry_at > now:
                seconds = min(seconds, lifecycle.retry_at - now)
        self.runner.wait([f.run.handle for f in lifecycles if f.run.handle is not None and f.running], seconds)

    def wake(self) -> None:
        """Let the `wait` that is under way return now, or else the next one at once; any thread may call it."""
        self.runner.wake()

    def abort(self, reasons: Mapping[str, str], *, repeats: bool = False) -> list[Run]:
        """Begin to end some runs that are not wanted any more, all at the same time, while others go on.

        It waits for none of them: `poll` takes them to their end, and tries again and again where machines are not
        given back. A job that has ended by itself meanwhile goes on to its own end: what it has left is paid for.

        Args:
            reasons: Why, by run id; those that are not known or have ended do not matter.
            repeats: Their trials are run again: what they have saved of their work stays.

        Returns:
            Their rows as they are now; some may have ended at once.
        """
        lifecycles = [self._lifecycles[run_id] for run_id in reasons if run_id in self._lifecycles]
        self._look([lifecycle for lifecycle in lifecycles if lifecycle.open])
        for lifecycle in lifecycles:
            _give_up(lifecycle, reasons[lifecycle.run.run_id], repeats=repeats)
        for lifecycle in lifecycles:
            lifecycle.advance()
            lifecycle.reported = lifecycle.run
        return [lifecycle.run for lifecycle in lifecycles]

    def stop(self, reasons: Mapping[str, str]) -> None:
        """Begin to end some runs, all at the same time; `cancel` then waits for each, and gets its row.

        Machines that are being made are given up at once, so that ending many runs takes as long as the slowest.

        Args:
            reasons: Why, by run id; those that are not known or have ended do not matter.
        """
        lifecycles = {run_id: self._lifecycles[run_id] for run_id in reasons if run_id in self._lifecycles}
        lifecycles = {run_id: lifecycle for run_id, lifecycle in lifecycles.items() if lifecycle.open}
        self._look(list(lifecycles.values()))
        until = time.monotonic() + _RESULTS_SECONDS
        for run_id, lifecycle in lifecycles.items():
            lifecycle.stop(RunEnding(RunState.CANCELLED, reasons[run_id]), until)
            self._stopping[run_id] = lifecycle
        for lifecycle in lifecycles.values():
            lifecycle.advance()

    def cancel(self, run_id: str, reason: str) -> Run | None:
        """End a run now and give everything back.

        Returns:
            Its ended row, in state cancelled; a run that had ended by itself before keeps its own end. None for a
            run that is not known.

        Raises:
            TeardownError: It does not end, or its machines are not given back; its row stays open.
        """
        lifecycle = self._lifecycles.get(run_id)
        if lifecycle is None:
            return None
        if lifecycle.open:
            self._look([lifecycle])
            lifecycle.stop(RunEnding(RunState.CANCELLED, reason), time.monotonic() + _RESULTS_SECONDS)
            self._finish(lifecycle)
        self._stopping.pop(run_id, None)
        lifecycle.reported = lifecycle.run
        return lifecycle.run

    def end(self, run: Run, request: RunRequest, reason: str) -> Run:
        """End a run that an earlier process launched, without going on with it, and give everything back.

        Unlike `adopt` and `cancel` this never makes or submits what is missing: what there is, is found by its tags.

        Args:
            run: Its row as the store has it.
            request: The same request as at its launch.
            reason: Why, in words.

        Returns:
            Its ended row; a run that had ended by itself before keeps its own end.

        Raises:
            TeardownError: It does not end, or its machines are not given back; its row stays open.
        """
        if run.run_id not in self._lifecycles:
            lifecycle = self._lifecycles[run.run_id] = RunLifecycle(run, request, self._context)
            lifecycle.resume()
        ended = self.cancel(run.run_id, reason)
        assert ended is not None
        return ended

    def _finish(self, lifecycle: RunLifecycle) -> None:
        """Wait until a run has ended; those that end at the same time go on meanwhile."""
        until = time.monotonic() + max(_PATIENCE_SECONDS, self.provisioner.patience_seconds)
        while True:
            going = [lifecycle, *(each for each in self._stopping.values() if each is not lifecycle and each.open)]
            for each in going:
                each.advance()
            if not lifecycle.open:
                return
            if time.monotonic() > until:
                raise TeardownError(
                    f"run {lifecycle.run.run_id} has not ended: {lifecycle.run.reason or 'it does not stop'}",
                    hint="it may still cost money; the next start of this command tries again",
                )
            if isinstance(self.runner, Simulates):
                moving = [each.cluster for each in going if each.cluster is not None and each.open]
                self.clock.sleep(max(_GLANCE_SECONDS, self.provisioner.next_change(moving)))
            else:
                handles = [each.run.handle for each in going if each.run.handle is not None and each.open]
                self.runner.wait(handles, _GLANCE_SECONDS)
            self._look([each for each in going if each.open])

    def settle(self, run_id: str) -> None:
        """Forget a run whose ended row is in the store; its folder stays."""
        lifecycle = self._lifecycles.pop(run_id, None)
        self._stopping.pop(run_id, None)
        if lifecycle is not None:
            self.runner.forget(handle_of(lifecycle.run, lifecycle.request, self.runner))

    def sweep(self, known_run_ids: set[str]) -> list[str]:
        """End and destroy everything with our owner's tag that belongs to no open run; go on with uploads.

        Args:
            known_run_ids: The runs that the store has as open, and the tags of machines that they or leases have.

        Returns:
            What was done, in words, for the log.

        Raises:
            TeardownError: Something cannot be given back.
        """
        if self._results is not None:
            self._results.resume()
        mine = {tag for each in self._lifecycles.values() for tag in (each.run.run_id, each.run.cluster)}
        return destroy_orphans(self._context, self.owner, known_run_ids | mine | self.kept.tags)

    def output(self, run: Run, request: RunRequest) -> RunOutput:
        """Give what the interpreters read of an ended run."""
        runner = self.runner
        recorded = runner.recorded_metrics(request) if isinstance(runner, AnswersFromRecords) else None
        return replace(output_of(run, request.folder, request.offer, request.configuration), recorded=recorded)

    def _submit_together(self, lifecycles: Sequence[RunLifecycle]) -> None:
        """Hand over in one call all runs that are ready for it."""
        if not lifecycles:
            return
        runner = self.runner
        assert isinstance(runner, SubmitsTogether)
        runs = [(lifecycle.request, lifecycle.run.machines) for lifecycle in lifecycles]
        answers: dict[str, Handle | TradewindError] = {}
        task = self._later(lambda: answers.update(runner.submit_all(runs)))

        def handle_of_run(run_id: str) -> Handle:
            answer = answers[run_id]
            if isinstance(answer, TradewindError):
                raise answer
            return answer

        for lifecycle in lifecycles:
            lifecycle.await_submission(task, partial(handle_of_run, lifecycle.request.run_id))

    def close(self) -> None:
        """Give back what this object holds; runs and machines are not touched. Uploads are waited for."""
        self._context.hooks.stop()
        if self._results is not None:
            self._results.close()
        self.runner.close()
        self.provisioner.close()

    def _later(self, work: Callable[[], None]) -> Future[None]:
        task: Future[None] = Future()

        def carry_out() -> None:
            try:
                work()
            except BaseException as error:
                task.set_exception(error)
            else:
                task.set_result(None)
            self.runner.wake()

        # A daemon, unlike the threads of an executor, does not keep the program from ending.
        threading.Thread(target=carry_out, name="tradewind-deployer", daemon=True).start()
        return task

    def _look(self, lifecycles: Sequence[RunLifecycle]) -> None:
        """Ask the runner and the provisioner, once for all runs, where they are."""
        handles = [f.run.handle for f in lifecycles if f.run.handle is not None and f.running]
        statuses = self.runner.poll(handles) if handles else {}
        # Those that cost nothing only matter while they are waited for.
        clusters = [
            f.cluster
            for f in lifecycles
            if f.cluster is not None and (self._context.makes or f.cluster.state is ClusterState.BOOTING)
        ]
        clusters += self.kept.polled
        polled: Mapping[str, Cluster] = self.provisioner.poll(clusters) if clusters else {}
        for lifecycle in lifecycles:
            lifecycle.note(statuses.get(lifecycle.run.run_id), polled.get(lifecycle.run.cluster))
        self.kept.note(polled)


def output_of(run: Run, folder: Path, offer: Offer, configuration: Configuration) -> RunOutput:
    """Give what the interpreters read of an ended run, in its folder.

    Args:
        run: The run.
        folder: The run's folder.
        offer: The machines, with their price at launch.
        configuration: The configuration.
    """
    try:
        truncated = bool(json.loads((folder / "result.json").read_bytes()).get("truncated", False))
    except (OSError, ValueError):  # simulated and remote runners need not write it
        truncated = False
    return RunOutput(
        stdout=folder / "stdout",
        stderr=folder / "stderr",
        metrics_file=folder / METRICS,
        folder=folder,
        exit_code=run.exit_code,
        runtime=run.runtime,
        cost=run.cost,
        offer=offer,
        configuration=configuration,
        truncated=truncated,
    )


def _give_up(lifecycle: RunLifecycle, reason: str, *, repeats: bool) -> None:
    """Let a run end, unless it ends already, or its job has ended by itself: what that has left is paid for."""
    if lifecycle.open and lifecycle.ending is None and lifecycle.running:
        lifecycle.unwanted, lifecycle.repeats = not repeats, repeats
        lifecycle.stop(RunEnding(RunState.CANCELLED, reason))


def _moves(lifecycle: RunLifecycle) -> bool:
    """True when a cluster is on its way up or down."""
    assert lifecycle.cluster is not None
    return lifecycle.ending is not None or lifecycle.cluster.state is not ClusterState.READY
