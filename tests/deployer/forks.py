"""Controllers to be killed: copies of one process that has imported everything, so that a kill takes no second."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deployer.helpers import OWNER

_TEMPLATE = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.deployer.helpers import deployer_over, request_for, row
from tradewind import plugins
for name in {imports!r}:
    __import__(name)
part = plugins.load("runner", {runner!r})

def control(folder, settings, run_ids, argv, changes):
    folder = Path(folder)
    runner = part(settings=part.Settings(**settings), data_folder=folder / "data")
    deployer = deployer_over(folder, runner=runner)
    with (folder / "known").open("a") as known:
        for run_id in run_ids:
            print(run_id, file=known, flush=True)  # the row is stored before anything is created
            deployer.launch(row(run_id), request_for(folder, argv, run_id, **changes))
        while True:
            deployer.poll()
            deployer.wait(0.2)

print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try:
            control(**json.loads(line))
        finally:
            os._exit(1)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("dead", flush=True)
"""


class Controllers:
    """Starts and kills controllers that launch runs.

    Args:
        process: The process that they are copies of.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    def kill_after(self, seconds: float, folder: Path, **given: Any) -> list[str]:
        """Let a controller work for some time, and kill it.

        Args:
            seconds: How long.
            folder: Its folder.
            given: ``settings``, ``run_ids``, ``argv`` and ``changes`` of the requests.

        Returns:
            The runs whose rows it has stored.
        """
        self._in.write(json.dumps({"folder": str(folder), **given}) + "\n")
        self._in.flush()
        pid = int(self._out.readline())
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        assert self._out.readline() == "dead\n"
        known = folder / "known"
        return known.read_text().split() if known.exists() else []


@contextmanager
def controllers(runner: str, *imports: str) -> Iterator[Controllers]:
    """Controllers over a runner; ``imports`` are packages that it would import late."""
    code = _TEMPLATE.format(root=str(Path(__file__).parents[2]), runner=runner, imports=imports)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TRADEWIND_TEST_OWNER": OWNER},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield Controllers(process)
        finally:
            process.stdin.close()
