"""Carries out a run on a node of a Ray cluster.

This module is sent there by value, so that nothing but Ray need be installed: it uses the standard library and Ray
only. A run is carried out by a task of the supervisor (see `tradewind.deployer.runner.ray.supervisor_actor`) or by an
actor of its own. Either has a warden (see `tradewind.deployer.runner.ray.warden`), whose sources are in the cluster's
store, and the warden starts the job. Where the run is, and how it ended, is written into that store, which the head
keeps. When the run has ended its CPUs are free again; its files stay until it is settled.

Keys in the store, each followed by the run's: ``run/`` what was asked for, ``claim/`` who may start it (written once,
by who carries it out or by who cancels it), ``state/`` where it is, ``cancel/`` that and why it shall end, ``packed/``
what it leaves if that is little, ``end/`` how it ended. An archive of files is in ``bundle/`` and ``piece/``, once for
all runs that have a note in ``uses/``; the last of them to be settled takes it away.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
import zlib
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.ray.kv_store import get, get_bytes, put, put_bytes
from tradewind.deployer.runner.ray.node_files import CHECKPOINT, OUTPUTS, PREFIX, extract, packed, sweep

BOOTSTRAP = """
import os, sys
if os.fork():  # Ray kills the children of a worker that ends: the warden is none, and ends its jobs first
    os._exit(0)
