"""Processor time of the worker for a request of /bin/true: one process carries some out, one after the other waits.

python benchmarks/service_load/worker.py [--folder FOLDER] [--requests 200]

The program's own process is not counted, nor is submitting; requests of ten tenants are carried out four at a time.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import threading
import time
from pathlib import Path

from prepare import principal

from tradewind.deployer.runner.warden.client import keep_wardens
from tradewind.service.context import Context, open_context
from tradewind.service.operations import preload
from tradewind.service.requests.worker import RequestWorker
from tradewind.service.settings import ServiceSettings

RUNS, FIRST = 4, 20
"""Requests at a time, and those that are carried out before it counts."""


def submitted(context: Context, count: int) -> list[int]:
    people = [principal(context, f"user{number}") for number in range(60)]
    asked = [{"application": "quick", "parameters": {"size": 1 + number % 97}} for number in range(count)]
    return [context.requests.submit(people[i % 60], document).id for i, document in enumerate(asked)]


def carried_out(context: Context, numbers: list[int]) -> float:
    """Processor seconds of this process until all are done."""
    stop, worker, before = threading.Event(), RequestWorker(context), resource.getrusage(resource.RUSAGE_SELF)
    thread = threading.Thread(target=worker.run, args=(stop, 5.0))
    thread.start()
    while {context.requests.store.get(number).state for number in numbers[-8:]} != {"done"}:
        time.sleep(0.5)
    stop.set()
    thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/tradewind_service_load"))
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    copy = options.folder / "worker"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    shutil.copy(options.folder / "tradewind.db", copy)
    context = open_context(ServiceSettings(runs=RUNS), f"sqlite:///{copy}/tradewind.db", copy / "home")
    keep_wardens(RUNS)
    preload.load_modules(preload.WORKER_MODULES)
    carried_out(context, submitted(context, FIRST))
    seconds = carried_out(context, submitted(context, options.requests))
    print(f"{1000 * seconds / options.requests:.1f} ms of processor time a request, {options.requests} requests")
    context.close()


if __name__ == "__main__":
    main()
    os._exit(0)  # the wardens wait for more
