"""The objects of a run on Kubernetes: its Job, its secrets, the archive of its files, and the script in its pods.

A pod begins with a step in the helper image, which puts a static busybox and the unpacked files into a folder that the
pod's containers share. The job's own image needs nothing: the script below runs in that busybox and starts the job's
command by its path in the image. What the job writes goes, marked line by line, into the log of the pod, and at the
end an archive of logs, metrics and outputs, as text. The run's figures are in the pod's termination message.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tradewind.deployer.environment import job_environment
from tradewind.deployer.runner.kubernetes.api import Document
from tradewind.deployer.runner.kubernetes.pod_scripts import PREPARE
from tradewind.deployer.runner.kubernetes.settings import INSTANCE_TYPE, KubernetesSettings
from tradewind.deployer.runner.load_generators import posix_pattern
from tradewind.deployer.runner.log_limit import log_words
from tradewind.deployer.runner.resource_limits import cpus_of, memory_of, whole_gpus
from tradewind.problem import Load, RunRequest

MANAGED = "app.kubernetes.io/managed-by=tradewind"
"""The label of all objects that are made here, as a selector."""

OWNER, RUN, EXPIRES, ENDING, FACTS = (f"tradewind/{name}" for name in ("owner", "run", "expires", "ending", "facts"))
"""Labels (``owner``, ``run``) and annotations (all) of a Job."""

ROLE = "tradewind/role"
"""The label of Jobs and pods of a run whose load generator has its own: ``application`` or ``load``."""

HOME = "tradewind/home"
"""The label of the data folder that pods belong to; see `home_label`."""

QUEUE = "kueue.x-k8s.io/queue-name"
"""The label of a Job that waits in a queue of Kueue."""

CONTAINER = "job"
"""The name of the container that the command runs in."""

APPLICATION_CONTAINER = "application"
"""The name of the container that the application runs in; the load generator's is the job's."""

FOLDER = "/tradewind"
"""The path of the shared folder in the pod's containers."""

_STORAGE = "ephemeral-storage"
"""What Kubernetes calls the disk of a node. None is requested: without a request of its own a limit would be one."""
_FILES = "/tradewind-files"
_END = "/dev/termination-log"
_SMALL = {"cpu": "100m", "memory": "64Mi"}
_OF_A_NODE = 0.7
"""The share of a small cloud node that is allocatable at the least; two pods that each ask for it do not share one."""
_NAME_LENGTH = 52  # a pod of an indexed job adds its number and five letters, and a name has 63
_LABEL_LENGTH = 63


def slug(text: str, length: int) -> str:
    """A name that Kubernetes takes and that is unique to the text.

    Args:
        text: Any text.
        length: The most letters that the name may have.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return f"{plain[: length - 11].strip('-')}-{digest}".lstrip("-")


def name_of(run_id: str) -> str:
    """The name of a run's Job."""
    name = slug(run_id, _NAME_LENGTH)
    return name if name[0].isalpha() else f"r-{name}"[:_NAME_LENGTH]


def load_name_of(run_id: str) -> str:
    """The name of the Job of a run's load generator, where that has a pod of its own."""
    return f"load-{slug(run_id, _NAME_LENGTH - 5)}"


def owner_label(owner: str) -> str:
    """The value of the owner's label: labels do not allow all letters that owners have."""
    return slug(owner, _LABEL_LENGTH)


def home_label(data_folder: Path) -> str:
    """The value of the label that the pods of a data folder have, and of no other data folder of any machine."""
    return slug(f"{socket.gethostname()}:{data_folder.absolute()}", _LABEL_LENGTH)


def literal(text: str) -> str:
    """Quote a word of a command, or the value of a variable, so that Kubernetes replaces nothing in it."""
    return text.replace("$", "$$")


def labels_of(request: RunRequest) -> dict[str, str]:
    """The labels of all objects of a run."""
    return {
        "app.kubernetes.io/managed-by": "tradewind",
        OWNER: owner_label(request.owner),
        RUN: slug(request.run_id, _LABEL_LENGTH),
    }


