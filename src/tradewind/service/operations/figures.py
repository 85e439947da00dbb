"""The figures of a server, for Prometheus: none names a tenant or a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind import __version__
from tradewind.reporting.prometheus import Exposition
from tradewind.service.http.call_metrics import LATENCY_BUCKETS
from tradewind.service.operations.supervision.process_metrics import ProcessMetrics
from tradewind.store.service.operations import ServiceMetrics
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
    """The figures of a server.

    Args:
        figures: Those of the database, which all its servers have in common.
        processes: Those of the processes that answer; where there are several, each line says of which it is.
        threads: Those of the worker: ``name``, ``silent`` (seconds) and ``restarts``.
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
