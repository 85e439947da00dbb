"""App Core: one search, which asks for leave for each of its runs."""

from __future__ import annotations

import logging
import math
import queue
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.deployer.compatibility import is_simulated
from tradewind.errors import StudyBusyError, TradewindError
from tradewind.problem import Run, RunPreemption, RunRequest, Trial, TrialState
from tradewind.store.base import Change
from tradewind.store.clusters.cluster_store import JobRow
from tradewind.tenancy.code_snapshots import lay_out, run_from
from tradewind.tenancy.messages import (
    CoreEndedMessage,
    CoreOrder,
    CoreOutbox,
    EndOrder,
    GrantOrder,
    MessageBatcher,
    PreemptionDeclinedMessage,
    PreemptOrder,
    ProgressMessage,
    ResultMessage,
    RunEndedMessage,
    RunFoundMessage,
    RunRequestMessage,
    RunWithdrawalMessage,
    StudyMessage,
)
from tradewind.tenancy.preemption.policy import MOST_TAKEN
from tradewind.tenancy.resources import demand_of_run
from tradewind.utils.units import count

if TYPE_CHECKING:
    from tradewind.engine.search import RunRequestFactory, Search
    from tradewind.engine.state_machine.events import StopSearch
    from tradewind.engine.state_machine.snapshot import SearchSnapshot
    from tradewind.problem.job_spec.choices import StopSpec
    from tradewind.problem.job_spec.spec import JobSpec
    from tradewind.searcher.base import PredictsRuns
    from tradewind.store.base import Store, StudyRow

_log = logging.getLogger("tradewind.tenancy")

_IDLE = 0.25
"""Seconds between two looks at the clock while nothing runs; an order is taken at once."""

_SHOW = 0.5
"""Seconds between two messages on how far the search is."""

_REASONS = {
    "cancelled": "cancelled on its cluster",
    "failed": "",
    "left": "its cluster was stopped; it goes on when that is started again",
}
"""Why a study was interrupted, by what its search is then."""


