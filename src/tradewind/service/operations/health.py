"""Health of the server: liveness, readiness, and metrics for Prometheus, which never name a tenant or a user."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from tradewind import __version__
from tradewind.deployer.environment import resolve_secrets
from tradewind.errors import ForbiddenError, SignInError, TradewindError
from tradewind.reporting.prometheus import CONTENT_TYPE, Exposition
from tradewind.service.context import Context
from tradewind.service.http.call_metrics import LATENCY_BUCKETS, CallMetrics
from tradewind.service.notifications.sender import KINDS
from tradewind.service.operations.supervision.process_metrics import (
    ProcessMetrics,
    ProcessMetricsFolder,
    SupervisedProcess,
)
from tradewind.store.service.operations import OperationsStore, ServiceMetrics
from tradewind.store.service.requests import ENDED, OPEN

_HELP = {
    "tradewind_info": "1, with the version that runs.",
    "tradewind_requests": "Requests by state, in the whole database.",
    "tradewind_requests_oldest_waiting_seconds": "How long the oldest waiting request has waited.",
    "tradewind_requests_spent_dollars": "USD that all requests have cost.",
    "tradewind_requests_reserved_dollars": "USD that are set aside for requests that are carried out.",
    "tradewind_requests_ended": "Requests that are over and were started, by how they ended.",
    "tradewind_requests_duration_seconds": "Seconds from start to end of those, all together.",
    "tradewind_leases": "Requests that some server holds: alive, or silent for longer than its lease.",
    "tradewind_notices": "Notices by kind and state.",
    "tradewind_notices_overdue_seconds": "How long the oldest notice is due for.",
    "tradewind_http_request_seconds": "Seconds from a call to the end of its answer, by route.",
    "tradewind_http_responses_total": "Answers by method, route and status.",
    "tradewind_event_streams": "Event streams that are open on this server.",
    "tradewind_process_up": "1 while that further process of this server runs that answers.",
    "tradewind_process_restarts_total": "How often such a process died and was started again.",
    "tradewind_worker_up": "1 while the worker of this server runs.",
    "tradewind_worker_restarts_total": "How often the worker of this server died and was started again.",
    "tradewind_thread_silent_seconds": "How long a thread of the worker has made no turn; an upload is one turn.",
    "tradewind_thread_restarts_total": "How often the work of such a thread ended by a fault and was begun anew.",
    "process_resident_memory_bytes": "Memory of the process that answers.",
    "process_cpu_seconds_total": "Processor time of the process that answers.",
    "process_open_fds": "Files and connections that the process that answers has open.",
    "process_start_time_seconds": "When the process that answers was started, seconds since the epoch.",
}


def metrics_text(
    figures: ServiceMetrics, processes: Sequence[ProcessMetrics], threads: Sequence[Mapping[str, Any]]
) -> str:
    """Write the metrics of a server in Prometheus' text format.

    Args:
        figures: Metrics of the database, which all its servers have in common.
        processes: Metrics of the HTTP processes; where there are several, each line has the label of its process.
        threads: Threads of the worker: ``name``, ``silent`` (seconds) and ``restarts``.
    """
    written = Exposition(_HELP)
    written.add("tradewind_info", 1, version=__version__)
    _add_database(written, figures)
    for process in processes:
        _add_process(written, process, {"process": process.name} if len(processes) > 1 or process.others else {})
    for worker in [worker for process in processes for worker in process.workers]:
        written.add("tradewind_worker_up", int(worker.alive), worker=worker.name)
        written.add("tradewind_worker_restarts_total", worker.restarts, worker=worker.name)
    for other in [other for process in processes for other in process.others]:
        written.add("tradewind_process_up", int(other.alive), process=other.name.rpartition(" ")[2])
        written.add("tradewind_process_restarts_total", other.restarts, process=other.name.rpartition(" ")[2])
    for thread in threads:
        written.add("tradewind_thread_silent_seconds", thread["silent"], thread=thread["name"])
        written.add("tradewind_thread_restarts_total", thread["restarts"], thread=thread["name"])
    return written.text()


def _add_process(written: Exposition, process: ProcessMetrics, labels: Mapping[str, str]) -> None:
    for route, counts, total in process.latencies:
        written.add_histogram("tradewind_http_request_seconds", LATENCY_BUCKETS, counts, total, **labels, route=route)
    for method, route, status, count in process.counts:
        written.add("tradewind_http_responses_total", count, **labels, method=method, route=route, status=status)
    written.add("tradewind_event_streams", process.streams, **labels)
    written.add("process_resident_memory_bytes", process.memory, **labels)
    written.add("process_cpu_seconds_total", process.processor, **labels)
    written.add("process_open_fds", process.files, **labels)
    written.add("process_start_time_seconds", process.started, **labels)


def _add_database(written: Exposition, figures: ServiceMetrics) -> None:
    for state in (*OPEN, *ENDED):
        written.add("tradewind_requests", figures.requests.get(state, 0), state=state)
    written.add("tradewind_requests_oldest_waiting_seconds", figures.oldest)
    written.add("tradewind_requests_spent_dollars", figures.spent)
    written.add("tradewind_requests_reserved_dollars", figures.reserved)
    for state in ENDED:
        number, seconds = figures.durations.get(state, (0, 0.0))
        written.add("tradewind_requests_ended", number, state=state)
        written.add("tradewind_requests_duration_seconds", seconds, state=state)
    written.add("tradewind_leases", figures.held, state="alive")
    written.add("tradewind_leases", figures.lost, state="silent")
    for kind in ("email", "webhook"):
        for far in ("waiting", "sending", "sent", "failed"):
            written.add("tradewind_notices", figures.notices.get((kind, far), 0), kind=kind, state=far)
    written.add("tradewind_notices_overdue_seconds", figures.overdue)


router = APIRouter(include_in_schema=False)

_T = TypeVar("_T")
_PATIENCE = 5.0
"""Seconds that the database may take to answer."""

_FRESH = 1.0
"""Seconds that an answer is reused: frequent callers do not load the database."""

_SILENT = 300.0
"""Seconds without a turn after which a thread that sends notices counts as dead: no attempt takes as long."""

_log = logging.getLogger("tradewind.service.health")


class HealthChecks:
    """Readiness checks and metrics of a server.

    Args:
        context: The server's shared context.
        traffic: Counts of the calls to this process.
    """

    def __init__(self, context: Context, traffic: CallMetrics) -> None:
        self.children: Sequence[SupervisedProcess] = ()
        self.process_metrics: ProcessMetricsFolder | None = None
        self._context = context
        self._traffic = traffic
        self._store = OperationsStore(context.database)
        self._ready = _CachedQuery(self._check)
        self._figures = _CachedQuery(self._store.figures)
        self._threads = _CachedQuery(self._ask_threads)

    def readiness(self) -> dict[str, str]:
        """Return by name of the check what keeps the server from working; empty where nothing does."""
        found = {"serving": "the server is ending" if self._traffic.stopping.is_set() else ""}
        try:
            found |= self._ready.answer()
        except FutureTimeout:
            found["database"] = f"no answer within {_PATIENCE:.0f} s"
        except TradewindError as error:
            found["database"] = error.code
        if self._context.settings.runs:
            dead = [worker.name for worker in self._workers() if not worker.alive]
            found["worker"] = "it does not run" if dead else ""
        return found

    def complaints(self) -> dict[str, str]:
        """Return by name what does not work although the server takes calls; empty where it does."""
        if not self._context.settings.runs:
            return {}
        with suppress(TradewindError, FutureTimeout):  # that the database is away is said above
            late = [one["name"] for one in self._threads.answer() if one["silent"] > _SILENT and one["name"] in KINDS]
            return {"notices": f"nobody sends them for some time: {', '.join(late)}" if late else ""}
        return {}

    def metrics(self) -> str:
        """Return the metrics, in Prometheus' text format.

        Raises:
            StoreError: The database does not answer.
        """
        return metrics_text(self._figures.answer(), self._processes(), self._threads.answer())

    def _processes(self) -> list[ProcessMetrics]:
        """Return the metrics of all HTTP processes of this server."""
        if self.process_metrics is None:
            return [ProcessMetrics.of("1", self._traffic, self.children, ())]
        return self.process_metrics.all()

    def _workers(self) -> Sequence[SupervisedProcess]:
        """Return the workers, as known to this process, or to the one that supervises them."""
        if self.children or self.process_metrics is None:
            return self.children
        return [worker for process in self.process_metrics.all() for worker in process.workers]

    def _ask_threads(self) -> list[dict[str, Any]]:
        """Return the threads of the worker, as it reported them last."""
        now, found = time.time(), []
        for worker in self._workers():
            if worker.pid is not None:
                said = self._context.presence.of("worker", worker.pid)
                found += [{**one, "silent": one["silent"] + now - said["seen"]} for one in said.get("threads", ())]
        return found

    def _check(self) -> dict[str, str]:
        """Run the checks that take time. Their results are seen by everybody: they name no places."""
        found = {"database": "", "schema": "", "disk": ""}
        try:
            self._store.probe()
            version = self._store.version()
        except TradewindError as error:
            _log.warning("the database cannot be written: %s", error)
            found["database"] = error.code
        else:
            if version != self._store.newest:
                found["schema"] = f"the database has schema {version}, this program works with {self._store.newest}"
        least = self._context.settings.free_mib * 2**20
        for folder in self._folders():
            if (free := _free(folder)) < least:
                _log.warning("%s has %.0f MiB left", folder, free / 2**20)
                found["disk"] = "it is almost full"
        return found

    def _folders(self) -> list[Path]:
        path = self._context.database.path
        return [self._context.data_folder, *([path.parent] if path is not None else [])]


class _CachedQuery(Generic[_T]):
    """A query that runs once at a time and within a time limit, and is answered from memory where it ran just now."""

    def __init__(self, ask: Callable[[], _T]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._running: Future[_T] | None = None
        self._at = 0.0

    def answer(self) -> _T:
        with self._lock:
            done = self._running is not None and self._running.done()
            if self._running is None or (done and time.monotonic() - self._at > _FRESH):
                self._at = time.monotonic()
                self._running = Future()
                # No thread of a pool: those are waited for when the process ends.
                threading.Thread(target=self._work, args=(self._running,), daemon=True).start()
            running = self._running
        return running.result(_PATIENCE)

    def _work(self, future: Future[_T]) -> None:
        try:
            future.set_result(self._ask())
        except BaseException as error:
            future.set_exception(error)


@router.get("/healthz")
async def alive() -> Response:
    """Liveness: the server answers at all."""
    return PlainTextResponse("alive\n")


@router.get("/readyz")
def ready(request: Request) -> Response:
    """Readiness: the server can work."""
    health: HealthChecks = request.app.state.health
    checks = health.readiness()
    well = not any(checks.values())
    # Pages and runs do not wait for notices: who sends calls here goes on sending them.
    complaints = health.complaints()
    checks |= complaints
    document = {
        "ready": well,
        "degraded": any(complaints.values()),
        "checks": {name: why or "ok" for name, why in checks.items()},
    }
    return JSONResponse(document, 200 if well else 503)


@router.get("/metrics")
def metrics(request: Request) -> Response:
    """Metrics of the server, for Prometheus."""
    health: HealthChecks = request.app.state.health
    _let_in(request, request.app.state.context)
    return Response(health.metrics(), media_type=CONTENT_TYPE)


def _let_in(request: Request, context: Context) -> None:
    """Check the administrator's token; without one, let in only calls from this machine, and past no proxy.

    Raises:
        SignInError: It is not the token.
        ForbiddenError: The call is not of this machine.
    """
    reference = context.settings.metrics_token
    if reference:
        token = resolve_secrets({"metrics_token": reference})["metrics_token"]
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), token.encode()):
            raise SignInError("figures need the token that the administrator has set: metrics_token")
        return
    forwarded = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "x-real-ip"))
    if forwarded or not _is_here(request.client.host if request.client else ""):
        raise ForbiddenError("figures are for this machine only", hint="the administrator can set metrics_token")


def _is_here(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _free(folder: Path) -> float:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return float(shutil.disk_usage(folder).free)