os.setsid()
sys.path.insert(0, sys.argv[1])
from tradewind.deployer.runner.ray.warden import main
main()
"""
FOLDER = "{folder}"
"""The placeholder of the run's folder in an order's environment: only the node knows the folder."""

_HELD = "tradewind_ray_held"
_RETRY_SECONDS = 1.0
_ROOM_SECONDS, _GLANCE_SECONDS = 1.0, 0.1
"""Between two questions for a slot of the machine, and between two looks for one that somebody has given back."""
_LEASE_SECONDS = 30.0
"""Between two times that a run which waits for a slot begins its lease anew."""


class NodeRun:
    """One run on this node: claims it, starts it, and records in the store where it is and how it ended.

    Args:
        order: The run, as `RayRunner` writes it: command, files, resources, limits.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._space = order["space"]
        self._key = order["key"]
        self._lock = threading.Lock()
        self._released = threading.Event()  # its secrets have come, or it is cancelled
        self._secrets: dict[str, str] = {}
        self._warden: subprocess.Popen[bytes] | None = None
        self._reason: str | None = None

    def set_secrets(self, secrets: dict[str, str]) -> None:
        """Take the values of the secrets, by variable, without which the job is not started."""
        if not self._released.is_set():
            self._secrets = secrets
            self._released.set()

    def cancel(self, reason: str) -> None:
        """End the job."""
        with self._lock:
            self._reason = reason
            self._released.set()
            if self._warden is not None:
                self._send({"op": "cancel", "run_id": self._order["run_id"], "reason": reason, "grace": 0.0})

    def live(self) -> None:
        """Carry the run out, unless another process has claimed it or it is cancelled already."""
        if put(self._space, f"claim/{self._key}", {"by": "actor"}, overwrite=False):
            self._end(self._carry_out())

    def _carry_out(self) -> dict[str, Any]:
        """Run the job from its first file to its end; the result, as ``end/`` in the store has it."""
        order = self._order
        try:
            import ray

            context = ray.get_runtime_context()
            folder = self._folder()
            place = {"node": context.get_node_id(), "folder": str(folder), "placed": time.time()}
            self._note("waiting" if order["secrets"] else "starting", place)
            if order["secrets"] and not self._released.wait(max(1.0, order["lasts"])):
                return _result("preempted", "its secrets did not come before its lease ended")
            self._unpack(folder)
            result = self._run(folder, place)
            self._pack(folder)
            return result
        except OSError as error:
            return _result("preempted", f"the node cannot start it: {error.strerror or error}: {error.filename or ''}")
        except Exception as error:
            return _result("preempted", f"the node cannot start it: {type(error).__name__}: {error}")

    def _folder(self) -> Path:
        name = hashlib.sha256(f"{self._space}/{self._key}".encode()).hexdigest()[:24]
        scratch = Path(self._order["scratch"] or tempfile.gettempdir())
        sweep(scratch)
        folder = scratch / (PREFIX + name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lease(folder)
        return folder

    def _lease(self, folder: Path) -> None:
        """Record when the files may be removed: the run's lease counts from now, as it did not begin before."""
        note = folder / "expires.part"
        note.write_text(repr(time.time() + self._order["lasts"]), encoding="ascii")
        note.replace(folder / "expires")

    def _unpack(self, folder: Path) -> None:
        """Make the working folder and the inputs."""
        for name, digest in self._order["bundles"].items():
            (folder / name).mkdir(exist_ok=True)
            with self._bundle(digest, folder.with_name(f"{PREFIX}bundles")).open("rb") as file:
                extract(file, folder / name)
        for name in ("work", "inputs", OUTPUTS, *([CHECKPOINT] if self._order["checkpoint"] else ())):
            (folder / name).mkdir(exist_ok=True)

    def _bundle(self, digest: str, cache: Path) -> Path:
        """Copy an archive from the cluster's store, unless this node has it; it is kept for the next run."""
        path = cache / digest
        if not path.exists():
            cache.mkdir(mode=0o700, exist_ok=True)
            part = path.with_name(f"{digest}.{os.getpid()}")
            with part.open("wb") as file:
                for number in range(get(self._space, f"bundle/{digest}")["pieces"]):
                    file.write(zlib.decompress(get_bytes(self._space, f"piece/{digest}/{number}")))
            part.replace(path)
        os.utime(path)
        return path

    def _pack(self, folder: Path) -> None:
        """Put the results into the store, if they are small: otherwise a task has to be started to fetch them."""
        with contextlib.suppress(OSError):
            content = packed(folder, self._order["outputs"], self._order["limit"])
            if content:
                put_bytes(self._space, f"packed/{self._key}", content)

    def _run(self, folder: Path, place: dict[str, Any]) -> dict[str, Any]:
        order = self._order
        environment = self._environment(folder)
        package = self._package(folder.with_name(f"{PREFIX}code-{order['code'][:16]}"))
        warden = take_warden(package) or start_warden(package)
        assert warden.stdout is not None
        slot = self._slot(environment)
        wanted = {**order["warden"], "slot": slot, "folder": str(folder), "cwd": f"{folder}/work", "env": environment}
        if not self._ask(warden, wanted):
            leave_warden(package, warden)
            return _result("cancelled", self._reason or "")
        for line in warden.stdout:
            event = json.loads(line)
            if event["event"] == "refused" and event["kind"] == "busy":
                self._await_room(slot, event, folder, place)
                if self._ask(warden, wanted):
                    continue
                event = {"event": "refused", "kind": "cancelled"}
            if event["event"] == "started":
                self._note("executing", {**place, "started": time.time()})
                with contextlib.suppress(OSError):  # the disk is full: the job goes on
                    self._lease(folder)
                continue
            with self._lock:
                self._warden = None
            leave_warden(package, warden)
            if event["event"] == "refused":
                return self._refused(event)
            result: dict[str, Any] = event["result"]
            return result
        return _result("preempted", "the process that watched it was killed")

    def _slot(self, environment: dict[str, str]) -> dict[str, Any]:
        """The slot that the run takes of this machine, where that is the one of whoever submitted it; else nothing."""
        order = self._order
        slot: dict[str, Any] = dict(order["slot"] or {})
        if not slot or order["origin"] != origin():
            return {}
        nodes = _addresses(order)
        here = nodes.count(nodes[0]) / len(nodes)
        slot |= {"cpu": slot["cpu"] * here, "memory": slot["memory"] * here}
        # Ray has chosen the GPUs; others are not to have them meanwhile.
        slot["devices_here"] = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        slot["device"] = min(slot["device"], len(slot["devices_here"])) if "variables" in slot else 0
        return slot if slot["cpu"] or slot["device"] else {}

    def _ask(self, warden: subprocess.Popen[bytes], wanted: dict[str, Any]) -> bool:
        """Ask a warden to start the job; False where it was cancelled before."""
        with self._lock:
            if self._reason is not None:
                return False
            self._warden = warden
            self._send(wanted)
            return True

    def _await_room(self, slot: dict[str, Any], answer: dict[str, Any], folder: Path, place: dict[str, Any]) -> None:
        """Wait until somebody gives a slot back, for a second at most, or until the run is cancelled."""
        why = answer["words"]
        if time.time() > place["placed"] + _LEASE_SECONDS or why != place.get("why"):
            place |= {"placed": time.time(), "why": why}
            self._note("queued", place)
            self._lease(folder)  # it has not begun
        freed, end = f"{slot['folder']}/freed", time.monotonic() + min(_ROOM_SECONDS, answer["again"] or _ROOM_SECONDS)
        before = _modified(freed)
        while self._reason is None and time.monotonic() < end and _modified(freed) == before:
            time.sleep(_GLANCE_SECONDS)

    def _package(self, place: Path) -> Path:
        """Write the warden's sources on this node, unless they are there; the folder with them."""
        if not place.exists():
            part = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
            for name, text in get(self._space, f"code/{self._order['code']}").items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_text(text, encoding="utf-8")
            try:
                part.rename(place)
            except OSError:  # another run was first
                shutil.rmtree(part)
        os.utime(place)
        return place

    def _environment(self, folder: Path) -> dict[str, str]:
        order = self._order
        given = {name: value.replace(FOLDER, str(folder)) for name, value in order["tradewind"].items()}
        environment = {**os.environ, **order["env"], **given, **self._secrets}
        addresses = _addresses(order)
        hosts = folder / "hosts"
        slots = max(1, int(order["resources"]["CPU"]))
        hosts.write_text("".join(f"{address} slots={slots}\n" for address in addresses), encoding="ascii")
        import ray

        environment["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        environment |= {"TRADEWIND_NODE_IPS": "\n".join(addresses), "TRADEWIND_HOSTFILE": str(hosts)}
        return environment

    def _send(self, document: dict[str, Any]) -> None:
        assert self._warden is not None and self._warden.stdin is not None
        try:
            self._warden.stdin.write(json.dumps(document).encode() + b"\n")
            self._warden.stdin.flush()
        except OSError:  # it has ended: what it said last is still read
            return

    def _refused(self, event: dict[str, Any]) -> dict[str, Any]:
        program = self._order["warden"]["argv"][0]
        if event["kind"] == "cancelled":
            return _result("cancelled", self._reason or "")
        if event["kind"] == "missing":
            why = os.strerror(event["errno"])
            if event["errno"] == errno.ENOEXEC and (words := self._foreign(program)):
                return {**_result("failed", words), "exit_code": 126, "fault": "architecture"}
            return {**_result("failed", f"there is no program {program!r} on the node: {why}"), "exit_code": 127}
        return _result("preempted", f"the node cannot start it: {os.strerror(event['errno'] or 0)}")

    def _foreign(self, program: str) -> str:
        """The reason of a program that this node's processor does not run; empty for a script without a #! line."""
        with contextlib.suppress(OSError):
            if "/" in program and not (self._folder() / "work" / program).read_bytes().startswith(b"\x7fELF"):
                return ""
        machine = platform.machine()
        return f"{program} is for another processor architecture than the machine's ({machine}): Exec format error"

    def _note(self, state: str, place: dict[str, Any]) -> None:
        self._stubbornly(f"state/{self._key}", {"state": state, **place})

    def _end(self, result: dict[str, Any]) -> None:
        self._stubbornly(f"end/{self._key}", result)

    def _stubbornly(self, key: str, document: dict[str, Any]) -> None:
        # Without its head a cluster ends by itself; until then the head may come back.
        while True:
            try:
                put(self._space, key, document)
                return
            except Exception:
                time.sleep(_RETRY_SECONDS)


class RunActor:
    """Carries out one run in an actor of its own, which goes when the run has ended.

    Args:
        order: The run, as `RayRunner` writes it.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._run = NodeRun(order)
        threading.Thread(target=self._live, name="tradewind-run", daemon=True).start()

    def begin(self, secrets: dict[str, str]) -> None:
        """Take the values of the secrets, by variable."""
        self._run.set_secrets(secrets)

    def cancel(self, reason: str) -> None:
        """End the job."""
        self._run.cancel(reason)

    def _live(self) -> None:
        try:
            self._run.live()
        finally:
            self._go()

    def _go(self) -> None:
        import ray

        try:
            group = self._order["group"] and ray.util.get_placement_group(self._order["name"])
            if group:
                ray.util.remove_placement_group(group)
        finally:
            ray.kill(ray.get_runtime_context().current_actor)


def _kept_wardens() -> dict[str, subprocess.Popen[bytes]]:
    """The wardens of this process that wait for their next run, by their sources.

    Ray makes the functions of this module anew for each task, with globals of their own: a module is what lasts.
    """
    module = sys.modules.setdefault(_HELD, types.ModuleType(_HELD))
    kept: dict[str, subprocess.Popen[bytes]] = module.__dict__.setdefault("wardens", {})
    return kept


def take_warden(package: Path) -> subprocess.Popen[bytes] | None:
    """Take a warden that waits for a run in this process; None when there is none that lives."""
    warden = _kept_wardens().pop(str(package), None)
    # It says nothing without a run: what can be read is its end.
    if warden is None:
        return None
    assert warden.stdout is not None
    return None if select.select([warden.stdout], [], [], 0)[0] else warden


def leave_warden(package: Path, warden: subprocess.Popen[bytes]) -> None:
    """Keep an idle warden for the next run in this process; it ends with the process."""
    _kept_wardens()[str(package)] = warden


def start_warden(package: Path) -> subprocess.Popen[bytes]:
    """Start a warden on this node.

    Args:
        package: The folder with its sources.
    """
    command = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(package)]
    with (package / "warden.log").open("ab") as log:
        warden = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    warden.wait()  # what goes on is its child
    return warden


def origin() -> list[object]:
    """The boot of this machine, its namespace of processes and the user, who together have one registry of slots."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return [boot, os.stat("/proc/self/ns/pid").st_ino, os.getuid()]  # noqa: PTH116


def _modified(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def _result(state: str, reason: str) -> dict[str, Any]:
    return {"state": state, "reason": reason, "exit_code": None, "runtime": 0.0}


def _addresses(order: dict[str, Any]) -> list[str]:
    """The addresses of the run's nodes, the first being this one's."""
    import ray

    if not order["group"]:  # all nodes are not asked for: of a large cluster that would be much for each run
        return [str(ray.util.get_node_ip_address())]  # type: ignore[no-untyped-call]
    here = ray.get_runtime_context().get_node_id()
    addresses: dict[str, str] = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
    table = ray.util.placement_group_table(ray.util.get_placement_group(order["name"]))
    nodes = [node for _, node in sorted((int(i), node) for i, node in table["bundles_to_node_id"].items())]
    return [addresses[node] for node in sorted(nodes, key=lambda node: node != here)]
