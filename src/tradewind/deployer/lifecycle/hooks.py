"""The user's own commands before and after each stage of a run, and when one goes wrong."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tradewind.deployer.environment import job_environment
from tradewind.errors import DeployError, SpecError
from tradewind.problem import Run, RunRequest

STAGES = ("booting", "bootstrapping", "submitting", "executing", "collecting")
"""The stages that hooks may be put before and after."""

MOMENTS = (*(f"{when}_{stage}" for stage in STAGES for when in ("before", "after")), "on_error")
"""The keys of the hooks."""

_log = logging.getLogger("tradewind.deployer")


class Hook(BaseModel):
    """One hook: a command (its words; no shell sees them) or a Python function ``module:function``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: tuple[str, ...] = ()
    python: str = Field("", pattern=r"^$|^[\w.]+:[\w.]+$")
    timeout: float = Field(300.0, gt=0, description="Seconds after which it is killed and counts as failed")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            return {"command": tuple(given)}
        return {"python": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_of_both(self) -> Hook:
        if bool(self.command) == bool(self.python):
            raise ValueError("a hook is either a list of words (a command) or module:function")
        return self

    def __str__(self) -> str:
        return self.python or " ".join(self.command)


class Hooks:
    """The hooks of a study.

    A failing *before* hook ends the run as failed, the infrastructure's fault: hooks prepare machines, so the
    searcher must not blame the configuration, and the run is repeated as often as retries allow. A failing *after* or
    *on_error* hook is logged only: what the run has paid for is kept.

    A hook runs on this machine, in the job's working folder. It sees what the job sees (``TRADEWIND_RUN_ID``,
    ``TRADEWIND_PARAM_...``), and ``TRADEWIND_STAGE`` (``booting``, ...), ``TRADEWIND_MOMENT`` (``before_booting``),
    ``TRADEWIND_FOLDER`` (the run's folder), ``TRADEWIND_MACHINES`` (addresses, separated by commas) and
    ``TRADEWIND_REASON`` (why the run failed; for ``on_error``). A Python function is called, in a process of its own,
    with a dictionary of the ``TRADEWIND_*`` variables. Output goes to ``hooks.log`` in the run's folder.
    A controller that is restarted during a stage runs that stage's hooks again.

    Args:
        hooks: Hooks by moment (one of `MOMENTS`), in the order in which they run.
    """

    def __init__(self, hooks: Mapping[str, Sequence[Hook]] | None = None) -> None:
        self._hooks = {moment: tuple(listed) for moment, listed in (hooks or {}).items() if listed}
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._stopped: set[str | None] = set()
        self._lock = threading.Lock()

    @classmethod
    def from_spec(cls, given: Mapping[str, Any]) -> Hooks:
        """The hooks of the YAML's ``deploy.hooks``: moment -> one hook, or a list of hooks.

        Raises:
            SpecError: A moment is unknown, or a hook is neither a command nor a function.
        """
        found: dict[str, list[Hook]] = {}
        for moment, value in given.items():
            if moment not in MOMENTS:
                raise SpecError(f"deploy.hooks: there is no moment {moment!r}", hint=f"known: {', '.join(MOMENTS)}")
            listed = isinstance(value, list) and not all(isinstance(word, str) for word in value or [None])
            try:
                found[moment] = [Hook.model_validate(each) for each in (value if listed else [value])]
            except ValidationError as error:
                raise SpecError(
                    f"deploy.hooks.{moment}: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
                ) from None
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def has(self, moment: str) -> bool:
        """True when there is a hook for a moment."""
        return moment in self._hooks

    def run(self, moment: str, run: Run, request: RunRequest) -> None:
        """Run the hooks of a moment, one after the other; this takes as long as they take.

        Raises:
            DeployError: A *before* hook failed.
        """
        for hook in self._hooks.get(moment, ()):
            problem = self._carry_out(hook, moment, run, request)
            if problem and moment.startswith("before_"):
                raise DeployError(f"the {moment} hook ({hook}) {problem}", hint=f"see {request.folder}/hooks.log")
            if problem:
                _log.warning("run %s: the %s hook (%s) %s", run.run_id, moment, hook, problem)

    def stop(self, run_id: str | None = None) -> None:
        """Kill the hooks of a run, or of all runs, and start no more of them."""
        with self._lock:
            self._stopped.add(run_id)
            for owner, process in self._running:
                if run_id in (None, owner):
                    _kill(process)

    def _carry_out(self, hook: Hook, moment: str, run: Run, request: RunRequest) -> str:
        """Run one hook; give what went wrong, in words, or an empty text."""
        environment = {
            **os.environ,
            **request.env,
            **job_environment(request, request.folder),
            "TRADEWIND_STAGE": moment.partition("_")[2] if moment != "on_error" else run.state.value,
            "TRADEWIND_MOMENT": moment,
            "TRADEWIND_FOLDER": str(request.folder),
            "TRADEWIND_MACHINES": ",".join(machine.address or machine.id for machine in run.machines),
            "TRADEWIND_REASON": run.reason,
        }
        command = list(hook.command) or [sys.executable, "-c", _CALL, hook.python]
        try:
            request.folder.mkdir(parents=True, exist_ok=True)
            with (Path(request.folder) / "hooks.log").open("ab") as log, self._lock:
                if {None, run.run_id} & self._stopped:
                    return "was stopped"
                process = subprocess.Popen(
                    command,
                    cwd=request.workdir,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.append((run.run_id, process))
        except OSError as error:
            return f"cannot be run: {error.strerror}"
        try:
            return _wait_for(process, hook.timeout)
        finally:
            with self._lock:
                self._running.remove((run.run_id, process))


_CALL = """
import importlib, os, sys
module, _, function = sys.argv[1].partition(":")
sys.path.insert(0, os.getcwd())
called = importlib.import_module(module)
for name in function.split("."):
    called = getattr(called, name)
called({k: v for k, v in os.environ.items() if k.startswith("TRADEWIND_")})
"""


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Popen.send_signal would not reach the children of the hook.
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)


def _wait_for(process: subprocess.Popen[bytes], seconds: float) -> str:
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
        return f"took longer than {seconds:g} s"
    return f"ended with exit code {code}" if code else ""
