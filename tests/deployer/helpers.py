"""What the tests of the deployer share."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.lifecycle.hooks import Hooks
from tradewind.deployer.provisioner.base import Provisioner
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.result_uploads import ResultUploader
from tradewind.deployer.runner.base import Runner
from tradewind.deployer.runner.process import ProcessRunner, ProcessSettings
from tradewind.problem import Billing, Configuration, Limits, Offer, Run, RunRequest

OWNER = os.environ.get("TRADEWIND_TEST_OWNER") or f"tw-test-{os.getpid()}"
"""Two test sessions on one machine do not see each other's runs."""

OFFER = Offer("local", "small", 1, 2, 3600.0)
"""A dollar a second, so that money shows seconds."""

PATIENCE = 60.0


FOREIGN = "arm64" if platform.machine() == "x86_64" else "x86_64"
"""An architecture that is not this machine's."""


def foreign_program(path: Path, architecture: str = FOREIGN) -> Path:
    """Write the head of a program that is compiled for an architecture, which is enough for a kernel to refuse it."""
    number = {"arm64": 183, "x86_64": 62, "x86": 3, "ppc64le": 21, "riscv64": 243}[architecture]
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + b"\x02\0" + number.to_bytes(2, "little")
    path.write_bytes(head.ljust(300, b"\0"))
    path.chmod(0o755)
    return path


def python(code: str) -> tuple[str, ...]:
    """The command that runs some Python code."""
    return (sys.executable, "-S", "-c", code)


def request_for(base: Path, argv: Sequence[str], run_id: str = "run-1", **changes: Any) -> RunRequest:
    """A request for a command; ``wall``, ``memory`` and ``log`` are limits."""
    limits = Limits(
        wall_seconds=changes.pop("wall", None),
        memory_bytes=changes.pop("memory", None),
        log_bytes=changes.pop("log", None),
    )
    work = base / "work"
    work.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "run_id": run_id,
        "owner": OWNER,
        "expires": time.time() + 600,
        "argv": tuple(argv),
        "folder": base / "runs" / run_id,
        "workdir": work,
        "offer": OFFER,
        "configuration": Configuration({"x": 1}),
        "limits": limits,
    }
    return RunRequest(**{**given, **changes})


def process_runner(folder: Path, **settings: Any) -> ProcessRunner:
    """A process runner over a folder; its runs wait for no others: tests start many that sleep, on few CPUs."""
    return ProcessRunner(settings=ProcessSettings(**{"share": False, **settings}), data_folder=folder / "data")


def deployer_over(
    folder: Path,
    *,
    runner: Runner | None = None,
    provisioner: Provisioner | None = None,
    billing: Billing | None = None,
    hooks: Hooks | None = None,
    results: ResultUploader | None = None,
) -> Deployer:
    """A deployer; processes of this machine unless told otherwise."""
    return Deployer(
        provisioner=provisioner or NoneProvisioner(settings=NoneSettings(), data_folder=folder / "data"),
        runner=runner or process_runner(folder),
        billing=billing or Billing(),
        owner=OWNER,
        hooks=hooks,
        results=results,
    )


def row(run_id: str = "run-1") -> Run:
    """The row that the engine stores before the launch."""
    return Run(run_id, 0)


def drive(deployer: Deployer, run_id: str = "run-1") -> list[Run]:
    """Poll until a run has ended; all its rows in order."""
    rows: list[Run] = []
    if run_id not in deployer.active:
        # The launch itself has reported the end; cancelling an ended run only returns its row.
        ended = deployer.cancel(run_id, "")
        return [ended] if ended is not None else []
    end = time.monotonic() + PATIENCE
    while not (rows and rows[-1].state.ended):
        rows += [each for each in deployer.poll() if each.run_id == run_id]
        if rows and rows[-1].state.ended:
            break
        assert time.monotonic() < end, f"the run is still {rows[-1:]}"
        deployer.wait(0.5)
    return rows


def example_script(folder: Path) -> Path:
    """The script of the guide on scripts, as a file."""
    page = (Path(__file__).parents[2] / "docs/guides/backends/script.md").read_text()
    script = folder / "deploy.sh"
    if not script.exists():
        script.write_text(page.partition("```bash\n")[2].partition("```")[0])
        script.chmod(0o755)
    return script
