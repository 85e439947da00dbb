"""The helper process of the Ray runner: the only one that imports Ray.

A process that is connected to a Ray cluster is ended by Ray when the cluster's head is gone for a minute, and starting
one takes seconds: so it is not the controller. `tradewind.deployer.runner.ray.driver_client` starts it, with the Python
whose Ray fits the cluster's, and it imports the standard library and Ray only. It reads JSON lines, each a call with an
``id`` and an ``op``, and answers with JSON lines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.ray import kv_store, node_files, scheduling, supervisor_actor
from tradewind.deployer.runner.ray import node_executor as ray_node
from tradewind.deployer.runner.ray.kv_store import ArchiveStore, delete, get, get_bytes, put
from tradewind.deployer.runner.ray.scheduling import fitting_nodes, shortage
from tradewind.deployer.runner.ray.supervisor_actor import name_of
from tradewind.deployer.runner.ray.supervisor_client import Document, RunEndNotifier, SupervisorClient

_KINDS = ("end", "cancel", "state", "run")
_KEPT = ("state", "cancel", "packed", "end", "claim")
_TASK_SECONDS = 60.0
_LEAVE_SECONDS = 5.0
_ROOM_SECONDS = 2.0
_KNOWN_SECONDS = 60.0
_AT_ONCE = 64


class DriverRefusal(Exception):  # noqa: N818  (it is an answer)
    """A call that cannot be done; ``kind`` names the error that the runner raises."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Driver:
    """A connection to a Ray cluster.

    Calls name Ray's namespace of the runs, and ``space``, which is the part of the store that belongs to it.

    Args:
        address: The cluster, as ``ray.init`` takes it; empty for the one of this machine.
        code: The sources of the warden, by file name.
    """

    def __init__(self, address: str, code: dict[str, str]) -> None:
        _knock(address)
        import ray

        ray.init(address=address or "auto", namespace="tradewind", log_to_driver=False, logging_level=logging.ERROR)
        self._ray: Any = ray
        modules = (node_files, supervisor_actor, scheduling, ray_node, kv_store)
        for module in modules:
            self._ray.cloudpickle.register_pickle_by_value(module)
        self._actor: Any = ray.remote(ray_node.RunActor)
        tasks = (
            node_files.gather,
            node_files.piece,
            node_files.remove,
            node_files.look_at_checkpoint,
            node_files.gather_checkpoint,
        )
        self._tasks = {task.__name__: ray.remote(task) for task in tasks}
        self._code = hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()
        self._sources = code
        self._sent: set[str] = set()  # parts of the store that have the sources
        self._room: tuple[float, list[Document]] = (0.0, [])
        self._deletes = ThreadPoolExecutor(len(_KEPT))
        texts = [Path(module.__file__ or "").read_bytes() for module in modules]
        version = hashlib.sha256(b"".join((*texts, self._code.encode()))).hexdigest()
        self._supervisors = SupervisorClient(ray, version)
        self._run_ends = RunEndNotifier(self._supervisors.ended)
        self._archives = ArchiveStore()

    def submit(self, namespace: str, order: Document) -> Document:
        """Have a run carried out, unless it is under way or has ended.

        Args:
            namespace: Ray's namespace of the runs.
            order: The run, as `RayRunner` writes it: command, files, resources, limits and secrets.

        Returns:
            An empty document.

        Raises:
            DriverRefusal: No node could ever have it (``capacity``), or the cluster does not take it (``unreachable``).
        """
        key, space = order["key"], space_of(namespace)
        if space not in self._sent:
            put(space, f"code/{self._code}", self._sources, overwrite=False)
            self._sent.add(space)
        new = put(space, f"run/{key}", order.pop("record"), overwrite=False)
        if not new and get(space, f"claim/{key}") is not None:
            return {}
        self._check_room(order)
        for path, digest in order.pop("archives"):
            self._archives.bring(space, key, digest, Path(path))
        order = {**order, "space": space, "code": self._code}
        secrets = order.pop("values")
        resources = dict(order["resources"])
        options: Document = {
            "num_cpus": resources.pop("CPU"),
            "num_gpus": resources.pop("GPU", 0),
            "memory": resources.pop("memory", None),
            "resources": resources or None,
        }
        options = {name: value for name, value in options.items() if value is not None}
        if order["actor"] or order["group"]:
            self._make_actor(namespace, order, secrets, options)
        elif not self._supervisors.submit(order, secrets, options):
            raise DriverRefusal("unreachable", "the cluster has not taken the run")
        return {}

    def _make_actor(self, namespace: str, order: Document, secrets: dict[str, str], options: Document) -> None:
        options |= {
            "name": order["name"],
            "namespace": namespace,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": 0,
            "max_concurrency": 4,
        }
        if order["group"]:
            options["scheduling_strategy"] = self._group(order)
        actor = self._actor.options(**options).remote(order)
        if secrets:
            actor.begin.remote(secrets)
        # Ray makes the actor known later: until then a poll would take the run for one that is gone.
        until = time.monotonic() + _KNOWN_SECONDS
        while (
            order["name"] not in _living(namespace, self._actors())
            and get(order["space"], f"claim/{order['key']}") is None
        ):
            if time.monotonic() > until:
                raise DriverRefusal("unreachable", "the cluster has not taken the run")
            time.sleep(0.01)

    def _group(self, order: Document) -> Any:
        from ray.util.placement_group import get_placement_group, placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        try:
            group = get_placement_group(order["name"])
        except ValueError:
            bundles = [dict(order["resources"]) for _ in range(order["group"])]
            group = placement_group(bundles, strategy="STRICT_SPREAD", name=order["name"], lifetime="detached")
        return PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)

    def _check_room(self, order: Document) -> None:
        """Refuse a run that no node could ever have: Ray would let it wait for ever."""
        if order["grows"]:
            return
        wanted, count = order["resources"], max(1, order["group"])
        if fitting_nodes(wanted, self._totals()) < count and fitting_nodes(wanted, self._totals(now=True)) < count:
            raise DriverRefusal("capacity", shortage(wanted, count, self._totals()))

    def _totals(self, *, now: bool = False) -> list[dict[str, float]]:
        """The total resources of each node that is alive, as they were seconds ago."""
        if now or time.monotonic() - self._room[0] > _ROOM_SECONDS:
            alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            self._room = time.monotonic(), alive
        return self._room[1]

    def room(self, namespace: str) -> list[dict[str, float]]:
        """The total resources of each node that is alive, by Ray's names, in Ray's units (memory in bytes)."""
        return self._totals()

    def nodes(self, namespace: str) -> Document:
        """CPUs, GiB of memory and GPUs of the nodes that are alive and take runs, by name."""
        found = {}
        for node in self._ray.nodes():
            has = node["Resources"]
            # A head without CPUs takes none; its memory would make all shares of memory too small.
            if node["Alive"] and has.get("CPU", 0.0) > 0:
                amounts = {
                    "cpu": has.get("CPU", 0.0),
                    "memory": has.get("memory", 0.0) / 2**30,
                    "gpu": has.get("GPU", 0),
                }
                found[f"{node['NodeName']}/{node['NodeID'][:8]}"] = {k: float(v) for k, v in amounts.items() if v}
        return found

    def _actors(self) -> list[Document]:
        named: list[Document] = self._ray.util.list_named_actors(all_namespaces=True)
        return named

    def poll(self, namespace: str, keys: dict[str, str]) -> Document:
        """Read the records of some runs (run id -> key); ``live`` is true while one waits or is carried out."""
        actors = self._actors()
        live, kept = _living(namespace, actors), self._supervisors.live(space_of(namespace), actors)
        # In this order: one that has ended since has left its result.
        found = self._read(space_of(namespace), [f"{kind}/{key}" for key in keys.values() for kind in _KINDS])
        return {
            run_id: {**{kind: found.get(f"{kind}/{key}") for kind in _KINDS}, "live": run_id in live or key in kept}
            for run_id, key in keys.items()
        }

    def await_one(self, namespace: str, who: str, keys: list[str], tell: Callable[[], None]) -> None:
        """Have ``tell`` called when one of some runs has ended; see `RunEndNotifier.await_one`."""
        self._run_ends.await_one(who, [name_of(space_of(namespace), key) for key in keys], tell)

    def _read(self, space: str, keys: list[str]) -> dict[str, Any]:
        from ray.experimental import internal_kv

        client: Any = internal_kv.internal_kv_get_gcs_client()  # type: ignore[no-untyped-call]
        if client is None:  # a client of Ray, outside of the cluster, asks for each
            values = {key: get(space, key) for key in keys}
            return {key: value for key, value in values.items() if value is not None}
        found = client.internal_kv_multi_get([key.encode() for key in keys], space.encode())
        return {key.decode(): json.loads(value) for key, value in found.items()}

    def begin(self, namespace: str, key: str, name: str, values: dict[str, str]) -> None:
        """Send a run its secrets once more."""
        self._supervisors.tell(name_of(space_of(namespace), key), values)
        with contextlib.suppress(ValueError):
            self._ray.get_actor(name, namespace).begin.remote(values)

    def cancel(self, namespace: str, key: str, name: str, reason: str) -> None:
        """End a run; one that has not been started never will be."""
        space = space_of(namespace)
        if get(space, f"run/{key}") is None or get(space, f"end/{key}") is not None:
            return
        again = not put(space, f"cancel/{key}", {"reason": reason}, overwrite=False)
        unborn = put(space, f"claim/{key}", {"by": "cancel"}, overwrite=False)
        if unborn:
            put(space, f"end/{key}", {"state": "cancelled", "reason": reason, "exit_code": None, "runtime": 0.0})
        self._supervisors.cancel(name_of(space, key), reason, unborn=unborn, again=again)
        try:
            actor = self._ray.get_actor(name, namespace)
        except ValueError:
            self._drop_group(name)
            return
        if not (unborn or again):
            actor.cancel.remote(reason)
            return
        # It never began, or it did not listen the first time.
        self._ray.kill(actor)
        self._drop_group(name)

    def _drop_group(self, name: str) -> None:
        with contextlib.suppress(ValueError):
            self._ray.util.remove_placement_group(self._ray.util.get_placement_group(name))

    def find(self, namespace: str, owner: str | None) -> list[Document]:
        """The records of the runs of an owner (quoted), or of all, that are not settled."""
        from ray.experimental import internal_kv

        prefix = "run/" if owner is None else f"run/{owner}/"
        keys = internal_kv._internal_kv_list(prefix.encode(), namespace=space_of(namespace).encode())
        return list(self._read(space_of(namespace), [key.decode() for key in keys]).values()) if keys else []

    def fetch(self, namespace: str, key: str, patterns: list[str], limit: int, target: str) -> bool:
        """Bring the files of a run into a tar here; False when the run never had a folder."""
        place = get(space_of(namespace), f"state/{key}")
        if place is None:
            return False
        if packed := get_bytes(space_of(namespace), f"packed/{key}"):
            Path(target).write_bytes(zlib.decompress(packed))
            return True
        size, content = self._on(place["node"], "gather", place["folder"], patterns, limit)
        if size < 0:
            raise DriverRefusal("large", "there is more")
        self._bring(place, node_files.PACKED, size, content, target)
        return True

    def _bring(self, place: Document, name: str, size: int, content: bytes, target: str) -> None:
        """Write a file of a run's folder here, whose first piece is here already."""
        with Path(target).open("wb") as file:
            while content:
                file.write(content)
                if file.tell() >= size:
                    break
                content = self._on(place["node"], "piece", f"{place['folder']}/{name}", file.tell())

    def look_at_checkpoint(self, namespace: str, key: str) -> Document:
        """Look at the checkpoint files of a run: ``fingerprint``, empty without any, and ``age`` in seconds."""
        place = get(space_of(namespace), f"state/{key}")
        fingerprint, age = (
            ("", 0.0) if place is None else self._on(place["node"], "look_at_checkpoint", place["folder"])
        )
        return {"fingerprint": fingerprint, "age": age}

    def fetch_checkpoint(self, namespace: str, key: str, limit: int, target: str) -> Document:
        """Bring the checkpoint files of a run into a tar here, and say the same of them as `look_at_checkpoint`."""
        place = get(space_of(namespace), f"state/{key}")
        if place is None:
            return {"fingerprint": "", "age": 0.0}
        size, content, fingerprint, age = self._on(place["node"], "gather_checkpoint", place["folder"], limit)
        if size < 0:
            raise DriverRefusal("large", "there is more")
        if size:
            self._bring(place, node_files.PACKED_CHECKPOINT, size, content, target)
        return {"fingerprint": fingerprint, "age": age}

    def read(self, namespace: str, key: str, stream: str, offset: int) -> str | None:
        """Read a file of a run from a byte on, decoded as Latin-1; None when its files are not there."""
        place = get(space_of(namespace), f"state/{key}")
        if place is None:
            return None
        content: bytes = self._on(place["node"], "piece", f"{place['folder']}/{stream}", offset)
        return content.decode("latin-1")

    def _on(self, node: str, task: str, *arguments: Any) -> Any:
        """Run a task on a node and return its result.

        Raises:
            DriverRefusal: The node does not answer in time, or is gone (``node``).
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(node, soft=False)
        work = self._tasks[task].options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote(*arguments)
        try:
            return self._ray.get(work, timeout=_TASK_SECONDS)
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            raise DriverRefusal("node", f"node {node[:12]} does not give its files: {type(error).__name__}") from None

    def forget(self, namespace: str, key: str, name: str) -> None:
        """Remove all that the cluster keeps of a run."""
        space = space_of(namespace)
        place, record = get(space, f"state/{key}"), get(space, f"run/{key}") or {}
        self._archives.drop(space, key, record.get("bundles", ()))
        self._drop_group(name)
        # The record goes last: until then the run is found.
        list(self._deletes.map(lambda kind: delete(space, f"{kind}/{key}"), _KEPT))
        delete(space, f"run/{key}")
        if place is not None and not self._supervisors.remove(place["node"], place["folder"]):
            with contextlib.suppress(DriverRefusal):
                self._on(place["node"], "remove", place["folder"])


def space_of(namespace: str) -> str:
    """The part of the cluster's store for a namespace, without colons: Ray could not tell the key from its part."""
    return "tradewind-" + namespace.replace(":", "-")


