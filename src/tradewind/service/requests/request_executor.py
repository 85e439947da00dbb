"""Executes one request, from its claim to its end, in a thread of its own."""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tradewind import plugins
from tradewind.deployer.compatibility import is_simulated
from tradewind.deployer.runner.base import SurvivesController, ThisMachine
from tradewind.engine.cleanup.study_teardown import tear_down_study, teardown_error
from tradewind.engine.deployment import for_tenant
from tradewind.engine.proposals import FixedSearcher
from tradewind.engine.search import RunRequestFactory, Search
from tradewind.engine.search_builder import build_problem, build_search, new_study
from tradewind.engine.state_machine.snapshot import SearchSnapshot
from tradewind.errors import DeployError, StoreError, StudyBusyError, TeardownError, TradewindError
from tradewind.problem import Budget, RunState, Trial
from tradewind.problem.job_spec.spec import JobSpec
from tradewind.problem.offer import round_money
from tradewind.service.requests.local_slots import LocalSlotPermits, LocalSlots
from tradewind.service.requests.progress_writer import RequestProgressWriter
from tradewind.service.requests.request_planner import RequestPlanner, code_folder
from tradewind.service.requests.state import RequestOutcome, StageEntry, outcome_of_run, outcome_of_search
from tradewind.store.base import Change, Store, StudyRow
from tradewind.store.service.claims import Claim, ClaimStore
from tradewind.store.service.request_values import RequestIntent
from tradewind.utils.retries import Backoff

_SLOT_POLL_SECONDS = 0.05
_BACKOFF = Backoff((1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 60.0, 60.0, 60.0))
"""Seconds between attempts to begin where the machines' fault kept it from that.

What a request has left that may still cost money is given back at this pace, too, the last one for as long as it takes.
"""

_CANCELLED = RequestOutcome("cancelled", "cancelled; what it had used by then is paid")

_log = logging.getLogger("tradewind.service.requests")


@dataclass(frozen=True)
class ExecutorDependencies:
    """Services and tables needed to execute a request.

    Attributes:
        claims: The table of claimed requests.
        studies: The store of studies.
        planner: Makes specifications.
        local_slots: The slots of this machine.
        data_folder: Folder for runs, runners and refreshed prices.
        remove: Removes a request that its owner wants deleted.
    """

    claims: ClaimStore
    studies: Store
    planner: RequestPlanner
    local_slots: LocalSlots
    data_folder: Path
    remove: Callable[[int], None]