def job_of(
    request: RunRequest, facts: str, bundles: Mapping[str, str], given: KubernetesSettings, home: str
) -> Document:
    """The Job of a run.

    Args:
        request: The run.
        facts: The data of the run's handle, as JSON, for other processes; no secrets.
        bundles: The names of the Secrets with the script and the archives, by ``work`` and ``inputs``.
        given: The settings of the runner.
        home: The value of the `HOME` label.
    """
    name, nodes = name_of(request.run_id), request.offer.nodes
    annotations = {OWNER: request.owner, RUN: request.run_id, EXPIRES: repr(request.expires), FACTS: facts}
    labels = labels_of(request)
    if given.queue:
        labels[QUEUE] = given.queue
    apart = request.load is not None and given.load_apart
    role = {ROLE: "application"} if apart else {}
    spec: Document = {
        "backoffLimit": 0,
        "completions": nodes,
        "parallelism": nodes,
        "ttlSecondsAfterFinished": given.ttl_seconds,
        "template": {
            "metadata": {"labels": {**labels_of(request), HOME: home, **role}, "annotations": dict(annotations)},
            "spec": _pod(request, bundles, given),
        },
    }
    del spec["template"]["metadata"]["annotations"][FACTS]
    if nodes > 1:
        spec |= {"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
        spec["template"]["spec"] |= {"subdomain": name, "affinity": _apart(request)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels | role, "annotations": annotations},
        "spec": spec,
    }


def load_job_of(
    request: RunRequest, bundles: Mapping[str, str], given: KubernetesSettings, home: str, owner: Document
) -> Document:
    """The Job of a load generator in a pod of its own, which waits until the application is ready.

    Args:
        request: The run, with a load generator.
        bundles: The names of the Secrets with the script and the archives, by ``work`` and ``inputs``.
        given: The settings of the runner.
        home: The value of the `HOME` label.
        owner: The owner reference to the run's Job.
    """
    load = request.load
    assert load is not None
    found = {"TRADEWIND_APPLICATION_HOST": name_of(request.run_id)}
    if load.port is not None:
        found["TRADEWIND_APPLICATION_PORT"] = str(load.port)
    alone = replace(
        request,
        argv=load.argv,
        image=load.image or request.image,
        env={**request.env, **load.env, **found},
        load=None,
        ports=(),
    )
    pod = _pod(alone, bundles, given)
    pod["containers"][0]["resources"] = _load_resources(load, given)
    pod |= {"nodeSelector": dict(given.load_node_selector), "affinity": _apart(request)}
    job = job_of(alone, "{}", bundles, given, home)
    about = job["metadata"]
    about |= {"name": load_name_of(request.run_id), "ownerReferences": [owner]}
    del about["annotations"][FACTS]
    template = job["spec"]["template"]
    for labels in (about["labels"], template["metadata"]["labels"]):
        labels[ROLE] = "load"
    template["spec"] = pod
    job["spec"]["suspend"] = True
    return job


