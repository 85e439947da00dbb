"""Runs jobs on the machines of an HTCondor pool."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tradewind import plugins
from tradewind.deployer.checkpoints import CheckpointLook
from tradewind.deployer.runner.base import (
    FolderCheckpoints,
    HasOwnFiles,
    HasOwnMachines,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    Runner,
    SubmitsTogether,
    SurvivesController,
    UsesImages,
)
from tradewind.deployer.runner.exit_reasons import lost_status
from tradewind.deployer.runner.htcondor import checkpoints
from tradewind.deployer.runner.htcondor.backlog import CondorBacklog
from tradewind.deployer.runner.htcondor.checkpoints import NO_CHECKPOINTS
from tradewind.deployer.runner.htcondor.commands import CondorCommands, JobAdCache, find_programs, run_constraint
from tradewind.deployer.runner.htcondor.event_log import JobLogSummary, read_event_log
from tradewind.deployer.runner.htcondor.exchange_folder import ExchangeFolder
from tradewind.deployer.runner.htcondor.settings import HtCondorSettings
from tradewind.deployer.runner.htcondor.status import (
    HtCondorData,
    expiry_of,
    result_of,
    status_of,
    summary_of_ad,
    why_idle,
)
from tradewind.deployer.runner.htcondor.submit_description import submit_description, text_of_ad
from tradewind.deployer.runner.run_files import RunNotes
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    TradewindError,
    UnreachableError,
)
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Machine, Offer, RunRequest, RunState, RunStatus
from tradewind.utils.units import count, parse_memory

_log = logging.getLogger("tradewind.deployer")

_GONE = (3, 4)
_FIND_SECONDS = 10.0
_FRESH = JobLogSummary()


class HtCondorRunner(
    Runner,
    CallsNetwork,
    FolderCheckpoints,
    HasOwnFiles,
    HasOwnMachines,
    LimitsCpu,
    LimitsMemory,
    LimitsTime,
    SubmitsTogether,
    SurvivesController,
    UsesImages,
):
    """Runs jobs on the machines of an HTCondor pool, many in one submission, with the job's image in docker universe.

    CPUs and memory are asked for as the offer has them; the pool holds the job to them. The job's own script ends it
    at its wall time. Checkpoints are kept, but not of jobs with an image: where files are transferred, the job sends
    them by condor_chirp while it runs, and when it is to leave its machine. A run that loses its machine is not
    started again by HTCondor: it is reported as preempted.
    """

    name = "htcondor"
    shell_variables = True
    Settings = HtCondorSettings
    needs = (find_programs,)
    settings: HtCondorSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._folder = data_folder.absolute() / "htcondor"
        self._condor = CondorCommands(self.settings.bin, self.settings.timeout, self._folder)
        self._notes = RunNotes(self._folder / "runs")
        self._job_ads = JobAdCache(self._condor, self.settings.interval)
        self._logs: dict[Path, tuple[tuple[int, int], JobLogSummary]] = {}
        self._ended: dict[str, RunStatus] = {}
        self._backlog = CondorBacklog(
            self._condor, lambda exchange: self._log_summary(exchange).cluster is not None, self.settings.full
        )

    @property
    def kill_seconds(self) -> float:
        """The grace between SIGTERM and SIGKILL, and a second, in seconds."""
        return self.settings.grace + 1.0

    def refuses_checkpoints(self, image: str | None) -> str:
        """Refuse them for a job with an image; see `KeepsCheckpoints.refuses_checkpoints`."""
        return NO_CHECKPOINTS if image else ""

    def checkpoint_parent(self, handle: Handle) -> Path | None:
        """The run's folder on the shared file system; see `FolderCheckpoints.checkpoint_parent`."""
        return HtCondorData.of(handle).place

    def look_at_checkpoint(self, handle: Handle) -> CheckpointLook:
        """Look at the checkpoint files of a run, or at those that it has sent; see `KeepsCheckpoints`."""
        if self.settings.files == "shared":
            return super().look_at_checkpoint(handle)
        exchange = _exchange(handle)
        return CheckpointLook() if exchange is None else checkpoints.look_at_checkpoint(exchange.place)

    def copy_checkpoint(self, handle: Handle, folder: Path) -> CheckpointLook:
        """Copy the checkpoint files of a run, or those that it has sent; see `KeepsCheckpoints.copy_checkpoint`."""
        if self.settings.files == "shared":
            return super().copy_checkpoint(handle, folder)
        exchange, most = _exchange(handle), parse_memory(self.settings.sent_bytes)
        return CheckpointLook() if exchange is None else checkpoints.copy_checkpoint(exchange.place, folder, most)

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Submit one run; see `Runner.submit`."""
        answer = self.submit_all([(request, machines)])[request.run_id]
        if isinstance(answer, TradewindError):
            raise answer
        return answer

    def submit_all(self, runs: Sequence[tuple[RunRequest, Sequence[Machine]]]) -> Mapping[str, Handle | TradewindError]:
        """Submit some runs as one cluster; see `SubmitsTogether.submit_all`.

        Runs that HTCondor has no room for wait here, and are submitted while `poll` is called.
        """
        answers: dict[str, Handle | TradewindError] = {}
        fresh = []
        for request, _ in runs:
            exchange = ExchangeFolder(request.folder.absolute())
            if exchange.data().cluster is not None or self._log_summary(exchange).cluster is not None:
                answers[request.run_id] = self._handle(request.run_id, exchange)
            else:
                fresh.append(request)
        if fresh:
            try:
                with self._condor.alone() as lock:
                    answers |= self._submit_alone(fresh, lock)
            except TradewindError as error:
                answers |= {each.run_id: error for each in fresh}
        return answers

    def _submit_alone(self, requests: Sequence[RunRequest], lock: int) -> dict[str, Handle | TradewindError]:
        # An earlier process has come as far as these, and may have submitted them.
        answers = self._there([each for each in requests if ExchangeFolder(each.folder.absolute()).prepared])
        ready = []
        for request in requests:
            if request.run_id in answers:
                continue
            exchange = ExchangeFolder(request.folder.absolute())
            try:
                self._notes.write(request.owner, request.run_id, {"folder": str(exchange.folder)})
                exchange.prepare(request, self.settings, self._folder / "bundles")
                ready.append(request)
            except TradewindError as error:
                answers[request.run_id] = error
        answers |= self._submit(ready, lock)
        for request in requests:
            if isinstance(answers[request.run_id], TradewindError):
                self._drop(request)
        return answers

    def _drop(self, request: RunRequest) -> None:
        ExchangeFolder(request.folder.absolute()).drop_secrets()
        self._notes.remove(request.owner, request.run_id)

    def _submit(self, requests: Sequence[RunRequest], lock: int) -> dict[str, Handle | TradewindError]:
        if not requests:
            return {}
        if self._backlog.any:
            return {each.run_id: self._let_wait(each, "") for each in requests}
        began = time.time()
        try:
            jobs = self._condor.submit(submit_description(requests, self.settings), lock)
        except (UnreachableError, MissingProgramError, CredentialsError) as error:
            return self._there_or(requests, error)
        except DeployError as error:
            if len(requests) == 1 and isinstance(error, CapacityError):
                return {requests[0].run_id: self._let_wait(requests[0], error.message)}
            if len(requests) == 1:
                return {requests[0].run_id: error}
            # One of them is refused, and with it all: halves tell which.
            middle = len(requests) // 2
            return {**self._submit(requests[:middle], lock), **self._submit(requests[middle:], lock)}
        if len(jobs) != len(requests):
            wrong = UnreachableError(f"condor_submit has made {count(len(jobs), 'job')} of {len(requests)}")
            return self._there_or(requests, wrong)
        answers: dict[str, Handle | TradewindError] = {}
        for request, (cluster, process) in zip(requests, jobs, strict=True):
            exchange = ExchangeFolder(request.folder.absolute())
            exchange.claim(cluster, process, began)
            answers[request.run_id] = self._handle(request.run_id, exchange)
        return answers

    def _let_wait(self, request: RunRequest, words: str) -> Handle | TradewindError:
        exchange = ExchangeFolder(request.folder.absolute())
        try:
            self._backlog.put(request.run_id, exchange, submit_description([request], self.settings), words)
        except DeployError as error:
            return error
        return self._handle(request.run_id, exchange)

    def _there_or(self, requests: Sequence[RunRequest], error: TradewindError) -> dict[str, Handle | TradewindError]:
        """The handles of runs that are there in spite of an error: condor_submit may have been cut off at its end."""
        there: dict[str, Handle | TradewindError] = {}
        if not isinstance(error, MissingProgramError):
            with contextlib.suppress(TradewindError):
                there = self._there(requests)
        return {each.run_id: there.get(each.run_id, error) for each in requests}

    def _there(self, requests: Sequence[RunRequest]) -> dict[str, Handle | TradewindError]:
        """The handles of those of some runs that HTCondor has, found by their tags.

        Raises:
            UnreachableError: The queue cannot be queried.
        """
        if not requests:
            return {}
        found: dict[str, Handle | TradewindError] = {}
        for ad in self._condor.queue(" || ".join(f"({run_constraint(each.run_id)})" for each in requests)):
            request = next(each for each in requests if each.run_id == ad.get("TradewindRun"))
            exchange = ExchangeFolder(request.folder.absolute())
            exchange.claim(int(ad["ClusterId"]), int(ad["ProcId"]), time.time())
            found[request.run_id] = self._handle(request.run_id, exchange)
        for request in requests:
            exchange = ExchangeFolder(request.folder.absolute())
            if request.run_id not in found and self._log_summary(exchange).cluster is not None:
                found[request.run_id] = self._handle(request.run_id, exchange)
        return found

    def _handle(self, run_id: str, exchange: ExchangeFolder, ad: Mapping[str, Any] | None = None) -> Handle:
        data = exchange.data()
        if data.cluster is None:
            summary = self._log_summary(exchange)
            if summary.cluster is not None:
                data = replace(data, cluster=summary.cluster, process=summary.process)
        if data.cluster is None and exchange.waits:
            data = data.waiting()
        if ad is not None:
            data = replace(data, cluster=ad.get("ClusterId"), process=ad.get("ProcId"))
            data = replace(data, owner=str(ad.get("TradewindOwner", "")), expires=expiry_of(ad))
        return data.handle(run_id, self.name)

    def refuses(self, offer: Offer, *, given: bool) -> str:
        """Refuse several machines for one job; see `Runner.refuses`."""
        return f"it runs a job on one machine, not on {offer.nodes}" if offer.nodes > 1 else ""

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs, from their event logs and one condor_q for all; see `Runner.poll`."""
        found = {handle.run_id: self._ended[handle.run_id] for handle in handles if handle.run_id in self._ended}
        left = []
        for handle in handles:
            exchange = _exchange(handle)
            if handle.run_id in found or (exchange and self._log_summary(exchange).final):
                continue
            may = not HtCondorData.of(handle).look
            waits = self._backlog.status(handle.run_id, exchange, may=may) if exchange else None
            if waits is None:
                left.append((handle, exchange))
            else:
                found[handle.run_id] = waits
        if left:
            urgent = any(exchange is None or self._log_summary(exchange).cluster is None for _, exchange in left)
            self._job_ads.look([handle for handle, _ in left], urgent=urgent)
        for handle in handles:
            if handle.run_id not in found:
                status = found[handle.run_id] = self._status(handle)
                if status.state.ended:
                    self._ended[handle.run_id] = status
                    self._job_ads.forget(handle.run_id)
                    self._backlog.hasten()
        self._backlog.push()
        return found

    def _status(self, handle: Handle) -> RunStatus:
        exchange = _exchange(handle)
        summary: JobLogSummary | None = self._log_summary(exchange) if exchange else _FRESH
        if summary is not None and not summary.final:
            summary = self._asked(handle, exchange, summary)
        if summary is None and exchange is not None and result_of(exchange.result).get("code", "").isdigit():
            # HTCondor has forgotten it, but its own script has written how it ended.
            summary = JobLogSummary(state="terminated", code=int(result_of(exchange.result)["code"]))
        if summary is None:
            return lost_status("neither HTCondor's queue nor its history knows it")
        if exchange is None:
            # Only its tags are known.
            return status_of(summary, {}, "", None, "") if summary.final else RunStatus(RunState.EXECUTING)
        # In a shared folder the job itself removes them, once it has read them; others have got a copy by now.
        if summary.final or (summary.state == "running" and self.settings.files != "shared"):
            exchange.drop_secrets()
        data = HtCondorData.of(handle)
        program, wall = data.program, data.wall
        if not summary.final:
            status = status_of(summary, {}, program, wall, None)
            waits = status.state is RunState.SUBMITTING
            return replace(status, reason=why_idle(self._job_ads.said(handle))) if waits else status
        return status_of(summary, result_of(exchange.result), program, wall, exchange.cancelled)

    def _asked(self, handle: Handle, exchange: ExchangeFolder | None, summary: JobLogSummary) -> JobLogSummary | None:
        """The state of a run by the queue, or else by the history, when its log has no end; None: it is gone."""
        alive = summary if summary.cluster is not None else JobLogSummary(state="running")
        ad = self._job_ads.said(handle)
        if ad is not None:
            listed = summary_of_ad(ad)
            return listed if listed.final or summary.cluster is None else summary
        if not self._job_ads.missing(handle):
            return alive
        if exchange is not None and self._log_summary(exchange).final:
            return self._log_summary(exchange)
        asked, ad = self._job_ads.remembered(handle)
        if not asked:
            return alive
        return summary_of_ad(ad) if ad is not None else None

    def _log_summary(self, exchange: ExchangeFolder) -> JobLogSummary:
        """The state of a run by its event log, which is read again only when it has changed."""
        try:
            facts = exchange.log.stat()
        except OSError:
            return _FRESH
        key = (facts.st_size, facts.st_mtime_ns)
        before = self._logs.get(exchange.log)
        if before is None or before[0] != key:
            before = self._logs[exchange.log] = (key, read_event_log(exchange.log))
        return before[1]

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when an event log has grown, or after ``seconds``."""
        until = time.monotonic() + seconds
        logs = [exchange for handle in handles if (exchange := _exchange(handle)) is not None]
        before = [self._log_summary(exchange) for exchange in logs]
        # Hundreds of runs are looked at less often, so that looking takes no more of a CPU.
        pause = 0.05 + 0.0005 * len(logs)
        while not any(summary.final for summary in before):
            left = until - time.monotonic()
            if left <= 0:
                return
            if self.doze(min(left, pause)):
                return
            if [self._log_summary(exchange) for exchange in logs] != before:
                return

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """Remove a run's job; see `Runner.cancel`."""
        exchange = _exchange(handle)
        if exchange is not None:
            if self._log_summary(exchange).state == "terminated":
                return
            exchange.cancel(reason)
            if exchange.waits and self._backlog.withdraw(handle.run_id, exchange, reason, _FIND_SECONDS):
                return
            exchange.drop_secrets()
        self._condor.remove(run_constraint(handle.run_id))

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all: those noted here, and those that HTCondor has by tag; see `Runner.find`.

        Raises:
            UnreachableError: HTCondor cannot be queried.
        """
        found = {}
        for note in self._notes.all(owner):
            data = HtCondorData.of(self._handle(note.run_id, ExchangeFolder(Path(note.content["folder"]))))
            found[note.run_id] = replace(data, owner=note.owner).handle(note.run_id, self.name)
        # A condor_submit that outlived its caller has to be over before one can say what there is.
        with self._condor.alone(_FIND_SECONDS):
            tag = "TradewindRun =!= undefined" if owner is None else f"TradewindOwner == {text_of_ad(owner)}"
            ads = self._condor.queue(tag)
        for ad in ads:
            known = "TradewindRun" in ad and "TradewindFolder" in ad
            if known and int(ad.get("JobStatus", 0)) not in _GONE:
                exchange = ExchangeFolder(Path(str(ad["TradewindFolder"])))
                found[str(ad["TradewindRun"])] = self._handle(str(ad["TradewindRun"]), exchange, ad)
        if owner is not None:
            return list(found.values())
        # Who looks at everybody's runs submits none of them.
        return [replace(HtCondorData.of(each), look=True).handle(each.run_id, self.name) for each in found.values()]

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Bring the files that the job made into the run's folder; see `Runner.collect`."""
        exchange = ExchangeFolder(request.folder.absolute())
        if request.checkpoint is not None and "unsent" in result_of(exchange.result):
            _log.warning("run %s: its last checkpoint could not be sent here (condor_chirp)", request.run_id)
        exchange.collect(request, self.settings, self._folder / "back")

    def forget(self, handle: Handle) -> None:
        """Remove the job, where it is still in the queue, and the files that were kept for it; see `Runner.forget`."""
        exchange = _exchange(handle)
        state = self._log_summary(exchange).state if exchange is not None else ""
        if state not in ("terminated", "removed"):
            with contextlib.suppress(TradewindError):
                self._condor.remove(run_constraint(handle.run_id))
        if exchange is not None:
            exchange.drop_secrets()
            exchange.drop_archives()
            self._logs.pop(exchange.log, None)
        self._ended.pop(handle.run_id, None)
        self._backlog.drop(handle.run_id)
        self._job_ads.forget(handle.run_id)
        self._notes.remove(HtCondorData.of(handle).owner, handle.run_id)

    def close(self) -> None:
        """Stop submitting runs that wait; other runs are not touched."""
        self._backlog.close()


def _exchange(handle: Handle) -> ExchangeFolder | None:
    place = HtCondorData.of(handle).place
    return ExchangeFolder(place) if place is not None else None