class RequestExecutor:
    """Executor of one request.

    Args:
        claim: The request.
        tools: Services and tables that it needs.
        ended: Called when it is over here, whatever became of it.
    """

    def __init__(self, claim: Claim, tools: ExecutorDependencies, ended: Callable[[], None]) -> None:
        self.claim = claim
        self.wanted: RequestIntent = claim.row.wanted
        self.lost = False
        self.leaving = False
        self.over = False
        self._tools = tools
        self._ended = ended
        self._progress_writer = RequestProgressWriter(claim, tools.claims)
        self._search: Search | None = None
        self._verdict: RequestOutcome | None = None  # how it ends once nothing of it is left
        self._thread = threading.Thread(target=self._run, name=f"tradewind-request-{claim.row.id}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait until it is over here."""
        self._thread.join(seconds)

    # ------------------------------------------------------------------ from the claim to the end

    def _run(self) -> None:
        number = self.claim.row.id
        try:
            self._attempts()
        except StudyBusyError as error:
            _log.warning("request %d is left: %s", number, error)
        except StoreError as error:
            # Nothing can be written now: its lease runs out, and whoever can write takes it over.
            _log.error("request %d is left: %s", number, error)
        finally:
            self.over = True
            self._ended()

    def _attempts(self) -> None:
        for attempt in itertools.count():
            try:
                if self._verdict is None:
                    self._carry_out()
                else:
                    self._wind_down(self._verdict)
                return
            except StoreError:
                raise
            except TradewindError as error:
                end, again = _outcome_of_error(error), isinstance(error, DeployError) and error.retryable
                left = self._leaves(error)
            except Exception as error:
                _log.exception("request %d", self.claim.row.id)
                words = f"unexpected {type(error).__name__}: {error}"
                end, again = (
                    RequestOutcome("failed", words, "tell the administrator: the server's log has more of it"),
                    False,
                )
                left = self._leaves(error)
            if not again or self.wanted != "run" or attempt >= len(_BACKOFF.pauses):
                verdict = self._verdict or (_CANCELLED if left and self.wanted != "run" else end)
                if not left:
                    self._finish(verdict)
                    return
                self._verdict = verdict
            pause = _BACKOFF.pause(attempt)
            _log.warning("request %d: %s; tried again in %g s", self.claim.row.id, end.problem, pause)
            self._progress_writer.waits(f"{end.problem}; tried again in {pause:g} s")
            if not self._pause(pause):
                return

    def _leaves(self, error: Exception) -> bool:
        """True where an attempt that ended with an error has left something that may still cost money."""
        study = self._progress_writer.study_id
        if study is None:
            return False
        return isinstance(error, TeardownError) or bool(self._tools.studies.runs(study, open_only=True))

    def _wind_down(self, verdict: RequestOutcome) -> None:
        """End what is still there, and with it the request.

        Raises:
            TeardownError: Something is still there.
        """
        if self.lost:
            raise StudyBusyError(f"request {self.claim.row.id} was taken over by another process")
        tools = self._tools
        assert self._progress_writer.study_id is not None
        study = tools.studies.study(self._progress_writer.study_id)
        ended = tear_down_study(tools.studies, study, tools.data_folder, reason=verdict.problem, force=True)
        if ended.problems:
            raise teardown_error(ended.problems)
        self._finish(verdict)

    def _pause(self, seconds: float) -> bool:
        """Wait, unless something else is wanted than before; False when it was left meanwhile."""
        until, wanted = time.monotonic() + seconds, self.wanted
        while time.monotonic() < until and self.wanted == wanted:
            if self.lost:
                return False
            if self.leaving:
                self._progress_writer.flush(leave=True)
                return False
            time.sleep(0.1)
        return True

    def _carry_out(self) -> None:
        row = self.claim.row
        if self._progress_writer.study_id is None and self.wanted != "run":
            self._finish(RequestOutcome("cancelled", "cancelled before it began"))
            return
        anew = self._progress_writer.study_id is None
        study, spec = self._study()  # a new one is not stored yet
        self._progress_writer.simulated = is_simulated(study.spec)
        trials = [] if anew else self._tools.studies.trials(study.id)
        before = int(self._progress_writer.plan.get("before", 0))
        if row.kind == "run" and sum(trial.state.ended for trial in trials) > before:
            self._finish_run(study, trials)  # an earlier process was killed before it could say so
            return
        if row.kind == "search" and study.state == "finished" and not self._progress_writer.plan.get("again"):
            self._finish(self._end_of_search(study, study.reason))
            return
        gate = LocalSlotPermits(self._tools.local_slots, row.id, row.tenant) if _runs_locally(spec) else None
        search = self._search = self._assemble(study, spec, trials, gate)
        if gate is not None:
            gate.use(search.runner)
        try:
            self._drive(search, spec, gate)
        finally:
            if gate is not None:
                gate.close()

    def _drive(self, search: Search, spec: JobSpec, gate: LocalSlotPermits | None) -> None:
        stays = issubclass(plugins.load("runner", spec.runner.name), SurvivesController)
        # Our claim is younger than that of any process that may still hold the study.
        search.begin(force=True, wanted=self._goes_on(stays))
        try:
            self._progress_writer.begins()
            while search.stopped is None:
                if self.lost or (self.leaving and stays):
                    search.leave()
                    break
                for number in gate.granted() if gate is not None else ():
                    search.grant(number)
                held_up = gate is not None and gate.waits and not search.running
                if held_up:
                    self._progress_writer.waits("waits for room on this machine")
                more = search.step(wanted=self._goes_on(stays))
                if gate is not None:
                    gate.flush()
                if not more:
                    search.wait(_SLOT_POLL_SECONDS if gate is not None and gate.waits else search.patience)
        except StoreError:
            if stays:
                search.leave()  # nothing is wrong with its runs: whoever can write again goes on with them
            raise
        finally:
            search.end()
        self._conclude(search)

    def _goes_on(self, stays: bool) -> bool:
        """True where runs are to go on; those that survive their controller do so while they are left, too."""
        return self.wanted == "run" and (stays or not self.leaving)

    def _conclude(self, search: Search) -> None:
        stopped = search.stopped
        if self.lost:
            raise StudyBusyError(f"request {self.claim.row.id} was taken over by another process")
        if stopped is None:
            self._progress_writer.flush(leave=True)
        elif stopped.interrupted and self.wanted == "run":
            self._progress_writer.requeue("the server ended, and with it the run: it begins anew on the next one")
        elif stopped.interrupted:
            self._finish(_CANCELLED)
        elif self.claim.row.kind == "run":
            study, trials = search.study, [search.trials[number] for number in sorted(search.trials)]
            if sum(trial.state.ended for trial in trials) > int(self._progress_writer.plan.get("before", 0)):
                self._finish_run(study, trials)
            else:
                hint = "give it more money, or ask for cheaper machines"
                self._finish(RequestOutcome("failed", stopped.reason, hint))
        else:
            self._finish(self._end_of_search(search.study, stopped.reason))

    # ------------------------------------------------------------------ its parts

    def _study(self) -> tuple[StudyRow, JobSpec]:
        """Return the study of the request; `_assemble` names a new one in the row before anything is created."""
        row, tools = self.claim.row, self._tools
        if self._progress_writer.study_id is not None:
            study = tools.studies.study(self._progress_writer.study_id)
            spec = JobSpec.from_json(study.spec)
            if not (spec.base.exists() and spec.job.workdir.exists()):
                tools.planner.prepare(row)  # another machine's folder: its files and its code are laid out here, too
            return study, spec
        spec, configuration = tools.planner.prepare(row)
        if configuration is not None:
            self._progress_writer.plan["configuration"] = dict(configuration)
            if expected := tools.planner.expect(row, spec, configuration):
                self._progress_writer.plan["predicted"] = expected
        suffix = "/runs" if row.kind == "run" else ""
        return new_study(spec, name=f"{row.tenant}/{spec.name}", suffix=suffix), spec

    def _assemble(self, study: StudyRow, spec: JobSpec, trials: list[Trial], gate: LocalSlotPermits | None) -> Search:
        row, tools = self.claim.row, self._tools
        problem = build_problem(spec, tools.data_folder)
        dollars = min((each for each in (row.reserved, spec.budget.dollars) if each), default=None)
        observer, keep = self._show, self._progress_writer.name_study
        if row.kind == "search":
            problem = replace(problem, budget=replace(spec.budget, dollars=dollars))
            return build_search(
                spec, study, tools.studies, tools.data_folder,
                problem=problem, observer=observer, gate=gate, entered=self._entered,
                limits=self._for_tenant, keep=keep,
            )  # fmt: skip
        problem = replace(problem, budget=Budget(dollars=dollars))
        chosen = problem.space.check(dict(self._progress_writer.plan["configuration"]))
        # A trial that has not ended is gone on with, and not proposed a second time.
        searcher = FixedSearcher(problem, chosen, asked=any(not trial.state.ended for trial in trials))
        return build_search(
            spec, study, tools.studies, tools.data_folder,
            problem=problem, searcher=searcher, rules=(), observer=observer, gate=gate, entered=self._entered,
            limits=self._for_tenant, keep=keep,
        )  # fmt: skip

    def _for_tenant(self, make: RunRequestFactory) -> RunRequestFactory:
        """Makes requests of runs with the tenant of this request and its weight of then."""
        name, weights = self.claim.row.tenant, self._tools.local_slots.weights
        return for_tenant(make, name, lambda: weights.get(name, 1.0))

    def _entered(self, run_id: str, stage: RunState) -> None:
        self._progress_writer.passed(StageEntry(run_id, stage.value, time.time()))

    def _show(self, snapshot: SearchSnapshot) -> None:
        assert self._search is not None
        self._progress_writer.snapshot(snapshot, self._search.trials)

    # ------------------------------------------------------------------ ends

    def _finish_run(self, study: StudyRow, trials: list[Trial]) -> None:
        trial = [each for each in trials if each.state.ended][-1]
        runs = self._tools.studies.runs(study.id)
        last = [run for run in runs if run.trial == trial.number][-1:]
        spent = round_money(sum(run.cost for run in runs))
        self._finish(outcome_of_run(trial, last[0] if last else None), trial, spent)

    def _end_of_search(self, study: StudyRow, reason: str) -> RequestOutcome:
        summary = self._tools.studies.summaries([study.id])[0]
        return outcome_of_search(reason, sum(summary.counts.values()), found=summary.best is not None)

    def _finish(self, end: RequestOutcome, trial: Trial | None = None, spent: float | None = None) -> None:
        if spent is None and self._progress_writer.study_id is not None:
            spent = self._tools.studies.summaries([self._progress_writer.study_id])[0].spent
        if self._progress_writer.study_id is not None:
            self._explain(self._progress_writer.study_id, end)
            if is_simulated(self._tools.studies.study(self._progress_writer.study_id).spec):
                spent = 0.0  # nobody has paid it: neither totals nor the tenant's quota count it
        # Laid out again for a retry, from the snapshot; before the end is written, after which that may begin.
        shutil.rmtree(code_folder(self._tools.data_folder, self.claim.row), ignore_errors=True)
        if self._progress_writer.finish(end, spent or 0.0, trial=trial) == "delete":
            self._tools.remove(self.claim.row.id)

    def _explain(self, study_id: int, end: RequestOutcome) -> None:
        """Record in the study why it was interrupted: no command of its owner's goes on with it."""
        if self._tools.studies.study(study_id).state == "interrupted":
            own = "deleted" if self.wanted == "delete" else "cancelled"
            reason = f"its request was {own}" if end.state == "cancelled" else end.problem
            self._tools.studies.write(study_id, Change(study={"reason": reason}))


def _runs_locally(spec: JobSpec) -> bool:
    return issubclass(plugins.load("runner", spec.runner.name), ThisMachine)


def _outcome_of_error(error: TradewindError) -> RequestOutcome:
    return RequestOutcome("failed", error.message, error.hint or "")