def _pod(request: RunRequest, bundles: Mapping[str, str], given: KubernetesSettings) -> Document:
    volumes: list[Document] = [{"name": "tradewind", "emptyDir": {"sizeLimit": str(_disk(given))}}]
    prepared: list[Document] = [{"name": "tradewind", "mountPath": FOLDER}]
    for name, secret in bundles.items():
        volumes.append({"name": name, "secret": {"secretName": secret}})
        prepared.append({"name": name, "mountPath": f"{_FILES}/{name}", "readOnly": True})
    mounts: list[Document] = [{"name": "tradewind", "mountPath": FOLDER}]
    if given.claim:
        volumes.append({"name": "claim", "persistentVolumeClaim": {"claimName": given.claim}})
        mounts.append({"name": "claim", "mountPath": f"{FOLDER}/work", "subPath": given.claim_path})
        prepared.append(mounts[-1])
    pod: Document = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5 + math.ceil(given.grace),
        "automountServiceAccountToken": bool(given.service_account),
        "enableServiceLinks": False,
        "volumes": volumes,
        "initContainers": [
            {
                "name": "prepare",
                "image": given.helper_image,
                "command": ["sh", "-c", literal(PREPARE)],
                "env": _variables({"TW": FOLDER, "TW_FILES": _FILES}),
                "volumeMounts": prepared,
                "resources": {"requests": _SMALL, "limits": _SMALL},
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
        "containers": _containers(request, mounts, given),
        "nodeSelector": _node_selector(request, given),
        "tolerations": [dict(each) for each in given.tolerations],
    }
    if given.run_as is not None:
        _restrict(pod, given.run_as)
    if given.service_account:
        pod["serviceAccountName"] = given.service_account
    if given.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in given.image_pull_secrets]
    if given.priority_class:
        pod["priorityClassName"] = given.priority_class
    wall = request.limits.wall_seconds
    if wall is not None:
        # The script ends the job in time; this is for a node on which it cannot.
        pod["activeDeadlineSeconds"] = math.ceil(wall + given.start_seconds)
    return pod