class CoreInbox:
    """The orders of a cluster to one Core, until it takes them."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[CoreOrder] = queue.SimpleQueue()
        self._alarm: Callable[[], None] | None = None

    def put(self, order: CoreOrder) -> None:
        """Leave an order here; any thread may."""
        self._orders.put(order)
        if self._alarm is not None:
            self._alarm()

    def get(self, seconds: float = 0.0) -> CoreOrder | None:
        """The next order, or None when there is none within so many seconds."""
        try:
            return self._orders.get(timeout=seconds) if seconds > 0 else self._orders.get_nowait()
        except queue.Empty:
            return None

    def on_arrival(self, alarm: Callable[[], None]) -> None:
        """Have something called whenever an order has come, by whoever leaves it here."""
        self._alarm = alarm


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """The settings of a Core, in a form that can be sent to another process.

    Attributes:
        job: The search.
        url: Address of the store.
        data_folder: For runs, runners and refreshed prices.
        runner: The cluster's runner, as a job YAML has it under ``deploy``; the job's own without it.
        weight: The weight that its tenant has when it starts: for the runs that it finds again.
    """

    job: JobRow
    url: str
    data_folder: Path
    runner: Mapping[str, Any] | None = None
    weight: float = 1.0


def job_spec(settings: CoreSettings) -> JobSpec:
    """The specification of a submitted search, with the cluster's runner; its program is in a snapshot laid out here.

    Raises:
        SpecError: It cannot be read (any more).
        DeployError: The snapshot is not there, or cannot be laid out.
    """
    from tradewind.problem.job_spec.spec import JobSpec

    document = dict(settings.job.spec)
    if settings.runner is not None and not _keeps_own_runner(document, settings.runner):
        inner = dict(document["job"])
        inner["deploy"] = {**inner.get("deploy", {}), "runner": dict(settings.runner), "provisioner": {"use": "none"}}
        document["job"] = inner
    code: Mapping[str, str] | None = settings.job.options.get("code")
    if code is not None:
        name, workdir = f"{settings.job.id}-{code['digest'][:12]}", Path(document["job"]["job"]["workdir"])
        tree = lay_out(Path(code["archive"]), name, settings.data_folder, workdir=workdir)
        document = run_from(document, tree)
    return JobSpec.from_json(document)


def _keeps_own_runner(document: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """True for a workflow that is simulated, or that runs on the machine that is the cluster."""
    from tradewind import plugins
    from tradewind.deployer.runner.base import Simulates, ThisMachine

    inner = document["job"]
    if inner["job"].get("workflow") is None:
        return False
    own = plugins.load("runner", inner["deploy"]["runner"]["use"])
    here = issubclass(plugins.load("runner", cluster["use"]), ThisMachine)
    return issubclass(own, Simulates) or (here and issubclass(own, ThisMachine))


def with_demand_limits(make: RunRequestFactory, job: JobRow) -> RunRequestFactory:
    """Makes requests of runs that get the CPUs, memory and GPUs that their owner says, and not those of their offer."""
    demand: Mapping[str, float] = job.options.get("demand", {})

    def made(trial: Trial, run: Run, wall_seconds: float | None) -> RunRequest:
        request = make(trial, run, wall_seconds)
        limits, nodes = request.limits, max(1, request.offer.nodes)
        if cpus := demand.get("cpu"):
            limits = replace(limits, cpus=cpus / nodes)
        if memory := demand.get("memory"):
            limits = replace(limits, memory_bytes=int(memory * 2**30 / nodes))
        if (gpus := demand.get("gpu")) is not None:
            limits = replace(limits, gpus=gpus / nodes)
        return replace(request, limits=limits)

    return made


def run_core(settings: CoreSettings, inbox: CoreInbox, outbox: CoreOutbox) -> None:
    """Run a search to its end, in a thread or a process of its own; every end is reported by a `CoreEndedMessage`."""
    job = settings.job.id
    try:
        over = Core(settings, inbox, outbox).run()
    except StudyBusyError as error:  # somebody took it, which says nothing against the search
        over = CoreEndedMessage(job, "left", str(error))
    except TradewindError as error:
        over = CoreEndedMessage(job, "failed", str(error))
    except Exception as error:
        traceback.print_exc()
        over = CoreEndedMessage(job, "failed", f"unexpected {type(error).__name__}: {error}")
    outbox.put(over)


def failure_of(trials: Collection[Trial], stop: StopSearch) -> str:
    """The reason why a search failed, in words; an empty text for one that came to its end with a result.

    A search has failed where none of its trials ran to its end (they failed, were lost, or were cut short at their
    limits), where it had none, and where something has to be mended before it can go on.

    Args:
        trials: Its trials.
        stop: Its end.
    """
    if stop.trouble:
        return stop.trouble
    ended = [trial for trial in trials if trial.state.ended]
    if not ended:
        return stop.reason
    if any(trial.state is TrialState.SUCCEEDED for trial in ended):
        return ""
    reasons = Counter(trial.observation.reason for trial in ended if trial.observation is not None)
    why = f": {reasons.most_common(1)[0][0]}" if reasons else ""
    failed = all(trial.state is TrialState.FAILED for trial in ended)
    if len(ended) == 1:
        return f"its only trial {'failed' if failed else 'did not run to its end'}{why}"
    if failed:
        return f"all of {count(len(ended), 'trial')} failed{why}"
    return f"none of {count(len(ended), 'trial')} ran to its end{why}"


class Core:
    """One search on a cluster.

    Args:
        settings: What it is to search.
        inbox: Orders of the cluster.
        outbox: Where its messages go.
    """

    def __init__(self, settings: CoreSettings, inbox: CoreInbox, outbox: CoreOutbox) -> None:
        self._settings, self._inbox, self._outbox = settings, inbox, MessageBatcher(outbox)
        self._job = settings.job.id
        self._spec = job_spec(settings)
        self._waiting: dict[int, str] = {}  # trial -> request
        self._numbers: dict[str, int] = {}  # request -> trial
        self._running: dict[str, str] = {}  # run -> request
        self._asked: Counter[int] = Counter()
        self._chances: dict[int, float | None] = {}  # trial -> what its searcher said of it
        self._model: PredictsRuns | None = None
        self._opening = True
        self._taken: Counter[int] = Counter()  # trial -> how often a run of it was taken
        self._last_taken: RunPreemption | None = None
        self._end: EndOrder | None = None
        self._weight = settings.weight
        self._shown = 0.0

    def run(self) -> CoreEndedMessage:
        """Search until it is over, or the cluster ends it."""
        from tradewind import plugins
        from tradewind.searcher.base import PredictsRuns

        with self._outbox, closing(plugins.create("store", "sql", {}, url=self._settings.url)) as store:
            search = self._build(self._study(store), store)
            searcher = search.parts.searcher
            self._model = searcher if isinstance(searcher, PredictsRuns) else None
            for run in store.runs(search.study.id):
                self._count_taken(run.trial, run.preemption)
            self._outbox.put(StudyMessage(self._job, search.study.id, self._simulated))
            self._outbox.flush()
            # Who runs the cluster has its searches: what else held the study is gone, or finds out.
            search.begin(force=True)
            self._outbox.flush()  # it may have asked already, and waits for the answer next
            self._opening = False
            self._inbox.on_arrival(search.wake)
            try:
                while (stop := search.stopped) is None:
                    self._take_orders(search)
                    more = search.step(wanted=self._end is None)
                    self._outbox.flush()
                    if search.running and not more:
                        search.wait(search.patience)
                if self._end is not None and stop.interrupted:
                    reason = _REASONS[self._end.state] or self._end.reason
                    store.write(search.study.id, Change(study={"reason": reason}))
                    return CoreEndedMessage(self._job, self._end.state, reason)
                if stop.trouble:  # what the engine has stored names the command of a search without a cluster
                    store.write(search.study.id, Change(study={"reason": stop.trouble}))
            finally:
                search.end()
        failure = failure_of(search.trials.values(), stop)
        return CoreEndedMessage(self._job, "failed" if failure else "done", failure or stop.reason)

    # ------------------------------------------------------------------ the gate of the search

    def want(self, trial: Trial) -> None:
        """See `tradewind.engine.search.LaunchGate`."""
        self._asked[trial.number] += 1
        request = f"{self._job}/{trial.number}/{self._asked[trial.number]}"
        self._waiting[trial.number] = request
        self._numbers[request] = trial.number
        demand = demand_of_run(trial.offer, self._settings.job.options)
        chance, seconds = self._predict_run(trial)
        self._chances[trial.number] = chance
        longest = self._spec.longest
        how = self._taking(trial)
        self._outbox.put(RunRequestMessage(self._job, request, demand, chance, seconds, longest, *how))

    def unwant(self, number: int) -> None:
        """See `tradewind.engine.search.LaunchGate`."""
        request = self._waiting.pop(number, None)
        if request is not None:
            self._numbers.pop(request, None)
            self._outbox.put(RunWithdrawalMessage(self._job, request))

    def launched(self, trial: Trial, run: Run, *, again: bool) -> None:
        """See `tradewind.engine.search.LaunchGate`."""
        if again:
            request = f"{self._job}/{trial.number}/{run.run_id}"
            demand = demand_of_run(trial.offer, self._settings.job.options)
            self._outbox.put(RunFoundMessage(self._job, request, demand, *self._taking(trial)))
        else:
            request = self._waiting.pop(trial.number)
            self._numbers.pop(request, None)
        self._running[run.run_id] = request

    def ended(self, run_id: str) -> None:
        """See `tradewind.engine.search.LaunchGate`."""
        request = self._running.pop(run_id, None)
        if request is not None:
            self._outbox.put(RunEndedMessage(self._job, request))

    def told(self, trial: Trial) -> None:
        """See `tradewind.engine.search.LaunchGate`."""
        seen = trial.observation
        if seen is None:
            return
        good = seen.feasible and not seen.censored and seen.objective is not None
        value = self._spec.objective.loss(seen.objective) if good and seen.objective is not None else math.inf
        # What ran under an earlier Core is service, too, of which the cluster knows nothing any more.
        demand = demand_of_run(trial.offer, self._settings.job.options) if self._opening else {}
        self._outbox.put(ResultMessage(self._job, value, seen.runtime, demand, self._chances.pop(trial.number, None)))

    # ------------------------------------------------------------------ its own

    def _taking(self, trial: Trial) -> tuple[bool, int, float]:
        """Say of a run whether it may be taken for another tenant, how often its trial was, and its price."""
        saves, often = self._spec.checkpoint is not None, self._taken[trial.number]
        repeatable = saves or (self._spec.retries > 0 and often < MOST_TAKEN)
        return repeatable, often, 0.0 if self._simulated else trial.offer.hourly

    def _count_taken(self, number: int, preemption: RunPreemption | None) -> None:
        if preemption is None:
            return
        self._taken[number] += 1
        if self._last_taken is None or preemption.at >= self._last_taken.at:
            self._last_taken = preemption

    def _preempt(self, search: Search, order: PreemptOrder) -> None:
        """End a run whose place another tenant gets; what ends at this moment needs no order."""
        if order.request in self._numbers:
            self._outbox.put(PreemptionDeclinedMessage(self._job, order.request))
        run_id = next((run for run, request in self._running.items() if request == order.request), None)
        if run_id is not None and (run := search.parts.machine.runs.get(run_id)) is not None:
            self._count_taken(run.trial, order.preemption)
            search.preempt(run_id, order.preemption)

    def _predict_run(self, trial: Trial) -> tuple[float | None, float | None]:
        """The chance and the seconds that the searcher's model expects of a whole run.

        None where it has no model. A searcher that fails here is no reason to end its search.
        """
        if self._model is None or trial.proposal.fidelity < 1.0:
            return None, None
        try:
            said = self._model.predict_run(trial.configuration, self._target)
            if said is None:
                return None, None
            return float(said.chance), None if said.seconds is None else float(said.seconds)
        except Exception:
            _log.warning("search %d: its searcher could not say what it expects of a run", self._job, exc_info=True)
            return None, None

    @cached_property
    def _simulated(self) -> bool:
        """True where nobody pays the runs: they are simulated, or looked up."""
        from tradewind.engine.search_builder import study_document

        return is_simulated(study_document(self._spec))

    @cached_property
    def _stops(self) -> tuple[StopSpec, ...]:
        """The rules of the job that end the search, and the target that it was submitted with."""
        from tradewind.problem.job_spec.choices import StopSpec

        target = self._settings.job.options.get("target")
        return self._spec.stop if target is None else (*self._spec.stop, StopSpec("target", {"value": float(target)}))

    @cached_property
    def _target(self) -> float | None:
        """The loss at which the search is over; the easiest of several."""
        aims = [float(each.settings["value"]) for each in self._stops if each.name == "target"]
        return max(map(self._spec.objective.loss, aims), default=None)

    def _study(self, store: Store) -> StudyRow:
        """The study's row; a new one is stored once nothing of the search can be refused any more."""
        from tradewind.engine.search_builder import new_study, study_document
        from tradewind.problem.job_spec.spec import JobSpec

        job = self._settings.job
        if job.study_id is not None:  # it may go on with another budget
            return replace(store.study(job.study_id), spec=study_document(self._spec))
        # The problem is the one that was submitted: which engine and which copy of its folder it runs on is no matter.
        key = JobSpec.from_json(job.spec).problem_key
        return replace(new_study(self._spec, name=f"{job.tenant}/{job.name}"), problem_key=key)

    def _build(self, study: StudyRow, store: Store) -> Search:
        from tradewind.engine.search_builder import build_search

        spec = replace(self._spec, stop=self._stops)
        limits = self._requests
        folder = self._settings.data_folder
        return build_search(spec, study, store, folder, observer=self._show, gate=self, limits=limits)

    def _requests(self, make: RunRequestFactory) -> RunRequestFactory:
        """Makes requests of runs with what their owner says that they take, and with its tenant."""
        from tradewind.engine.deployment import for_tenant

        job = self._settings.job
        return for_tenant(with_demand_limits(make, job), job.tenant, lambda: self._weight)

    def _take_orders(self, search: Search) -> None:
        """Take what the cluster says; wait for it while nothing runs."""
        seconds = _IDLE if not search.running and self._end is None else 0.0
        while (order := self._inbox.get(seconds)) is not None:
            seconds = 0.0
            match order:
                case GrantOrder(request, weight):
                    self._weight = weight
                    if (number := self._numbers.get(request)) is not None:
                        search.grant(number)
                case PreemptOrder():
                    self._preempt(search, order)
                case EndOrder():
                    self._end = order

    def _show(self, snapshot: SearchSnapshot) -> None:
        now = time.monotonic()
        if now - self._shown < _SHOW and not snapshot.finished:
            return
        self._shown = now
        best = (
            None if snapshot.best is None or snapshot.best.observation is None else snapshot.best.observation.objective
        )
        document: dict[str, Any] = {
            "trials": sum(snapshot.counts.values()),
            "best": best,
            "metric": snapshot.objective.metric,
            "spent": 0.0 if self._simulated else snapshot.spent,
            "simulated": snapshot.spent if self._simulated else None,
            "budget": snapshot.budget.dollars,
            "most": snapshot.budget.trials,
            "searcher": snapshot.searcher,
            "elapsed": snapshot.elapsed,
            "message": snapshot.message,
        }
        if troubles := list(dict.fromkeys(one.trouble for one in snapshot.running if one.trouble)):
            document["trouble"] = troubles[0]
        if (last := self._last_taken) is not None:
            document["taken"] = {"runs": self._taken.total(), "tenant": last.tenant, "at": last.at}
        self._outbox.put(ProgressMessage(self._job, document))
