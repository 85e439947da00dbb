"""Makes machines with a program of the user's own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from tradewind import plugins
from tradewind.deployer.file_locks import wait_for_lock
from tradewind.deployer.provisioner.base import (
    Cluster,
    ClusterState,
    MakesMachines,
    Provisioner,
    ReachableBySsh,
    TagsMachines,
)
from tradewind.deployer.script_program import (
    CallsProgram,
    ScriptAnswer,
    answered_document,
    call_script,
    end_group,
    script_error,
)
from tradewind.errors import DeployError, PrerequisiteError, TeardownError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Machine, Offer
from tradewind.utils.atomic_files import write_atomically
from tradewind.utils.paths import expand

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ORPHAN_SECONDS = 10.0
"""Seconds that a call of a process that was killed may go on when its machines are to be destroyed."""


class ScriptProvisionerSettings(plugins.Settings):
    """Settings of `ScriptProvisioner`."""

    program: Path = Field(description="The program; it is called with make or destroy and a JSON file.")
    make_seconds: float = Field(900.0, gt=0, description="Longest time for making the machines of a run.")
    destroy_seconds: float = Field(600.0, gt=0, description="Longest time for giving them back, in one attempt.")


class ScriptProvisioner(Provisioner, CallsNetwork, CallsProgram, MakesMachines, TagsMachines, ReachableBySsh):
    """Makes machines with your own program, which is called to make and to destroy them.

    ``PROGRAM make FILE`` gets run, owner, expiry and offer in a JSON file, and prints ``{"machines": [{"id": ...,
    "address": ...}]}``. ``PROGRAM destroy FILE`` gives them back; it is called whatever has become of the run, until
    it succeeds, and also where nothing was made. What may be there is noted below the data folder before anything is
    made.
    """

    name = "script"
    Settings = ScriptProvisionerSettings
    settings: ScriptProvisionerSettings
    patience_seconds: ClassVar[float] = 600.0

    def __init__(self, *, settings: plugins.Settings, data_folder: Path) -> None:
        super().__init__(settings=settings, data_folder=data_folder)
        self.program = expand(self.settings.program).absolute()
        self._folder = data_folder / "script"
        self._guard = threading.Lock()
        self._calls: dict[str, subprocess.Popen[bytes]] = {}
        self._abandoned: set[str] = set()

    # ------------------------------------------------------------------ the contract

    def make(self, run_id: str, owner: str, expires: float, offer: Offer) -> Cluster:
        """Have the program make the machines of an offer, and wait for it; see `Provisioner.make`.

        Raises:
            CapacityError: It ended with code 75: there is no room now.
            CredentialsError: It ended with code 77.
            PrerequisiteError: It ended with code 78, is not there, or does not print what it should.
            DeployError: It failed otherwise, or took too long.
        """
        file = self._file(run_id)
        try:
            with self._locked(run_id, self.settings.make_seconds) as lock:
                note = self._read(file)
                if note is not None and note.get("ready") is not None:
                    return self._cluster(note)
                if note is not None:
                    # A process that made them was killed, and what it had made by then is known to nobody.
                    self._destroy(file, note, lock)
                note = {
                    "run_id": run_id,
                    "owner": owner,
                    "expires": expires,
                    "nodes": offer.nodes,
                    "offer": offer.to_json(),
                    "price_per_hour": offer.hourly,
                    "created": self.clock.now(),
                    "ready": None,
                    "machines": [],
                }
                self._write(file, note)
                try:
                    note = self._made(file, note, lock)
                except BaseException as error:
                    with contextlib.suppress(TeardownError):  # its note stays, and says that there may be machines
                        self._destroy(file, note, lock)
                    if isinstance(error, DeployError):
                        error.paid_seconds = max(0.0, self.clock.now() - float(note["created"]))
                    raise
                return self._cluster(note)
        finally:
            with self._guard:
                self._abandoned.discard(run_id)

    def abandon(self, run_id: str) -> None:
        """End the program that makes machines for a run; see `Provisioner.abandon`."""
        with self._guard:
            self._abandoned.add(run_id)
            process = self._calls.get(run_id)
        if process is not None:
            threading.Thread(target=end_group, args=(process,), daemon=True).start()

    def poll(self, clusters: Sequence[Cluster]) -> Mapping[str, Cluster]:
        """Give the state of some clusters by their notes; see `Provisioner.poll`."""
        found = {}
        for cluster in clusters:
            try:
                note = self._read(self._file(cluster.run_id))
            except DeployError as error:
                found[cluster.run_id] = replace(cluster, state=ClusterState.UNKNOWN, reason=str(error))
                continue
            found[cluster.run_id] = Cluster(cluster.run_id, ClusterState.GONE) if note is None else self._cluster(note)
        return found

    def find(self, owner: str | None) -> list[Cluster]:
        """List the clusters that are noted and not given back; see `Provisioner.find`."""
        notes = (self._read(file) for file in sorted(self._folder.glob("*.run.json")))
        return [self._cluster(note) for note in notes if note is not None and owner in (None, note["owner"])]

    def destroy(self, cluster: Cluster) -> Cluster:
        """Have the program give machines back; see `Provisioner.destroy`.

        Raises:
            TeardownError: The program failed: the machines may still cost money.
        """
        self.abandon(cluster.run_id)
        file = self._file(cluster.run_id)
        try:
            with self._locked(cluster.run_id, _ORPHAN_SECONDS, insist=True) as lock:
                try:
                    note = self._read(file)
                except DeployError:
                    note = None  # it is damaged, and what it was of is to go all the same
                if note is None:
                    # Of another data folder, or given back before: the program knows whether something is there.
                    known = [{"id": one.id, "address": one.address, "data": one.data} for one in cluster.machines]
                    note = {"run_id": cluster.run_id, "owner": cluster.owner, "nodes": len(known), "machines": known}
                    self._write(file.with_suffix(".gone"), note)
                    self._destroy(file.with_suffix(".gone"), note, lock)
                    file.unlink(missing_ok=True)
                else:
                    self._destroy(file, note, lock)
        except PrerequisiteError as error:
            raise TeardownError(error.message, hint=error.hint) from error
        finally:
            with self._guard:
                self._abandoned.discard(cluster.run_id)
        return Cluster(cluster.run_id, ClusterState.GONE, owner=cluster.owner, setup_seconds=cluster.setup_seconds)

    # ------------------------------------------------------------------ calls

    def _made(self, file: Path, note: dict[str, Any], lock: int) -> dict[str, Any]:
        """Call the program, and note what it has made."""
        answer = self._call("make", file, note, self.settings.make_seconds, lock)
        what = f"the script {self.program.name} could not make the machines of run {note['run_id']}"
        if answer.code:
            raise script_error(what, answer)
        machines = _machines(answered_document(answer, f"the script {self.program.name} make"), note)
        return self._write(file, {**note, "machines": machines, "ready": self.clock.now()})

    def _destroy(self, file: Path, note: Mapping[str, Any], lock: int) -> None:
        """Call the program until there is nothing left, and only then remove the note."""
        answer = self._call("destroy", file, note, self.settings.destroy_seconds, lock)
        if answer.code:
            what = f"the script {self.program.name} could not destroy the machines of run {note['run_id']}"
            raise TeardownError(f"{what}: {answer.complaint or f'exit code {answer.code}'}")
        file.unlink(missing_ok=True)
        for left in self._folder.glob(f"{file.stem}.*"):
            if left.suffix in (".log", ".out"):
                left.unlink(missing_ok=True)

    def _call(self, verb: str, file: Path, note: Mapping[str, Any], seconds: float, lock: int) -> ScriptAnswer:
        run_id = str(note["run_id"])

        def started(process: subprocess.Popen[bytes]) -> None:
            with self._guard:
                if verb == "make":
                    self._calls[run_id] = process
                unwanted = verb == "make" and run_id in self._abandoned
            if unwanted:
                end_group(process)

        environment = {"TRADEWIND_RUN_ID": run_id, "TRADEWIND_OWNER": str(note["owner"])}
        try:
            return call_script(self.program, verb, file, environment, seconds, keep=(lock,), started=started)
        finally:
            with self._guard:
                if verb == "make":
                    self._calls.pop(run_id, None)

    # ------------------------------------------------------------------ notes

    def _file(self, run_id: str) -> Path:
        name = run_id if _PLAIN.fullmatch(run_id) else "run-" + hashlib.sha256(run_id.encode()).hexdigest()[:32]
        return self._folder / f"{name}.run.json"

    def _read(self, file: Path) -> dict[str, Any] | None:
        try:
            note = json.loads(file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            # Unknown counts as alive: nobody may take it for gone.
            raise DeployError(f"{file}, which says what machines there are, cannot be read: {error}") from error
        return dict(note)

    def _write(self, file: Path, note: dict[str, Any]) -> dict[str, Any]:
        """Keep a note, durably and whole."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, json.dumps(note, indent=1), mode=0o600, durable=True)
        except OSError as error:
            raise DeployError(
                f"{file} cannot be written: {error.strerror}", hint="nothing is made without it"
            ) from error
        return note

    def _cluster(self, note: Mapping[str, Any]) -> Cluster:
        ready, created = note.get("ready"), float(note["created"])
        data = {"created": created, "price_per_hour": note.get("price_per_hour")}
        setup = max(0.0, (self.clock.now() if ready is None else float(ready)) - created)
        return Cluster(
            str(note["run_id"]),
            ClusterState.BOOTING if ready is None else ClusterState.READY,
            tuple(Machine(one["id"], one["address"], one["data"]) for one in note["machines"]),
            setup,
            data=data,
            owner=str(note["owner"]),
            expires=note.get("expires"),
        )

    @contextlib.contextmanager
    def _locked(self, run_id: str, seconds: float, *, insist: bool = False) -> Iterator[int]:
        """Keep others from working on a run; what the program starts holds the lock as long as it lives.

        Args:
            run_id: The run.
            seconds: How long to wait for others.
            insist: Go on without the lock after that: machines cost money as long as they are there.

        Raises:
            DeployError: Others are at it for longer.
        """
        path = self._file(run_id).with_suffix(".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not wait_for_lock(number, seconds) and not insist:
                raise DeployError(f"another process works on the machines of run {run_id}")
            yield number
        finally:
            os.close(number)


def _machines(document: Mapping[str, Any], note: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The machines of what ``make`` has printed; without any, nameless ones, for programs that need no names.

    Raises:
        PrerequisiteError: They are not those that are wanted.
    """
    run_id, nodes = note["run_id"], int(note["nodes"])
    listed = document.get("machines", [{"id": f"{run_id}-{i}"} for i in range(nodes)])
    if not isinstance(listed, list) or not all(isinstance(one, dict) and one.get("id") for one in listed):
        raise PrerequisiteError(
            "the script's machines are no list of objects with an id", hint='{"machines": [{"id": ...}]}'
        )
    if len({str(one["id"]) for one in listed}) != nodes:
        raise PrerequisiteError(f"the script has made {len(listed)} machines, {nodes} were wanted")
    return [
        {
            "id": str(one["id"]),
            "address": str(one.get("address") or ""),
            "data": {key: value for key, value in one.items() if key not in ("id", "address")},
        }
        for one in listed
    ]