def _restrict(pod: Document, user: int) -> None:
    """Make a pod one that the Pod Security level "restricted" admits."""
    pod["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for container in (*pod["initContainers"], *pod["containers"]):
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _containers(request: RunRequest, mounts: list[Document], given: KubernetesSettings) -> list[Document]:
    """The containers of a pod: the job's, which runs a load generator if there is one, and then the application's.

    Where the load generator has a pod of its own the job is the application, which is probed.
    """
    job, load = _container(request, mounts, given), request.load
    if load is None:
        return [job]
    probed = {
        "TW_PORT": "" if load.port is None else f"{load.port:04X}",
        "TW_PATH": load.ready_path if load.port is not None else "",
        "TW_SAYS": posix_pattern(load.ready_pattern, "Kubernetes"),
    }
    if given.load_apart:
        job["env"] += _variables({**probed, "TW_DRIVEN": "yes"})
        probe = [f"{FOLDER}/bin/busybox", "sh", f"{FOLDER}/bin/ready"]
        job["readinessProbe"] = {"exec": {"command": probe}, "periodSeconds": 1, "timeoutSeconds": 10}
        return [job]
    ours = {
        **probed,
        "TW_READY": f"{load.ready_seconds:.3f}",
        "TRADEWIND_APPLICATION_HOST": "127.0.0.1",
        **({} if load.port is None else {"TRADEWIND_APPLICATION_PORT": str(load.port)}),
    }
    theirs = {"TW", "TW_END"}
    kept = [each for each in job["env"] if not each["name"].startswith("TW_") or each["name"] in theirs]
    application = {
        **job,
        "name": APPLICATION_CONTAINER,
        "command": [*job["command"][:-1], f"{FOLDER}/bin/application"],
        "env": kept,
    }
    own = {each["name"]: each for each in (*job["env"], *_variables({**load.env, **ours}))}
    driver = {key: value for key, value in job.items() if key != "ports"} | {
        "image": load.image or request.image,
        "args": [literal(word) for word in load.argv],
        "env": list(own.values()),
        "resources": _load_resources(load, given),
    }
    return [driver, application]


def _load_resources(load: Load, given: KubernetesSettings) -> Document:
    held = _amounts(float(load.cpus or 0), load.memory_bytes or 0)
    return {"requests": _SMALL | held | {_STORAGE: "0"}, "limits": held | {_STORAGE: str(_disk(given))}}


def _container(request: RunRequest, mounts: list[Document], given: KubernetesSettings) -> Document:
    offer, limits = request.offer, request.limits
    cpus, memory = cpus_of(request) or 0.0, memory_of(request) or 0
    share = given.request_share or (_OF_A_NODE if given.instance_type else 1.0)
    number = whole_gpus(request, "Kubernetes")
    gpus = {given.gpu_resource: str(number)} if number else {}
    wall = limits.wall_seconds
    own = {
        "TW": FOLDER,
        "TW_END": _END,
        "TW_WALL": "" if wall is None else f"{wall:.3f}",
        "TW_GRACE": f"{given.grace:.3f}",
        "TW_PATTERNS": "\n".join(request.outputs).replace("**/", "*").replace("**", "*"),
        "TW_LIMIT": str(given.output_bytes),
        "TW_LOG": log_words(limits.log_bytes),
        "TW_SLOTS": str(max(1, int(cpus))),
        "TW_KEEPS": "yes" if request.checkpoint is not None and request.checkpoint.kept else "",
        "TW_WAITS": "" if given.everywhere or offer.nodes == 1 else "yes",
    }
    variables = {**request.env, **job_environment(request, FOLDER), **_nodes(request), **own}
    container: Document = {
        "name": CONTAINER,
        "image": request.image,
        "command": [f"{FOLDER}/bin/busybox", "sh", f"{FOLDER}/bin/run"],
        "args": [literal(word) for word in request.argv],
        "env": _variables(variables),
        "volumeMounts": mounts,
        "resources": {
            # No node lends all that its type has.
            "requests": _amounts(share * cpus, math.floor(share * memory)) | gpus | {_STORAGE: "0"},
            "limits": _amounts(cpus, memory) | gpus | {_STORAGE: str(_disk(given))},
        },
        "terminationMessagePath": _END,
    }
    if request.secrets:
        container["envFrom"] = [{"secretRef": {"name": f"{name_of(request.run_id)}-env"}}]
    if request.ports:
        container["ports"] = [{"containerPort": port} for port in request.ports]
    return container


def _disk(given: KubernetesSettings) -> int:
    """The bytes of its node's disk that a pod may fill."""
    return int(given.disk_gib * 2**30)


def _amounts(cpus: float, memory: int) -> dict[str, str]:
    """CPUs and bytes of memory as Kubernetes writes them, without amounts of 0."""
    found = {"cpu": f"{max(1, round(cpus * 1000))}m"} if cpus else {}
    return found | ({"memory": str(memory)} if memory else {})


def _nodes(request: RunRequest) -> dict[str, str]:
    nodes, name = request.offer.nodes, name_of(request.run_id)
    hosts = [f"{name}-{i}.{name}" for i in range(nodes)] if nodes > 1 else ["localhost"]
    return {"TRADEWIND_NODE_IPS": "\n".join(hosts), "TRADEWIND_HOSTFILE": f"{FOLDER}/hosts"}


def _variables(values: Mapping[str, str]) -> list[Document]:
    return [{"name": name, "value": literal(value)} for name, value in values.items()]


def _node_selector(request: RunRequest, given: KubernetesSettings) -> dict[str, str]:
    chosen = dict(given.node_selector)
    if given.instance_type:
        chosen[INSTANCE_TYPE] = request.offer.instance_type
    return chosen


def _apart(request: RunRequest) -> Document:
    """The affinity that puts each pod of a run on a node of its own."""
    term = {"labelSelector": {"matchLabels": labels_of(request)}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def service_of(request: RunRequest, owner: Document) -> Document:
    """The headless Service by which the nodes of a run find one another, or a load generator its application.

    Args:
        request: The run.
        owner: The owner reference to the run's Job.
    """
    labels = labels_of(request)
    selector = labels if request.load is None else {**labels, ROLE: "application"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name_of(request.run_id), "labels": labels, "ownerReferences": [owner]},
        "spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True},
    }


def secret_of(name: str, labels: Mapping[str, str], owner: Document, content: Mapping[str, bytes]) -> Document:
    """A Secret that is removed with its owner.

    Args:
        name: The name of the Secret.
        labels: The labels of the Secret.
        owner: The owner reference to a Job.
        content: The files in it, by name.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": dict(labels), "ownerReferences": [owner]},
        "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
    }


def owner_reference(job: Document) -> Document:
    """The owner reference to a Job: an object that has it is removed with the Job."""
    about = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": about["name"], "uid": about["uid"]}
