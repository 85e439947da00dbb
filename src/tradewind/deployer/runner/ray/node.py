"""What runs on the nodes of a Ray cluster: the actor of a run, and the tasks that read its files.

It is sent there by value, so that nothing but Ray need be installed: it uses the standard library and Ray only. The
actor starts a warden (see `tradewind.deployer.runner.ray.warden`), whose sources are in the cluster's store, and the
warden starts the job. The actor writes where the run is into that store, which the head keeps, and goes when the run
has ended, so that its CPUs are free again; its files stay until the run is settled.

Keys in the store, each followed by the run: ``run/`` what was asked for, ``claim/`` who may start it (written once, by
the actor or by who cancels it), ``state/`` where it is, ``cancel/`` that and why it shall end, ``end/`` how it ended.
An archive of files is in ``bundle/`` and ``piece/``, once for all runs that have a note in ``uses/``; the last of them
to be settled takes it away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any

BOOTSTRAP = """
import os, sys, types
if os.fork():  # Ray kills the children of a worker that ends: the warden is none, and ends its jobs first
    os._exit(0)
os.setsid()
name, path = "tradewind", sys.argv[1]
for part in ("", "deployer", "runner"):
    if part:
        name, path = name + "." + part, path + "/" + part
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module
from tradewind.deployer.runner.ray.warden import main
main()
"""
FOLDER = "{folder}"
"""What stands in an order's environment for the run's folder, which only the node knows."""

PACKED = "collect.tar"
"""The file, in the run's folder, that `gather` makes."""

STDOUT, STDERR, METRICS, OUTPUTS = "stdout", "stderr", "metrics.jsonl", "outputs"
_PREFIX = "tradewind-ray-"
_PIECE = 4 << 20
_RETRY_SECONDS = 1.0
_KEPT_SECONDS = 86400.0


def put(space: str, key: str, document: Any, *, overwrite: bool = True) -> bool:
    """Write a document into the cluster's store; False when it was there and is not to be overwritten."""
    from ray.experimental import internal_kv

    value = json.dumps(document).encode()
    return not internal_kv._internal_kv_put(key.encode(), value, overwrite, namespace=space.encode()) or overwrite


def get_bytes(space: str, key: str) -> bytes:
    """A value of the cluster's store; empty if there is none."""
    from ray.experimental import internal_kv

    return internal_kv._internal_kv_get(key.encode(), namespace=space.encode()) or b""


def get(space: str, key: str) -> Any:
    """A document of the cluster's store, or None."""
    return json.loads(get_bytes(space, key) or b"null")


