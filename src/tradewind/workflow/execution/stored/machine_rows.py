"""The machines of a run as trials and runs of its study: what ``status``, ``down`` and ``reap`` know of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tradewind.problem import Configuration, Fault, Offer, Proposal, Run, RunState, Trial, TrialState
from tradewind.workflow.execution.journal import JournalRecord, RunHistory
from tradewind.workflow.execution.options import vm_stays
from tradewind.workflow.execution.recovery import pilot_id
from tradewind.workflow.platform import Platform, Vm


class MachineRows:
    """Rows of machines, kept up to date by the records of a run's journal.

    A machine of the plan is a trial, whose number is its place; each pilot, one after the other, is a run of it. A run
    that whoever makes the machines has saved (`take`) is not changed here.

    Args:
        platform: The machines of the plan.
    """

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._places = {vm.name: place for place, vm in enumerate(platform.vms)}
        self._history = RunHistory()
        self._trials: dict[int, Trial] = {}
        self._runs: dict[str, Run] = {}
        self._changed: dict[str, None] = {}
        self._saved: set[str] = set()

    @property
    def runs(self) -> list[Run]:
        """All runs, in the order in which they were asked for."""
        return list(self._runs.values())

    def restore(self, trials: Iterable[Trial], runs: Iterable[Run]) -> None:
        """Take the rows that the store has."""
        self._trials = {trial.number: trial for trial in trials}
        self._runs = {run.run_id: run for run in runs}
        self._saved = {run.run_id for run in self._runs.values() if run.handle is not None or run.machines}

    def take(self, run: Run) -> list[Trial]:
        """Take a row that is saved by itself; returns the trial's row that goes with it."""
        self._runs[run.run_id] = run
        self._saved.add(run.run_id)
        return [self._trial(run.trial)]

    def see(self, record: JournalRecord) -> None:
        """Follow a record of the journal."""
        if record["e"] not in _OF_MACHINES:
            return
        self._history.take(record)
        at = float(record["at"])
        match record["e"]:
            case "pilot":
                self._asked(record, at)
            case "up":
                run = self._newest(record["vm"])
                if run is not None and run.state is not RunState.EXECUTING:
                    self._put(replace(run, state=RunState.EXECUTING, started=run.started or at))
            case "down" | "left":
                lost = bool(record.get("lost"))
                state = RunState.PREEMPTED if lost else RunState.DONE
                self._end(record["vm"], state, at, str(record.get("reason", "")))
            case "stop":
                self.end_all("the run has ended", at)

    def end_all(self, reason: str, at: float) -> None:
        """Let all runs that are open have ended."""
        for run in self.runs:
            if not run.state.ended:
                self._end(self._platform.vms[run.trial].name, RunState.CANCELLED, at, reason)

    def changed(self) -> tuple[list[Trial], list[Run]]:
        """The rows that have changed since the last call."""
        runs = [self._runs[name] for name in self._changed]
        self._changed = {}
        return [self._trial(number) for number in sorted({run.trial for run in runs})], runs

    # ------------------------------------------------------------------ rows

    def _asked(self, record: JournalRecord, at: float) -> None:
        header, place = self._history.header, self._places.get(record["vm"])
        if header is None or place is None:  # the numbers of an earlier run in the folder
            return
        run_id = pilot_id(header["run"], place, record["pilot"])
        if run_id not in self._runs:
            self._put(Run(run_id, place, record["pilot"]))
        if place not in self._trials:
            machine = self._platform.vms[place]
            self._trials[place] = Trial(
                place,
                Proposal(Configuration({"machine": machine.name})),
                machine_offer(machine),
                TrialState.PENDING,
                key=machine.name,
                created=at,
            )

    def _newest(self, name: str) -> Run | None:
        header, place = self._history.header, self._places.get(name)
        if header is None or place is None or name not in self._history.pilots:
            return None
        run = self._runs.get(pilot_id(header["run"], place, self._history.pilots[name]))
        return None if run is None or run.state.ended or run.run_id in self._saved else run

    def _end(self, name: str, state: RunState, at: float, reason: str) -> None:
        run = self._newest(name)
        if run is None:
            return
        seconds = max(0.0, at - run.started) if run.started is not None else 0.0
        fault = Fault.INFRASTRUCTURE if state is RunState.PREEMPTED else None
        cost = run.cost or (self._cost(run.trial) if run.started is not None else 0.0)
        self._put(
            replace(run, state=state, ended=at, runtime=seconds, cost=cost, reserved=0.0, reason=reason, fault=fault)
        )

    def _cost(self, place: int) -> float:
        """USD for the newest stay of a machine, as the run's results count it."""
        stays = [each for each in vm_stays(self._history, self._platform, self._history.last) if each[0] == place]
        return self._platform.bill(stays[-1:])

    def _put(self, run: Run) -> None:
        self._runs[run.run_id] = run
        self._changed[run.run_id] = None

    def _trial(self, number: int) -> Trial:
        """The row of a machine, as its runs are now."""
        mine = [run for run in self._runs.values() if run.trial == number]
        newest = max(mine, key=lambda run: run.attempt)
        state = TrialState.RUNNING
        if newest.state.ended:
            state = TrialState.LOST if newest.state is RunState.PREEMPTED else TrialState.SUCCEEDED
        elif newest.started is None:
            state = TrialState.PENDING
        started = [run.started for run in mine if run.started is not None]
        trial = replace(
            self._trials[number],
            state=state,
            spent=sum(run.cost for run in mine),
            attempts=len(mine),
            started=min(started, default=None),
            ended=newest.ended,
        )
        self._trials[number] = trial
        return trial


_OF_MACHINES = frozenset({"run", "session", "began", "pilot", "up", "down", "left", "stop"})


def machine_offer(machine: Vm) -> Offer:
    """The offer of a machine of a plan."""
    memory = 0.0 if machine.memory_bytes is None else machine.memory_bytes / 2**30
    kind = machine.kind or machine.name
    return Offer("plan", kind, float(machine.slots), memory, machine.price_per_hour, gpus=machine.gpus)
