"""Measures how quickly a worker takes up a request, what it adds to a run, and what it takes with nothing to do.

    python benchmarks/service_faults/pace.py --requests 40

One worker on an SQLite file; the requests come from another process, as those of the web server do.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ASK = """
import json, sys, time
from pathlib import Path
from tradewind.service.context import open_context
from tradewind.service.accounts.identity import Principal
from tradewind.service.settings import ServiceSettings
url, home, user, count, pause = json.loads(sys.argv[1])
context = open_context(ServiceSettings(), url, Path(home))
who = Principal(user, "ann", "user", "physics")
for _ in range(count):
    document = {"application": "note", "configuration": {"instance": "local.c1"}}
    row = context.requests.submit(who, document)
    print(json.dumps(row.id), flush=True)
    time.sleep(pause)
"""

APPLICATION = """
name: note
job: {command: ['true']}
space:
  instance: {types: [local.c1]}
application: {}
"""


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which a share of all lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def measure(requests: int, idle: float) -> dict[str, Any]:
    """The figures of one worker.

    Args:
        requests: So many, one after the other, and once more all at once.
        idle: Seconds to measure with nothing to do.
    """
    from tradewind.service.accounts.identity import Principal
    from tradewind.service.context import open_context
    from tradewind.service.requests.worker import RequestWorker
    from tradewind.service.settings import ServiceSettings

    folder = Path(tempfile.mkdtemp(prefix="tw-pace-"))
    url, home = f"sqlite:///{folder}/s.db", folder / "home"
    context = open_context(ServiceSettings(), url, home)
    ann = context.accounts.add_user("ann", tenant="physics")
    admin = context.accounts.add_user("root", role="admin")
    root = Principal(admin.id, "root", "admin", "root")
    context.applications.register(root, APPLICATION, shared=True)
    stop = threading.Event()
    thread = threading.Thread(target=RequestWorker(context).run, args=(stop,), daemon=True)
    thread.start()

    def ask(count: int, pause: float) -> list[Any]:
        words = [sys.executable, "-c", ASK, json.dumps([url, str(home), ann.id, count, pause])]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        numbers = [int(line) for line in said.split()]
        while not all(context.requests.get(root, number).over for number in numbers):
            time.sleep(0.05)
        return [context.requests.get(root, number) for number in numbers]

    try:
        ask(2, 0.5)  # what is only read once
        rows = ask(requests, 0.7)
        begun = time.process_time()
        time.sleep(idle)
        share = (time.process_time() - begun) / idle
        together = ask(requests, 0.0)
    finally:
        stop.set()
        thread.join(20.0)
        context.close()
        shutil.rmtree(folder, ignore_errors=True)
    waits = [row.started - row.created for row in rows]
    wholes = [row.ended - row.created for row in rows]
    span = max(row.ended for row in together) - min(row.created for row in together)
    return {
        "until it is taken up, median (s)": round(statistics.median(waits), 3),
        "until it is taken up, 95 % (s)": round(percentile(waits, 0.95), 3),
        "from asking to done, median (s)": round(statistics.median(wholes), 3),
        "requests a second, 4 at a time": round(requests / span, 2),
        "share of a core with nothing to do (%)": round(100 * share, 2),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--idle", type=float, default=15.0, help="seconds to measure with nothing to do")
    given = parser.parse_args(words)
    print("| figure | value |\n|---|---|")
    for name, value in measure(given.requests, given.idle).items():
        print(f"| {name} | {value} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