class RunActor:
    """One run: claims it, starts it, writes down where it is and how it ended, and goes.

    Args:
        order: What the runner asked for; see `tradewind.deployer.runner.ray.driver`.
    """

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._space = order["space"]
        self._key = order["key"]
        self._lock = threading.Lock()
        self._told = threading.Event()
        self._secrets: dict[str, str] = {}
        self._warden: subprocess.Popen[bytes] | None = None
        self._reason: str | None = None
        threading.Thread(target=self._live, name="tradewind-run", daemon=True).start()

    def begin(self, secrets: dict[str, str]) -> None:
        """Take the values of the secrets, without which the job is not started."""
        if not self._told.is_set():
            self._secrets = secrets
            self._told.set()

    def cancel(self, reason: str) -> None:
        """End the job."""
        with self._lock:
            self._reason = reason
            self._told.set()
            if self._warden is not None:
                self._send({"op": "cancel", "run_id": self._order["run_id"], "reason": reason, "grace": 0.0})

    def _live(self) -> None:
        try:
            if not put(self._space, f"claim/{self._key}", {"by": "actor"}, overwrite=False):
                return
            self._end(self._carry_out())
        finally:
            self._go()

    def _carry_out(self) -> dict[str, Any]:
        """The result of the run."""
        order = self._order
        try:
            import ray

            context = ray.get_runtime_context()
            folder = self._folder()
            place = {"node": context.get_node_id(), "folder": str(folder), "placed": time.time()}
            self._note("waiting" if order["secrets"] else "starting", place)
            if order["secrets"] and not self._told.wait(max(1.0, order["lasts"])):
                return _result("preempted", "its secrets did not come before its lease ended")
            self._unpack(folder)
            return self._run(folder, place)
        except OSError as error:
            return _result("preempted", f"the node cannot start it: {error.strerror or error}: {error.filename or ''}")
        except Exception as error:
            return _result("preempted", f"the node cannot start it: {type(error).__name__}: {error}")

    def _folder(self) -> Path:
        name = hashlib.sha256(f"{self._space}/{self._key}".encode()).hexdigest()[:24]
        scratch = Path(self._order["scratch"] or tempfile.gettempdir())
        _sweep(scratch)
        folder = scratch / (_PREFIX + name)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lease(folder)
        return folder

    def _lease(self, folder: Path) -> None:
        """Note when the files may go: the run's lease counts from now, as it did not begin before."""
        note = folder / "expires.part"
        note.write_text(repr(time.time() + self._order["lasts"]), encoding="ascii")
        note.replace(folder / "expires")

    def _unpack(self, folder: Path) -> None:
        """Make the working folder and the inputs."""
        for name, digest in self._order["bundles"].items():
            (folder / name).mkdir(exist_ok=True)
            with self._bundle(digest, folder.with_name(f"{_PREFIX}bundles")).open("rb") as file:
                _extract(file, folder / name)
        for name in ("work", "inputs", OUTPUTS):
            (folder / name).mkdir(exist_ok=True)

    def _bundle(self, digest: str, cache: Path) -> Path:
        """An archive of the cluster's store, which this node keeps for the next run."""
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

    def _run(self, folder: Path, place: dict[str, Any]) -> dict[str, Any]:
        order = self._order
        environment = self._environment(folder)
        warden = self._start_warden(folder)
        assert warden.stdout is not None
        with self._lock:
            if self._reason is not None:
                return _result("cancelled", self._reason)
            self._warden = warden
            self._send({**order["warden"], "folder": str(folder), "cwd": f"{folder}/work", "env": environment})
        for line in warden.stdout:
            event = json.loads(line)
            if event["event"] == "started":
                self._note("executing", {**place, "started": time.time()})
                with contextlib.suppress(OSError):  # the disk is full: the job goes on
                    self._lease(folder)
            elif event["event"] == "refused":
                return self._refused(event)
            else:
                result: dict[str, Any] = event["result"]
                return result
        return _result("preempted", "the process that watched it was killed")

    def _start_warden(self, folder: Path) -> subprocess.Popen[bytes]:
        package = folder / "code"
        for name, text in get(self._space, f"code/{self._order['code']}").items():
            (package / name).parent.mkdir(parents=True, exist_ok=True)
            (package / name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-I", "-S", "-c", BOOTSTRAP, str(package)]
        with (folder / "warden.log").open("ab") as log:
            warden = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        warden.wait()  # what goes on is its child
        return warden

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
            return {**_result("failed", f"there is no program {program!r} on the node: {why}"), "exit_code": 127}
        return _result("preempted", f"the node cannot start it: {os.strerror(event['errno'] or 0)}")

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

    def _go(self) -> None:
        import ray

        try:
            group = self._order["group"] and ray.util.get_placement_group(self._order["name"])
            if group:
                ray.util.remove_placement_group(group)
        finally:
            ray.kill(ray.get_runtime_context().current_actor)


def _result(state: str, reason: str) -> dict[str, Any]:
    return {"state": state, "reason": reason, "exit_code": None, "runtime": 0.0}


def _addresses(order: dict[str, Any]) -> list[str]:
    """The addresses of the run's nodes, the first being this one's."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    addresses: dict[str, str] = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}  # type: ignore[no-untyped-call]
    if not order["group"]:
        return [addresses[here]]
    table = ray.util.placement_group_table(ray.util.get_placement_group(order["name"]))
    nodes = [node for _, node in sorted((int(i), node) for i, node in table["bundles_to_node_id"].items())]
    return [addresses[node] for node in sorted(nodes, key=lambda node: node != here)]


def _extract(stream: Any, folder: Path) -> None:
    """Unpack an archive that the runner made."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)  # noqa: S202  (an old Python; the runner made it)


def _sweep(scratch: Path) -> None:
    """Remove the files of runs that nobody settled for a day after their lease ended, and archives unused for a day."""
    for note in scratch.glob(f"{_PREFIX}*/expires"):
        try:
            expires = float(note.read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if time.time() > expires + _KEPT_SECONDS:
            shutil.rmtree(note.parent, ignore_errors=True)
    for archive in scratch.glob(f"{_PREFIX}bundles/*"):
        with contextlib.suppress(OSError):
            if time.time() > archive.stat().st_mtime + _KEPT_SECONDS:
                archive.unlink()


def gather(folder: str, patterns: list[str], limit: int) -> tuple[int, bytes]:
    """Pack the logs, the metrics and the kept outputs of a run into one tar.

    Args:
        folder: The run's folder on this node.
        patterns: Which files below the working folder are kept, beside all in the outputs folder.
        limit: Bytes that they may have together.

    Returns:
        The size of the tar, and its first piece. A size of -1: there is more than the limit.
    """
    root = Path(folder).resolve()
    work, outputs = root / "work", root / OUTPUTS
    wanted = {name: root / name for name in (STDOUT, STDERR, METRICS)}
    for found in [each for pattern in patterns for each in work.glob(pattern)]:
        wanted |= {f"{OUTPUTS}/{os.path.relpath(path, work)}": path for path in _files(found)}
    wanted |= {f"{OUTPUTS}/{path.relative_to(outputs)}": path for path in _files(outputs)}
    # Nothing outside of the run's folder is sent, whatever the job linked to.
    inside = {name: path for name, path in wanted.items() if path.is_file() and root in path.resolve().parents}
    if sum(path.stat().st_size for path in inside.values()) > limit:
        return -1, b""
    target = root / PACKED
    with tarfile.open(target, "w", dereference=True) as tar:
        for name, path in inside.items():
            tar.add(path, name, recursive=False)
    return target.stat().st_size, piece(str(target), 0)


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    return [Path(top) / name for top, _, names in os.walk(place) for name in names]


def piece(path: str, offset: int) -> bytes:
    """Some bytes of a file from an offset on; none when there is no such file."""
    try:
        with Path(path).open("rb") as file:
            file.seek(offset)
            return file.read(_PIECE)
    except OSError:
        return b""


def remove(folder: str) -> None:
    """Remove the files of a run."""
    if Path(folder).name.startswith(_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