def _living(namespace: str, actors: list[Document]) -> set[str]:
    """The names of the actors of a namespace."""
    return {each["name"] for each in actors if each["namespace"] == namespace}


def _knock(address: str) -> None:
    """Fail at once where nobody answers; Ray would try for a minute."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise DriverRefusal("unreachable", f"nobody answers at {address}: {error.strerror or error}") from None


def _kind_of(error: BaseException) -> str:
    """The kind of a Ray error, from its words, for `RayDriverClient` to raise as a typed error."""
    words = f"{type(error).__name__} {error}".lower()
    if "wrongclusterid" in words:  # before the next: Ray speaks of tokens then too
        return "restarted"
    if "authentication" in words or "unauthenticated" in words or "authtoken" in words:
        return "credentials"
    if "version mismatch" in words or "same version" in words:
        return "version"
    if isinstance(error, ConnectionError) or "gcs" in words or "connect" in words:
        return "unreachable"
    return "other"


def main() -> None:
    """Serve calls until standard input is closed."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Ray prints; the answers stay clean
    lock = threading.Lock()

    def answer(document: Document) -> None:
        with lock, contextlib.suppress(OSError):
            answers.write(json.dumps(document) + "\n")
            answers.flush()

    def carry_out(call: Document) -> None:
        number, op = call.pop("id"), call.pop("op")
        try:
            answer({"id": number, "answer": getattr(driver, op)(**call)})
        except BaseException as error:
            kind = error.kind if isinstance(error, DriverRefusal) else _kind_of(error)
            answer({"id": number, "error": kind, "message": f"{error}" or type(error).__name__})

    first = json.loads(sys.stdin.readline())
    try:
        driver = Driver(first["address"], first["code"])
    except BaseException as error:
        kind = error.kind if isinstance(error, DriverRefusal) else _kind_of(error)
        if isinstance(error, ImportError):
            kind = "missing"
        answer({"id": 0, "error": kind, "message": str(error)})
        return
    answer({"id": 0, "answer": {}})
    pool = ThreadPoolExecutor(_AT_ONCE)
    for line in sys.stdin:
        call = json.loads(line)
        if call["op"] == "leave":
            threading.Timer(_LEAVE_SECONDS, os._exit, (0,)).start()
            pool.shutdown(wait=True)
            break
        if call["op"] == "await_one":  # it may last: no thread waits for it
            number, op = call.pop("id"), call.pop("op")
            driver.await_one(**call, tell=partial(answer, {"id": number, "answer": op}))
            continue
        pool.submit(carry_out, call)
    # A controller that was killed has a successor soon: nothing may be made behind its back.
    os._exit(0)
