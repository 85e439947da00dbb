"""Runs jobs with a program of the user's own."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.runner.base import (
    LimitsTime,
    Runner,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
    UsesMachines,
    wait_by_polling,
)
from tradewind.deployer.runner.process import ProcessData, ProcessRunner, ProcessSettings
from tradewind.deployer.runner.run_files import folder_error, read_document
from tradewind.deployer.script_program import call_script, check_program, script_error
from tradewind.plugins import CallsNetwork, CallsProgram
from tradewind.problem import Handle, Machine, RunRequest, RunState, RunStatus
from tradewind.utils.paths import expand

_FILE = "script.json"
_NO_PROGRAM = 127
_LOOK_SECONDS = 0.05


class ScriptRunnerSettings(plugins.Settings):
    """Settings of `ScriptRunner`."""

    program: Path = Field(description="The program; it is called with run or collect and a JSON file.")
    grace: float = Field(
        5.0, ge=0, le=60, description="Seconds between SIGTERM and SIGKILL at the wall time and when a run is cancelled"
    )
    collect_seconds: float = Field(600.0, gt=0, description="Longest time for fetching the results, in one attempt.")


class _ScriptProcess(ProcessRunner):
    """The processes of the program; they hold no limits of CPU and memory, since the job is elsewhere."""

    name = "script"


class ScriptRunner(
    Runner,
    CallsNetwork,
    CallsProgram,
    LimitsTime,
    SeveralNodes,
    StreamsLogs,
    StreamsReports,
    SurvivesController,
    UsesMachines,
):
    """Runs jobs with your own program, which is called to run a job on its machines and to collect the results.

    ``PROGRAM run FILE COMMAND ARGUMENT...`` runs the job and waits for it; its output and exit code are those of the
    run, and SIGTERM asks it to end the job. ``PROGRAM collect FILE`` then brings what the job left elsewhere. The JSON
    file has the machines, the offer, the configuration and all folders. Secrets are in the environment of ``run``.
    """

    name = "script"
    Settings = ScriptRunnerSettings
    settings: ScriptRunnerSettings

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self._program = expand(self.settings.program).absolute()
        inner = ProcessSettings(grace=self.settings.grace, share=False)
        self._processes = _ScriptProcess(settings=inner, data_folder=data_folder / "script-runs")
        # Runs are submitted in threads, and the helper process answers one at a time.
        self._guard = threading.Lock()
        self._states: dict[str, RunState] = {}

    @property
    def kill_seconds(self) -> float:
        """The grace between SIGTERM and SIGKILL, and the time in which the end is noticed."""
        return self._processes.kill_seconds

    def check_program(self) -> None:
        """See that the program can be called; see `CallsProgram`."""
        check_program(self._program)

    def submit(self, request: RunRequest, machines: Sequence[Machine]) -> Handle:
        """Start the program for a run; see `Runner.submit`."""
        check_program(self._program)
        file = request.folder.absolute() / _FILE
        if not file.exists():
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(_document(request, machines), indent=1), encoding="utf-8")
            except OSError as error:
                raise folder_error(error, file.parent) from error
        here = replace(
            request,
            argv=(str(self._program), "run", str(file), *request.argv),
            # What the offer has is there, not here.
            offer=replace(request.offer, vcpu=0.0, memory_gib=0.0),
            limits=replace(request.limits, cpus=None, memory_bytes=None),
        )
        with self._guard:
            return self._processes.submit(here, ())

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, RunStatus]:
        """The statuses of some runs; see `Runner.poll`."""
        with self._guard:
            found = self._processes.poll(handles)
        self._states |= {run_id: status.state for run_id, status in found.items()}
        return {handle.run_id: self._told(handle, found[handle.run_id]) for handle in handles}

    def _told(self, handle: Handle, status: RunStatus) -> RunStatus:
        """Name the job's program where the script has not found it, as shells say it."""
        if status.state is not RunState.FAILED or status.exit_code != _NO_PROGRAM:
            return status
        folder = ProcessData.of(handle).place
        wanted = (read_document(folder / _FILE) or {}).get("command") if folder else None
        named = f" {wanted[0]!r}" if isinstance(wanted, list) and wanted else ""
        return replace(status, reason=f"there is no program{named}: the script exited with code {_NO_PROGRAM}")

    def wait(self, handles: Sequence[Handle], seconds: float) -> None:
        """Return when a run has ended, when woken, or after ``seconds``."""
        before = {handle.run_id: self._states.get(handle.run_id) for handle in handles}
        wait_by_polling(self, handles, before, seconds, _LOOK_SECONDS)

    def cancel(self, handle: Handle, reason: str = "") -> None:
        """End the program, which ends the job; see `Runner.cancel`."""
        with self._guard:
            self._processes.cancel(handle, reason)

    def find(self, owner: str | None) -> list[Handle]:
        """All runs of an owner, or of all, that live or are not settled; see `Runner.find`."""
        return self._processes.find(owner)

    def collect(self, handle: Handle, request: RunRequest) -> None:
        """Have the program bring what the job left elsewhere into the run's folder; see `Runner.collect`.

        Raises:
            DeployError: It failed; it is tried again, with the machines kept meanwhile.
        """
        file = request.folder.absolute() / _FILE
        variables = {"TRADEWIND_RUN_ID": request.run_id, "TRADEWIND_OWNER": request.owner}
        variables["TRADEWIND_OUTPUTS"] = str(file.parent / "outputs")
        answer = call_script(self._program, "collect", file, variables, self.settings.collect_seconds)
        if answer.code:
            raise script_error(f"the script {self._program.name} could not collect run {request.run_id}", answer)

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        """Read what the program has printed, from a byte on; see `StreamsLogs.read_log`."""
        return self._processes.read_log(handle, stream, offset)

    def read_report(self, handle: Handle, offset: int) -> bytes:
        """Read the run's metrics file from a byte on; see `StreamsReports.read_report`."""
        return self._processes.read_report(handle, offset)

    def forget(self, handle: Handle) -> None:
        """Remove the note of a run that is settled; its folder stays."""
        self._states.pop(handle.run_id, None)
        with self._guard:
            self._processes.forget(handle)

    def close(self) -> None:
        """Let go of the helper process; it ends by itself when its runs have."""
        with self._guard:
            self._processes.close()


def _document(request: RunRequest, machines: Sequence[Machine]) -> dict[str, object]:
    """All facts about a run that the program may need, without secrets."""
    folder = request.folder.absolute()
    return {
        "run_id": request.run_id,
        "owner": request.owner,
        "expires": request.expires,
        "command": list(request.argv),
        "image": request.image,
        "environment": dict(request.env),
        "secrets": sorted(request.secrets),
        "configuration": dict(request.configuration),
        "fraction": request.fidelity,
        "machines": [{"id": one.id, "address": one.address, **one.data} for one in machines],
        "offer": request.offer.to_json(),
        "wall_seconds": request.limits.wall_seconds,
        "workdir": str(request.workdir.absolute()),
        "folder": str(folder),
        "inputs": str(folder / "inputs"),
        "outputs": str(folder / "outputs"),
        "metrics": str(folder / "metrics.jsonl"),
    }
