"""An HTTP API server that behaves like Kubernetes for what the runner uses, and really runs its pods as processes.

Like Kubernetes it checks names and labels, refuses a second object of a name (409), a change of what has changed
meanwhile (409), unknown objects (404), callers without a token (401) or without the right (403), and what exceeds a
quota (403). Jobs make pods, pods wait for nodes, images and Secrets, objects go with their owners. A pod's paths are
folders of its own on this machine; CPUs are held by affinity, memory by looking at it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest
from tests.engines import require
from tests.engines.kube_exec import ExecStream, accept_key
from tests.waiting import eventually

from tradewind.deployer.runner import procfs

Document = dict[str, Any]

TOKEN = "a-token-of-the-tests"
NAMESPACE = "tests"
_PATH = re.compile(r"/(?:api|apis/batch)/v1/namespaces/(?P<ns>[^/]+)/(?P<kind>\w+)(?:/(?P<name>[^/]+))?(?P<log>/log)?$")
_EXEC = re.compile(r"/api/v1/namespaces/(?P<ns>[^/]+)/pods/(?P<name>[^/]+)/exec$")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
_VARIABLE = re.compile(r"\$\$|\$\(\w+\)")
_TURN_SECONDS = 0.03
_LAG_SECONDS = 0.1


def moment(later: float = 0.0) -> str:
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, cpu: str = "4", memory: str = "8Gi", **given: Any) -> Document:
    """A node that is ready.

    Args:
        name: Its name.
        cpu: What pods may have of its CPUs.
        memory: And of its memory.
        given: ``labels``; ``spec``; ``ready``, the status of that condition; ``more``, of which it has some too.
    """
    return {
        "metadata": {"name": name, "labels": given.get("labels", {})},
        "spec": given.get("spec", {}),
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, **given.get("more", {})},
            "conditions": [{"type": "Ready", "status": given.get("ready", "True")}],
        },
    }


class Refusal(Exception):  # noqa: N818
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Container(threading.Thread):
    """Runs the containers of a pod, one after the other."""

    def __init__(self, cluster: KubeApi, pod: Document) -> None:
        super().__init__(daemon=True)
        self.cluster, self.pod, self.uid = cluster, pod, pod["metadata"]["uid"]
        self.folder = cluster.folder / self.uid
        self.processes: list[subprocess.Popen[bytes]] = []
        self.stopped = False
        self.commands: dict[str, tuple[Callable[[str], str], dict[str, str]]] = {}

    def run(self) -> None:
        spec = self.pod["spec"]
        paths = self._volumes(spec)
        fine = paths is not None
        for entry in spec["initContainers"]:
            fine = fine and self._whole(entry, "initContainerStatuses", paths or {})
        if fine:  # the containers run beside each other, and the pod ends with the last of them
            ends: list[bool] = []

            def run(entry: Document) -> None:
                ends.append(self._whole(entry, "containerStatuses", paths or {}))

            threads = [threading.Thread(target=run, args=(entry,), daemon=True) for entry in spec["containers"]]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            fine = all(ends)
        self._end("Succeeded" if fine else "Failed")

    def _whole(self, entry: Document, kind: str, paths: dict[str, Path]) -> bool:
        return self._pulled(entry, kind) and self._run(entry, kind, paths)

    def _end(self, phase: str) -> None:
        """The phase comes after what is said of the containers."""
        time.sleep(_LAG_SECONDS)
        with self.cluster.lock:
            self.pod["status"]["phase"] = phase

    def _volumes(self, spec: Document) -> dict[str, Path] | None:
        paths = {}
        for volume in spec["volumes"]:
            kind = "files" if "secret" in volume else "volumes"
            place = paths[volume["name"]] = self.folder / kind / volume["name"]
            place.mkdir(parents=True)
            if "persistentVolumeClaim" in volume:
                place.rmdir()
                place.symlink_to(self.cluster.folder / "claim")
                under = self.folder / "volumes" / "tradewind" / "work"  # a mount in a mount
                under.symlink_to(place / spec["containers"][0]["volumeMounts"][-1]["subPath"])
            if "secret" in volume:
                secret = self._secret(volume["secret"]["secretName"])
                if secret is None:
                    return None
                for name, value in secret["data"].items():
                    (place / name).write_bytes(base64.b64decode(value))
        return paths

    def _secret(self, name: str) -> Document | None:
        while not self.stopped:
            found = self.cluster.objects["secrets"].get(name)
            if found is not None:
                return found
            time.sleep(_TURN_SECONDS)
        return None

    def _set(self, kind: str, entry: Document, **state: Document) -> None:
        with self.cluster.lock:
            known = self.pod["status"].setdefault(kind, [])
            known[:] = [each for each in known if each["name"] != entry["name"]]
            known.append({"name": entry["name"], "image": entry["image"], "state": state})

    def _pulled(self, entry: Document, kind: str) -> bool:
        for reason in ("ErrImagePull", "ImagePullBackOff"):
            if "missing" not in entry["image"]:
                return True
            self._set(kind, entry, waiting={"reason": reason, "message": f"{entry['image']}: not found"})
            time.sleep(_TURN_SECONDS)
        while not self.stopped:
            time.sleep(_TURN_SECONDS)
        return False

    def _run(self, entry: Document, kind: str, paths: dict[str, Path]) -> bool:
        end = self.folder / f"{entry['name']}.end"
        places = {
            each["mountPath"]: str(paths[each["name"]] / each.get("subPath", "")) for each in entry["volumeMounts"]
        }
        places["/dev/termination-log"] = str(end)
        places["/tradewind-files"] = str(self.folder / "files")  # where the Secrets are mounted below

        def placed(text: str) -> str:
            for place in sorted(places, key=len, reverse=True):
                text = re.sub(rf"{re.escape(place)}(?=/|$)", places[place], text)
            text = _VARIABLE.sub(lambda found: "$" if found[0] == "$$" else found[0], text)
            # The cluster's names: all pods have the address of this machine.
            return "127.0.0.1" if text in self.cluster.objects["services"] else text

        variables = {each["name"]: placed(each["value"]) for each in entry["env"]}
        for source in entry.get("envFrom", ()):
            secret = self._secret(source["secretRef"]["name"])
            if secret is None:
                return False
            variables |= {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
        if "JOB_COMPLETION_INDEX" in self.pod:
            variables["JOB_COMPLETION_INDEX"] = self.pod["JOB_COMPLETION_INDEX"]
        variables = {"PATH": os.environ["PATH"], "POD_UID": self.uid, "POD_CONTAINER": entry["name"], **variables}
        limits = {"cpu": "1000m", **entry["resources"].get("limits", {})}
        count = -(-int(limits["cpu"].removesuffix("m")) // 1000)
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))
        command = ["taskset", "-c", cpus, *map(placed, [*entry["command"], *entry.get("args", ())])]
        began, log = moment(), self.folder / f"{entry['name']}.log"
        with self.cluster.lock, log.open("ab") as out:
            if self.stopped:
                return False
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env=variables,
                start_new_session=True,
            )
            self.processes.append(process)
            self.commands[entry["name"]] = placed, variables
        self._set(kind, entry, running={"startedAt": began})
        if "readinessProbe" in entry:
            probe = [placed(word) for word in entry["readinessProbe"]["exec"]["command"]]
            threading.Thread(target=self._probe, args=(process, probe, variables), daemon=True).start()
        memory = limits.get("memory", "")
        killed = self._watch(process, int(memory) if memory.isdigit() else 2**40)
        self.finish(entry["name"])
        code = process.returncode
        ended = {
            "exitCode": code if code >= 0 else 128 - code,
            "reason": "OOMKilled" if killed else "Completed" if code == 0 else "Error",
            "startedAt": began,
            "finishedAt": moment(),
            "message": end.read_text() if end.exists() else "",
        }
        self._set(kind, entry, terminated=ended)
        return code == 0

    def _probe(self, process: subprocess.Popen[bytes], probe: list[str], variables: dict[str, str]) -> None:
        """Ask a container again and again whether it is ready, and say so of its pod."""
        while process.poll() is None:
            done = subprocess.run(probe, env=variables, cwd=self.folder, capture_output=True, check=False)
            with self.cluster.lock:
                others = [each for each in self.pod["status"].get("conditions", ()) if each["type"] != "Ready"]
                ready = {"type": "Ready", "status": str(done.returncode == 0)}
                self.pod["status"]["conditions"] = [*others, ready]
            time.sleep(_LAG_SECONDS)

    def _watch(self, process: subprocess.Popen[bytes], memory: int) -> bool:
        """Wait for the end; True when a process was killed for its memory."""
        killed = False
        while process.poll() is None:
            try:
                sizes = {p: p.memory_info().rss for p in psutil.Process(process.pid).children(recursive=True)}
                if sum(sizes.values()) > memory:
                    max(sizes, key=lambda p: sizes[p]).kill()
                    killed = True
            except psutil.Error:
                continue
            finally:
                time.sleep(_TURN_SECONDS)
        return killed

    def finish(self, name: str = "") -> None:
        """End all processes of a container, as its end does; without a name of the whole pod."""
        for pid, ticks in procfs.start_times(procfs.all_pids()).items():
            if procfs.variable(pid, "POD_UID") == self.uid and name in ("", procfs.variable(pid, "POD_CONTAINER")):
                procfs.send(pid, ticks, signal.SIGKILL)

    def stop(self, grace: float) -> None:
        """What the deletion of a pod does."""
        with self.cluster.lock:
            self.stopped = True
            for process in self.processes:
                if process.poll() is None:
                    process.terminate()
        end = time.monotonic() + grace
        while self.is_alive() and time.monotonic() < end:
            time.sleep(_TURN_SECONDS)
        self.finish()


class KubeApi:
    """The cluster: its objects, its controllers, and the HTTP server before them.

    Attributes:
        objects: Kind -> name -> object.
        forbidden: Pairs of verb (``get``, ``list``, ``create``, ``patch``, ``delete``) and kind that are refused.
        quota: The most Jobs that there may be, or None.
        pod_quota: The most pods, or None; a Job whose pods exceed it waits.
        admission: With which words every pod is refused, or empty.
        node_types: The instance types of the nodes.
        nodes: The nodes that it lists; pods run on the first that has the labels and none that they keep away from,
            whatever room there is.
        elsewhere: Pods of other namespaces, which do nothing.
        collector_lag: Seconds between the garbage collector's look at an object's owners and its deletion.
        token: What callers must show.
        exec_version: Version of the protocol of commands in pods: 5, or 4 as before Kubernetes 1.30.
        restricted: Whether the namespace admits only pods of the Pod Security level of that name.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tw-kube-"))
        (self.folder / "claim").mkdir()
        self.lock = threading.RLock()
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._version = 0
        self._containers: dict[str, Container] = {}
        self._closed = threading.Event()
        self.reset()
        threading.Thread(target=self._control, daemon=True).start()
        self.start()

    def reset(self) -> None:
        with self.lock:
            self.objects: dict[str, dict[str, Document]] = {
                kind: {} for kind in ("jobs", "pods", "secrets", "services", "events")
            }
            self.forbidden: set[tuple[str, str]] = set()
            self.quota: int | None = None
            self.pod_quota: int | None = None
            self.admission = ""
            self.node_types = {"small"}
            self.nodes = [node("one"), node("two", cpu="3920m", labels={"disk": "fast"})]
            self.elsewhere: list[Document] = []
            self.collector_lag = _LAG_SECONDS
            self._doomed: dict[str, float] = {}
            self.token = TOKEN
            self.restricted = False
            self.exec_version = 5
            containers, self._containers = list(self._containers.values()), {}
        for container in containers:
            container.stop(0)

    # ------------------------------------------------------------------ the server

    def start(self) -> None:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                return

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if cluster._server is None:
                    self.close_connection = True
                    return
                try:
                    if self.headers.get("Upgrade") == "websocket":
                        self._run_command()
                        return
                    status, content = 200, cluster.answer(self.command, self.path, self.headers, body)
                except Refusal as refusal:
                    status = refusal.status
                    content = json.dumps(
                        {"kind": "Status", "status": "Failure", "reason": refusal.reason, "message": str(refusal)}
                    ).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _run_command(self) -> None:
                self.close_connection = True
                command, folder, env = cluster.command(self.path, self.headers)
                offered = self.headers["Sec-WebSocket-Protocol"].split(",")
                protocol = next(name for name in offered if int(name[1]) <= cluster.exec_version)
                self.send_response(101)
                self.send_header("Upgrade", "websocket")
                self.send_header("Connection", "Upgrade")
                self.send_header("Sec-WebSocket-Accept", accept_key(self.headers["Sec-WebSocket-Key"]))
                self.send_header("Sec-WebSocket-Protocol", protocol)
                self.end_headers()
                ExecStream(self.rfile, self.connection, int(protocol[1])).serve(command, folder, env)

            do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_: object) -> None:
                return

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def go_down(self) -> None:
        """The API stops answering; pods go on."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def close(self) -> None:
        self._closed.set()
        self.go_down()
        self.reset()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kubeconfig(self, path: Path, token: str = TOKEN) -> str:
        address = f"http://127.0.0.1:{self.port}"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "tests",
                    "clusters": [{"name": "tests", "cluster": {"server": address}}],
                    "users": [{"name": "tests", "user": {"token": token}}],
                    "contexts": [
                        {"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": NAMESPACE}}
                    ],
                }
            )
        )
        return str(path)

    def answer(self, method: str, address: str, headers: Any, body: bytes) -> bytes:
        if headers.get("Authorization") != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        url = urlsplit(address)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if method == "GET" and url.path in ("/api/v1/nodes", "/api/v1/pods"):
            return self._everywhere(url.path.rpartition("/")[2], query)
        match = _PATH.match(url.path)
        if match is None or match["kind"] not in self.objects:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        kind, name = match["kind"], match["name"]
        verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method, "get" if name else "list")
        if (verb, kind) in self.forbidden:
            words = (
                f'{kind} is forbidden: User "tests" cannot {verb} resource "{kind}" in the namespace "{match["ns"]}"'
            )
            raise Refusal(403, "Forbidden", words)
        with self.lock:
            if match["ns"] != NAMESPACE:
                if verb == "list":
                    return b'{"items": []}'
                raise Refusal(404, "NotFound", f'namespaces "{match["ns"]}" not found')
            if match["log"]:
                self._one("pods", name)
                pod = self.objects["pods"][name]["metadata"]["uid"]
                log = self.folder / pod / f"{query['container']}.log"
                return log.read_bytes() if log.exists() else b""
            if verb == "create":
                return json.dumps(self._create(kind, json.loads(body))).encode()
            if verb == "list":
                items = [each for each in self.objects[kind].values() if _selected(each, query)]
                return json.dumps({"items": items, "metadata": {}}).encode()
            if verb == "patch":
                return json.dumps(self._patch(kind, name, json.loads(body))).encode()
            found = self._one(kind, name)
            if verb == "delete":
                wanted = (json.loads(body) if body else {}).get("preconditions") or {}
                if any(found["metadata"][key] != value for key, value in wanted.items()):
                    raise Refusal(409, "Conflict", "the precondition does not hold")
                del self.objects[kind][name]
            return json.dumps(found).encode()

    def command(self, address: str, headers: Any) -> tuple[list[str], Path, dict[str, str]]:
        """What a command in a pod means here: its words, its folder and its variables."""
        if headers.get("Authorization") != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        url = urlsplit(address)
        query, match = parse_qs(url.query), _EXEC.match(url.path)
        if ("get", "pods/exec") in self.forbidden:
            raise Refusal(403, "Forbidden", 'pods "run" is forbidden: User "tests" cannot get resource "pods/exec"')
        with self.lock:
            if match is None or match["ns"] != NAMESPACE:
                raise Refusal(404, "NotFound", "the server could not find the requested resource")
            pod = self._one("pods", match["name"])
            container = self._containers.get(pod["metadata"]["uid"])
            known = container.commands.get(query["container"][0]) if container is not None else None
            if container is None or known is None:
                raise Refusal(500, "InternalError", f"container not found ({query['container'][0]!r})")
        placed, variables = known
        return [placed(word) for word in query["command"]], container.folder, variables

    def _everywhere(self, kind: str, query: dict[str, str]) -> bytes:
        if ("list", kind) in self.forbidden:
            words = (
                f'{kind} is forbidden: User "tests" cannot list resource "{kind}" in API group "" at the cluster scope'
            )
            raise Refusal(403, "Forbidden", words)
        with self.lock:
            all_of_them = self.nodes if kind == "nodes" else [*self.objects["pods"].values(), *self.elsewhere]
            items = [each for each in all_of_them if _selected(each, query)]
        return json.dumps({"items": items, "metadata": {}}).encode()

    def _one(self, kind: str, name: str) -> Document:
        if name not in self.objects[kind]:
            raise Refusal(404, "NotFound", f'{kind} "{name}" not found')
        return self.objects[kind][name]

    def _create(self, kind: str, document: Document) -> Document:
        about = document["metadata"]
        name = about["name"]
        if not _NAME.match(name) or len(name) > 63:
            raise Refusal(422, "Invalid", f"metadata.name: Invalid value: {name!r}")
        for key, value in about.get("labels", {}).items():
            if not _LABEL.match(value) or len(value) > 63:
                raise Refusal(422, "Invalid", f"metadata.labels: Invalid value: {value!r} of {key}")
        if sum(len(base64.b64decode(value)) for value in document.get("data", {}).values()) > 2**20:
            raise Refusal(422, "Invalid", "data: Too long: must have at most 1048576 bytes")
        if name in self.objects[kind]:
            raise Refusal(409, "AlreadyExists", f'{kind} "{name}" already exists')
        if kind == "jobs" and self.quota is not None and len(self.objects["jobs"]) >= self.quota:
            raise Refusal(
                403, "Forbidden", f'jobs.batch "{name}" is forbidden: exceeded quota: few, limited: count/jobs.batch'
            )
        about |= {"uid": str(uuid.uuid4()), "creationTimestamp": moment(), "namespace": NAMESPACE}
        document.setdefault("status", {})
        self.objects[kind][name] = document
        self._touch(document)
        return document

    def _touch(self, document: Document) -> None:
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)

    def _patch(self, kind: str, name: str, change: Document) -> Document:
        found = self._one(kind, name)
        version = change.get("metadata", {}).get("resourceVersion")
        if version is not None and version != found["metadata"]["resourceVersion"]:
            raise Refusal(
                409, "Conflict", "the object has been modified; please apply your changes to the latest version"
            )
        _merge(found, change)
        self._touch(found)
        return found

    # ------------------------------------------------------------------ the controllers

    def _control(self) -> None:
        while not self._closed.wait(_TURN_SECONDS):
            with self.lock:
                for job in list(self.objects["jobs"].values()):
                    self._control_job(job)
                self._collect_garbage()

    def _pods(self, job: Document) -> list[Document]:
        uid = job["metadata"]["uid"]
        return [pod for pod in self.objects["pods"].values() if pod["metadata"]["ownerReferences"][0]["uid"] == uid]

    def _control_job(self, job: Document) -> None:
        spec, status, pods = job["spec"], job["status"], self._pods(job)
        if any(each["status"] == "True" and each["type"] != "Suspended" for each in status.get("conditions", ())):
            return
        if spec.get("suspend"):
            status.pop("startTime", None)
            status["conditions"] = [{"type": "Suspended", "status": "True"}]
            return
        if "conditions" in status:
            status["conditions"] = [{"type": "Suspended", "status": "False"}]
        if spec["parallelism"] == 0:
            for pod in pods:
                if pod["status"]["phase"] in ("Pending", "Running"):
                    self.delete_pod(pod)
            return
        if not pods and "created" not in status:
            words = _insecure(spec["template"]["spec"]) if self.restricted else ""
            if self.pod_quota is not None and len(self.objects["pods"]) + spec["completions"] > self.pod_quota:
                limits = f"requested: pods=1, used: pods={len(self.objects['pods'])}, limited: pods={self.pod_quota}"
                words = f'pods "run" is forbidden: exceeded quota: few, {limits}'
            words = self.admission or words
            if words:
                about = {"kind": "Job", "name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
                event = {
                    "metadata": {"name": f"event-{job['metadata']['name']}"},
                    "involvedObject": about,
                    "reason": "FailedCreate",
                    "message": f"Error creating: {words}",
                    "type": "Warning",
                    "lastTimestamp": moment(),
                }
                self.objects["events"][event["metadata"]["name"]] = event  # type: ignore[index]
                return
            status.setdefault("startTime", moment())  # with the first pod, as Kubernetes 1.20 does
            status["created"] = True
            for number in range(spec["completions"]):
                self._make_pod(job, number)
            return
        for pod in pods:
            self._schedule(pod)
        failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"] or len(pods) < spec["completions"]
        first = [pod for pod in pods if pod.get("JOB_COMPLETION_INDEX", "0") == "0"]
        done = bool(first) and first[0]["status"]["phase"] == "Succeeded"
        if failed or done:
            status["conditions"] = [{"type": "Failed" if failed else "Complete", "status": "True"}]
            for pod in pods:
                if pod["status"]["phase"] in ("Pending", "Running"):
                    self.delete_pod(pod)

    def _make_pod(self, job: Document, number: int) -> None:
        about, template = job["metadata"], json.loads(json.dumps(job["spec"]["template"]))
        name = f"{about['name']}-{number}-{uuid.uuid4().hex[:5]}"
        assert len(name) <= 63
        labels = {**template["metadata"]["labels"], "job-name": about["name"], "controller-uid": about["uid"]}
        pod = {
            "metadata": {
                **template["metadata"],
                "name": name,
                "labels": labels,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": moment(),
                "ownerReferences": [{"kind": "Job", "name": about["name"], "uid": about["uid"]}],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }
        if job["spec"].get("completionMode") == "Indexed":
            pod["JOB_COMPLETION_INDEX"] = str(number)
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(number)
        self._touch(pod)
        self.objects["pods"][name] = pod

    def _schedule(self, pod: Document) -> None:
        uid, status = pod["metadata"]["uid"], pod["status"]
        if uid in self._containers or status["phase"] != "Pending":
            return
        wanted = pod["spec"]["nodeSelector"].get("node.kubernetes.io/instance-type")
        place = self._place(pod)
        if place is None or (wanted is not None and wanted not in self.node_types):
            words = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
            status["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
            ]
            return
        pod["spec"]["nodeName"] = place
        status |= {"phase": "Running", "startTime": moment()}
        container = self._containers[uid] = Container(self, pod)
        container.start()

    def _place(self, pod: Document) -> str | None:
        """The node for a pod; None where it has none."""
        labels = pod["spec"]["nodeSelector"].items() - {
            each for each in pod["spec"]["nodeSelector"].items() if each[0].endswith("/instance-type")
        }
        affinity = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
        taken = {
            other["spec"].get("nodeName")
            for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())
            for other in self.objects["pods"].values()
            if other is not pod and term["labelSelector"]["matchLabels"].items() <= other["metadata"]["labels"].items()
        }
        names = [each["metadata"]["name"] for each in self.nodes if labels <= each["metadata"]["labels"].items()]
        return next((name for name in names if name not in taken), None)

    def delete_pod(self, pod: Document) -> None:
        """Take a pod away, gracefully."""
        if "deletionTimestamp" in pod["metadata"]:
            return
        pod["metadata"]["deletionTimestamp"] = moment(pod["spec"]["terminationGracePeriodSeconds"])
        container = self._containers.get(pod["metadata"]["uid"])

        def end() -> None:
            if container is not None:
                container.stop(2.0)
            with self.lock:
                self.objects["pods"].pop(pod["metadata"]["name"], None)

        threading.Thread(target=end, daemon=True).start()

    def evict(self, run_id: str, why: str = "The node was low on resource: disk.", role: str = "") -> None:
        """A node is short of something, and takes the pod of a run away, where there are two that of a role."""
        with self.lock:
            [pod] = [
                each
                for each in self.objects["pods"].values()
                if each["metadata"]["annotations"]["tradewind/run"] == run_id
                and role in ("", each["metadata"]["labels"].get("tradewind/role"))
            ]
            container = self._containers[pod["metadata"]["uid"]]
        container.stop(0)
        container.join(5)
        with self.lock:
            pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": why}

    def _collect_garbage(self) -> None:
        uids = {job["metadata"]["uid"] for job in self.objects["jobs"].values()}
        for kind in ("jobs", "pods", "secrets", "services"):
            for name, each in list(self.objects[kind].items()):
                owners = each["metadata"].get("ownerReferences") or []
                uid = each["metadata"]["uid"]
                if uid in self._doomed:
                    # It is by its uid that it is deleted, whoever has joined its owners since they were looked at.
                    if time.monotonic() > self._doomed[uid]:
                        del self._doomed[uid], self.objects[kind][name]
                elif owners and not any(owner["uid"] in uids for owner in owners):
                    if kind == "pods":
                        self.delete_pod(each)
                    else:
                        self._doomed[uid] = time.monotonic() + self.collector_lag


def _insecure(pod: Document) -> str:
    """Why the Pod Security level "restricted" does not admit a pod; empty where it does."""
    about = pod.get("securityContext", {})
    faults = []
    for container in (*pod["initContainers"], *pod["containers"]):
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            faults.append("allowPrivilegeEscalation != false")
        if own.get("capabilities", {}).get("drop") != ["ALL"]:
            faults.append("unrestricted capabilities")
    if about.get("runAsNonRoot") is not True:
        faults.append("runAsNonRoot != true")
    if about.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
        faults.append("seccompProfile")
    words = 'pods "run" is forbidden: violates PodSecurity "restricted:latest": '
    return words + ", ".join(dict.fromkeys(faults)) if faults else ""


def _selected(document: Document, query: dict[str, str]) -> bool:
    labels = document["metadata"].get("labels", {})
    phases = re.findall(r"status\.phase!=(\w+)", query.get("fieldSelector", ""))
    if document.get("status", {}).get("phase", "") in phases:
        return False
    for several in re.finditer(r"([^,=\s]+) in \(([^)]*)\)", query.get("labelSelector", "")):
        if labels.get(several[1]) not in several[2].split(","):
            return False
    plain = re.sub(r"[^,=\s]+ in \([^)]*\)", "", query.get("labelSelector", ""))
    for part in filter(None, plain.split(",")):
        key, _, value = part.partition("=")
        if (labels.get(key.removesuffix("!")) == value) == key.endswith("!"):
            return False
    return True


def _merge(target: Document, change: Document) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif value is None:
            target.pop(key, None)
        else:
            target[key] = value


@pytest.fixture(scope="session")
def kube_cluster() -> Iterator[KubeApi]:
    """The API server; its pods end with it."""
    require("busybox", "taskset", package="busybox-static util-linux", root=False)
    cluster = KubeApi()
    try:
        eventually(lambda: cluster.port, 5, "the API server")
        yield cluster
    finally:
        cluster.close()
