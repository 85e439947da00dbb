"""The data of kubernetes handles, the status of a run from its Job and pods, and the content of its log."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tradewind.deployer.runner.exit_reasons import (
    SIGNAL_OFFSET,
    engine_timeout_reason,
    exit_code_of,
    failure_reason,
    lost_status,
    out_of_memory_reason,
    shell_seconds,
    timeout_reason,
)
from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.runner.image_errors import image_fault
from tradewind.deployer.runner.kubernetes.api import Document
from tradewind.deployer.runner.kubernetes.job import APPLICATION_CONTAINER, CONTAINER, ENDING, QUEUE
from tradewind.deployer.runner.load_generators import with_load_usage
from tradewind.problem import Fault, RunState, RunStatus, Usage
from tradewind.utils.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesData(HandleData):
    """The data of a kubernetes handle; its Job keeps most of it in an annotation.

    Attributes:
        folder: The run's folder.
        job: The name of its Job.
        uid: The uid of its Job: another of the same name may have been there before.
        program: The first word of its command.
        memory_bytes: The bytes of memory that it may take on each node, or None.
        wall_seconds: Its time limit in seconds, or None.
        load_cpus: CPUs that its load generator is held to, or None.
        load_memory: Bytes of memory that its load generator is held to, or None.
        load_program: The first word of its load generator's command, where that has a pod of its own; else empty.
        ready_seconds: Seconds in which the application of such a load generator must be ready.
        lasts: Seconds from its beginning after which anyone may end it; None in handles of an earlier version.
        patience: The fields of `WaitLimits` that it was submitted with; None in handles of an earlier version, for
            which those of the settings hold.
        look: True for a run that is only looked at: this process does not give it up.
    """

    folder: str = ""
    job: str = ""
    uid: str = ""
    program: str = ""
    memory_bytes: int | None = None
    wall_seconds: float | None = None
    load_cpus: int | None = None
    load_memory: int | None = None
    load_program: str = ""
    ready_seconds: float = 0.0
    lasts: float | None = None
    patience: Mapping[str, float] | None = None
    look: bool = False


_SUFFIXES = {
    **dict(zip(("n", "u", "m", "", "k", "M", "G", "T", "P"), (10.0**power for power in range(-9, 16, 3)), strict=True)),
    **{f"{letter}i": 2.0 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]{0,2})")
_QUOTA = re.compile(r"exceeded quota: ([^,]+), requested: (.*?), used: (.*?), limited: (.*)", re.DOTALL)
_FORBIDDEN = re.compile(
    r"violates PodSecurity|unable to validate against any|denied the request|no PriorityClass|"
    r"error looking up service account"
)
_TEMPORARY = re.compile(r"exceeded quota|failed calling webhook|timed? ?out|object has been modified|being terminated")
_REFUSED = re.compile(r"is forbidden|is invalid|denied the request")


def quantity(text: str) -> float:
    """Convert a quantity of Kubernetes, such as ``500m`` or ``2Gi``, to a number.

    Raises:
        ValueError: The text is no quantity.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return float(found[1]) * _SUFFIXES[found[2]]


def final_refusal(words: str) -> tuple[Fault, str] | None:
    """The fault and a hint for a refusal to make a pod after which no waiting helps; None where waiting may help.

    Pods pass admission after their Job has, so the messages are in the events of the Job (reason ``FailedCreate``).
    Those of Pod Security, limit ranges, quotas, priority classes, service accounts and webhooks are known; see
    "Admission Control in Kubernetes" in its documentation.

    Args:
        words: The message of the event.
    """
    if (quota := _QUOTA.search(words)) is not None:
        beyond = _beyond(quota[2], quota[4])
        return (Fault.JOB, f"one pod alone asks for more {beyond} than the quota {quota[1]} has") if beyond else None
    if _FORBIDDEN.search(words):
        hint = "set run_as" if "violates PodSecurity" in words else "what the namespace asks of pods is the cluster's"
        return Fault.CREDENTIALS, hint
    if _TEMPORARY.search(words) or not _REFUSED.search(words):
        return None
    return Fault.JOB, "offer other sizes, or ask for other limits of the namespace"


def _beyond(requested: str, limited: str) -> str:
    """The names of requested amounts above the whole quota; empty where all may fit once other pods have ended."""
    limits = _amounts(limited)
    return ", ".join(name for name, amount in _amounts(requested).items() if amount > limits.get(name, amount))


def _amounts(text: str) -> Mapping[str, float]:
    found = {}
    for part in text.split(","):
        name, _, amount = part.strip().partition("=")
        try:
            found[name] = quantity(amount)
        except ValueError:
            continue
    return found


def latest_messages(events: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The newest message about each Job, by its uid.

    Args:
        events: Events of Jobs for which no pod could be made.
    """
    found: dict[str, tuple[str, str]] = {}
    for event in events:
        uid = str(event.get("involvedObject", {}).get("uid", ""))
        when = str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
        if uid not in found or when >= found[uid][0]:
            found[uid] = when, str(event.get("message", "")).removeprefix("Error creating: ")
    return {uid: words for uid, (_, words) in found.items()}


_NEVER = {"InvalidImageName", "ErrImageNeverPull"}
_PULLING = {"ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError", *_NEVER}
_CANNOT = {"CreateContainerError", "RunContainerError", "CreateContainerConfigError"}
_CANNOT_START = {"ContainerCannotRun", "StartError"}
_FOREIGN = "{} is for another processor architecture than the node's"
_TERMINATING_SECONDS = 60.0
_PROMPT_SECONDS = 2.0
"""A Job that has no pod after so long may have been refused one."""
_LOAD_SECONDS = 15.0
"""A load generator whose application has ended so long ago does not know of it, and would go on."""
_USUAL = {"ContainerCreating", "PodInitializing", ""}
"""Reasons of a container to wait that say nothing."""
_OVER_DISK = re.compile(r"exceeds the (?:total )?limit|exceeded its local ephemeral storage limit")
"""In the words of the kubelet about a folder of a pod, a whole pod, or a container."""
_ARCHIVE = re.compile(rb"T (\d+)\n")


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The longest times that a run may wait before it is given up.

    Attributes:
        image_seconds: Seconds in which an image must have been pulled after a first failure.
        schedule_seconds: Seconds in which a node must have been found.
    """

    image_seconds: float
    schedule_seconds: float


FOREVER = WaitLimits(math.inf, math.inf)
"""The limits of a run that is only looked at: another process gives it up in time."""


@dataclass(frozen=True, slots=True)
class PodVerdict:
    """The status of a run by its Job and pods, and the action that the runner must take.

    Attributes:
        status: The status of the run.
        mark: True when the runner must end the run, for the reason in the status.
        ask: True when the cluster's events may say why it has no pod; see `explained`.
    """

    status: RunStatus
    mark: bool = False
    ask: bool = False


def seconds_of(moment: str | None) -> float | None:
    """Convert a time of the API to seconds since the epoch; None without one."""
    return datetime.fromisoformat(moment).timestamp() if moment else None


def first_pod(pods: Sequence[Document]) -> Document | None:
    """The pod that runs the command: the oldest with index 0; None without any."""
    key = "batch.kubernetes.io/job-completion-index"

    def number(pod: Document) -> str:
        about = pod["metadata"]
        return str(about.get("annotations", {}).get(key, about.get("labels", {}).get(key, "0")))

    mine = [pod for pod in pods if number(pod) == "0"]
    return min(mine, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None)


def job_of_pod(pod: Document) -> str:
    """The uid of the Job that made a pod: a Job of the same name may have been there before."""
    owners = pod["metadata"].get("ownerReferences") or [{}]
    return str(owners[0].get("uid", ""))


def by_uid(pods: Sequence[Document]) -> dict[str, list[Document]]:
    """The pods of each Job, by the Job's uid."""
    found: dict[str, list[Document]] = {}
    for pod in pods:
        found.setdefault(job_of_pod(pod), []).append(pod)
    return found


def marked_end(job: Document) -> Document | None:
    """The end that the runner has written into a Job (``state``, ``reason``, ``fault``, ``runtime``), or None."""
    text = job["metadata"].get("annotations", {}).get(ENDING)
    found: Document | None = json.loads(text) if text else None
    return found


def verdict(
    data: KubernetesData, job: Document | None, pods: Sequence[Document], now: float, limits: WaitLimits
) -> PodVerdict:
    """Judge a run by its Job and pods.

    Args:
        data: The data of the run's handle.
        job: The run's Job, or None.
        pods: The pods of the Job.
        now: The time, in seconds since the epoch.
        limits: The longest times that it may wait.
    """
    if job is None:
        return PodVerdict(lost_status("Kubernetes has no such Job"))
    pod = first_pod(pods)
    mark = marked_end(job)
    if mark is not None:
        if any(lives(each, now) for each in pods):
            return PodVerdict(RunStatus(RunState.EXECUTING, mark["runtime"]))
        fault = Fault(mark["fault"]) if mark["fault"] else None
        return PodVerdict(RunStatus(RunState(mark["state"]), mark["runtime"], mark["reason"], fault))
    if pod is None:
        return _without_pod(job, now, limits)
    ended = end_of(pod)
    if ended is not None and ended["exitCode"] != 0 and (late := _job_deadline(job, _lasted(ended))) is not None:
        return PodVerdict(late)
    if _fills_disk(pod):
        words = f"its files grew beyond the disk that it may fill: {pod['status']['message'].strip()} (set disk_gib)"
        return PodVerdict(RunStatus(RunState.FAILED, _lasted(ended), words, Fault.JOB))
    if _taken(pod):
        return PodVerdict(lost_status(f"its pod was taken away: {_taken(pod)}", _lasted(ended)))
    if ended is not None:
        return PodVerdict(_ended(data, pod, ended))
    if pod["status"].get("phase") == "Failed":
        return PodVerdict(_failed(data, pod))
    if not lives(pod, now):
        return PodVerdict(lost_status("its node is lost"))
    running = _container(pod).get("running")
    if running is not None and (gone := _application_gone(data, pod, now)) is not None:
        return gone
    if running is not None:
        return PodVerdict(RunStatus(RunState.EXECUTING, max(0.0, now - (seconds_of(running["startedAt"]) or now))))
    return _waiting(pod, now, limits)


def _stopped_early(
    said: dict[str, str], runtime: float, memory: int | None, *, oom: bool, usage: Usage
) -> RunStatus | None:
    """The status of a run whose application was not ready in time or ended before the load generator; else None.

    Args:
        said: The figures of the load's script; see `termination_figures`.
        runtime: Seconds that the run took.
        memory: The memory limit of the application in bytes, or None.
        oom: True when it was killed for using more.
        usage: The usage of the run.
    """
    state = said.get("state")
    if state not in ("died", "unready"):
        return None
    if state == "unready":
        return RunStatus(RunState.FAILED, runtime, "the application was not ready in time", Fault.JOB, usage=usage)
    code = int(said.get("application") or 1)
    words = f"the application ended before the load generator did, with code {code}"
    if oom:
        words = f"the application: {out_of_memory_reason(memory)}"
    return RunStatus(RunState.FAILED, runtime, words, Fault.JOB, code or 1, usage)


def _application_gone(data: KubernetesData, pod: Document, now: float) -> PodVerdict | None:
    """The end of a run whose application was killed with its whole container, which the load cannot see."""
    ended = _container(pod, APPLICATION_CONTAINER).get("terminated")
    if ended is None or now < (seconds_of(ended.get("finishedAt")) or now) + _LOAD_SECONDS:
        return None
    oom = ended.get("reason") == "OOMKilled"
    words = f"the application ended before the load generator did, with code {ended['exitCode']}"
    words = f"the application: {out_of_memory_reason(data.memory_bytes)}" if oom else words
    code = int(ended["exitCode"]) or 1
    return PodVerdict(RunStatus(RunState.FAILED, _lasted(ended), words, Fault.JOB, exit_code_of(code)), mark=True)


def lives(pod: Document, now: float) -> bool:
    """False for a pod that has ended, for one that cannot begin any more, and for one whose node is lost."""
    status, deleted = pod["status"], seconds_of(pod["metadata"].get("deletionTimestamp"))
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    if deleted is None:
        return True
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    if any(set(each.get("state") or {}) - {"waiting"} for each in containers):
        return now <= deleted + _TERMINATING_SECONDS
    # A node that was about to start it has learned of the deletion when its grace period is over, which is the time
    # that the deletion carries. It may take minutes more to let the pod go, when its volumes' Secrets are gone.
    return bool(pod.get("spec", {}).get("nodeName")) and now <= deleted


def _job_deadline(job: Document, runtime: float) -> RunStatus | None:
    """The status of a run whose Job the cluster ended at a time limit of its own, for the runner sets none; or None."""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["status"] == "True" and condition.get("reason") == "DeadlineExceeded":
            limit = job["spec"].get("activeDeadlineSeconds")
            words = engine_timeout_reason("its Job's", limit, "the cluster has set its activeDeadlineSeconds")
            return RunStatus(RunState.TIMED_OUT, runtime, words, Fault.JOB)
    return None


def _without_pod(job: Document, now: float, limits: WaitLimits) -> PodVerdict:
    if (late := _job_deadline(job, 0.0)) is not None:
        return PodVerdict(late)
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in ("Failed", "Complete") and condition["status"] == "True":
            return PodVerdict(lost_status("its pod is gone"))
    # Time in a queue, in which the Job is suspended, does not count.
    age = now - (_began(job) or now)
    if job["spec"].get("suspend"):
        return PodVerdict(RunStatus(RunState.SUBMITTING, reason="its Job is suspended, as by a queue that it waits in"))
    if age < limits.schedule_seconds:
        return PodVerdict(RunStatus(RunState.SUBMITTING), ask=age > _PROMPT_SECONDS)
    words = f"Kubernetes made no pod within {format_duration(limits.schedule_seconds)}"
    return PodVerdict(RunStatus(RunState.FAILED, 0.0, words, Fault.CAPACITY), mark=True, ask=True)


def _began(job: Document) -> float | None:
    """The time when a Job began to want pods; None where that is not known, for one that was in a queue."""
    status = job.get("status", {})
    began = seconds_of(status.get("startTime"))
    queued = QUEUE in job["metadata"].get("labels", {}) or "Suspended" in [
        each["type"] for each in status.get("conditions") or ()
    ]
    # Kubernetes up to 1.20 at least writes the time down with the first pod only, and there may never be one.
    return began if began is not None or queued else seconds_of(job["metadata"].get("creationTimestamp"))


def explained(found: PodVerdict, words: str, limits: WaitLimits, quiet: float) -> PodVerdict:
    """Add the cluster's message to the verdict about a run without a pod; the run ends where no waiting helps.

    Args:
        found: The verdict without the message.
        words: The message of the newest event, or empty.
        limits: The longest times that it may wait.
        quiet: Seconds for which no other run of ours has had a pod: as long as one has, a full quota may become free.
    """
    if not words:
        return found
    status = found.status
    refused = final_refusal(words)
    if refused is not None:
        fault, hint = refused
        reason = f"Kubernetes makes no pod for it: {words} ({hint})"
        return PodVerdict(RunStatus(RunState.FAILED, 0.0, reason, fault), mark=True)
    waits = not found.mark or ("exceeded quota" in words and quiet < limits.schedule_seconds)
    if waits:
        return PodVerdict(RunStatus(RunState.SUBMITTING, reason=f"Kubernetes makes no pod for it yet: {words}"))
    return replace(found, status=replace(status, reason=f"{status.reason}: {words}"))


def _container(pod: Document, name: str = CONTAINER, kind: str = "containerStatuses") -> Document:
    for status in pod.get("status", {}).get(kind) or []:
        if status["name"] == name:
            state: Document = status.get("state") or {}
            return state
    return {}


def executes(pod: Document) -> bool:
    """True while the job's own container runs."""
    return _container(pod).get("running") is not None


def end_of(pod: Document) -> Document | None:
    """The terminated state of the job's own container, whatever else runs in its pod; None as long as it runs."""
    found: Document | None = _container(pod).get("terminated")
    return found


def _taken(pod: Document) -> str:
    """The reason for which the cluster took a pod away, or empty."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition["status"] == "True":
            return str(condition.get("message") or condition.get("reason", ""))
    reason = status.get("reason", "")
    if status.get("phase") == "Failed" and reason and reason != "DeadlineExceeded":
        return f"{reason} {status.get('message', '')}".strip()
    return ""


def _fills_disk(pod: Document) -> bool:
    """True for a pod that its node has ended for its own use of the disk, and not because others needed that."""
    status = pod.get("status", {})
    return status.get("reason") == "Evicted" and _OVER_DISK.search(status.get("message") or "") is not None


def _lasted(ended: Document | None) -> float:
    if ended is None:
        return 0.0
    began, end = seconds_of(ended.get("startedAt")), seconds_of(ended.get("finishedAt"))
    return max(0.0, end - began) if began and end else 0.0


def termination_figures(ended: Document) -> dict[str, str]:
    """The figures that the script wrote into the termination message, by name."""
    return dict(line.partition("=")[::2] for line in str(ended.get("message") or "").splitlines())


def _usage_of(data: KubernetesData, said: Mapping[str, str]) -> Usage:
    """The usage of a run, and beside it that of its load generator."""
    usage = _figures(said, "")
    if "load_cpu" not in said:
        return usage
    began, ended = (float(said.get(name) or 0.0) for name in ("load_began", "ended"))
    return with_load_usage(usage, _figures(said, "load_"), max(0.0, ended - began), data.load_cpus)


def _figures(said: Mapping[str, str], kind: str) -> Usage:
    peak = said.get(f"{kind}peak", "")
    return Usage(int(peak) if peak.isdigit() else None, shell_seconds(said.get(f"{kind}cpu", "")))


def _ended(data: KubernetesData, pod: Document, ended: Document) -> RunStatus:
    said, code, reason = termination_figures(ended), int(ended["exitCode"]), ended.get("reason", "")
    runtime = _lasted(ended)
    if said.get("began") and said.get("ended"):
        runtime = max(0.0, float(said["ended"]) - float(said["began"]))
    beside = _container(pod, APPLICATION_CONTAINER).get("terminated") or {}
    usage = _usage_of(data, said)
    if said.get("state") == "timed_out":
        runtime = max(runtime, data.wall_seconds or 0.0)
        return RunStatus(RunState.TIMED_OUT, runtime, timeout_reason(data.wall_seconds), Fault.JOB, usage=usage)
    oom = beside.get("reason") == "OOMKilled"
    early = _stopped_early(said, runtime, data.memory_bytes, oom=oom, usage=usage)
    if early is not None:
        return early
    if reason == "OOMKilled" and code != 0:
        words = out_of_memory_reason(data.memory_bytes)
        if data.load_memory is not None:
            words = f"the load generator: {out_of_memory_reason(data.load_memory)}"
        return RunStatus(RunState.FAILED, runtime, words, Fault.JOB, -signal.SIGKILL, usage)
    if code == 0:
        return RunStatus(RunState.DONE, runtime, exit_code=0, usage=usage)
    if said.get("state") == "missing":
        words = f"there is no program {data.program!r} in the image"
        return RunStatus(RunState.FAILED, runtime, words, Fault.JOB, code)
    if reason in _CANNOT_START and _is_foreign(str(ended.get("message"))):
        words = f"{_FOREIGN.format('the image')}: {ended.get('message')}"
        return RunStatus(RunState.FAILED, 0.0, words, Fault.ARCHITECTURE, code)
    if reason in _CANNOT_START:
        return RunStatus(RunState.FAILED, 0.0, f"the container cannot start: {ended.get('message')}", Fault.JOB, code)
    if not said and code > SIGNAL_OFFSET:
        return lost_status("its container was killed from outside", runtime)
    code = exit_code_of(code)
    return RunStatus(RunState.FAILED, runtime, failure_reason(code), Fault.JOB, code, usage)


def _is_foreign(message: str) -> bool:
    """True for a message about an image, or a program in it, that is for another architecture than the node."""
    low = message.lower()
    return any(words in low for words in ("exec format error", "no match for platform", "no matching manifest for"))


def _failed(data: KubernetesData, pod: Document) -> RunStatus:
    """The status of a run whose pod failed without an end of the command: mostly it did not begin."""
    if pod["status"].get("reason") == "DeadlineExceeded":
        if _container(pod).get("running"):
            return RunStatus(RunState.TIMED_OUT, 0.0, _pod_deadline(data, pod), Fault.JOB)
        waits = _container(pod).get("waiting") or {}
        words = f"it did not start before its time limit: {waits.get('reason', '')} {waits.get('message', '')}"
        return RunStatus(RunState.FAILED, 0.0, words.strip(" :"), Fault.INFRASTRUCTURE)
    prepared = _container(pod, "prepare", "initContainerStatuses").get("terminated") or {}
    if _is_foreign(said := str(prepared.get("message", ""))):
        words = f"{_FOREIGN.format('the helper image')}: {said.strip()} (set helper_image to one of that architecture)"
        return RunStatus(RunState.FAILED, 0.0, words, Fault.ARCHITECTURE)
    words = f"the files could not be prepared: exit code {prepared.get('exitCode')} {prepared.get('message', '')}"
    return RunStatus(RunState.FAILED, 0.0, words.strip(), Fault.INFRASTRUCTURE)


def _pod_deadline(data: KubernetesData, pod: Document) -> str:
    """The reason of a run whose pod reached its deadline: that of the runner, or a shorter one of the cluster."""
    limit, wall = pod.get("spec", {}).get("activeDeadlineSeconds"), data.wall_seconds
    if limit is None or wall is None or limit >= wall:
        return timeout_reason(wall)
    return engine_timeout_reason("its pod's", limit, "the cluster has set its activeDeadlineSeconds")


def _waiting(pod: Document, now: float, limits: WaitLimits) -> PodVerdict:
    age = now - (seconds_of(pod["metadata"].get("creationTimestamp")) or now)
    why = ""
    for kind in ("initContainerStatuses", "containerStatuses"):
        for status in pod.get("status", {}).get(kind) or []:
            waiting = (status.get("state") or {}).get("waiting") or {}
            reason, message = waiting.get("reason", ""), waiting.get("message", "")
            if reason in _PULLING and _is_foreign(message):
                words = f"{_FOREIGN.format('the image ' + repr(status['image']))}: {message}"
                return PodVerdict(RunStatus(RunState.FAILED, 0.0, words, Fault.ARCHITECTURE), mark=True)
            if reason in _PULLING and (reason in _NEVER or age > limits.image_seconds):
                hint = "check the image's name, and set image_pull_secrets if it is private"
                words = f"the image {status['image']!r} cannot be pulled: {reason} {message} ({hint})"
                fault = image_fault(f"{reason} {message}", status["image"])
                return PodVerdict(RunStatus(RunState.FAILED, 0.0, words, fault), mark=True)
            if reason in _CANNOT and age > limits.image_seconds:
                words = f"the container cannot be made: {reason} {message}"
                return PodVerdict(RunStatus(RunState.FAILED, 0.0, words, Fault.INFRASTRUCTURE), mark=True)
            if reason not in _USUAL and not why:
                about = f"the image {status.get('image', '')!r}" if reason in _PULLING else "its container"
                why = f"{about}: {reason} {message}".strip()
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = condition.get("message", "")
            if age > limits.schedule_seconds:
                words = f"no node for it within {format_duration(limits.schedule_seconds)}: {message}"
                return PodVerdict(RunStatus(RunState.FAILED, 0.0, words, Fault.CAPACITY), mark=True)
            why = why or f"{condition.get('reason', '')}: {message}".strip(" :")
    return PodVerdict(RunStatus(RunState.SUBMITTING, reason=why))


@dataclass(frozen=True, slots=True)
class PodLog:
    """The content of the log of a run's pod.

    Attributes:
        streams: ``stdout`` and ``stderr``, line by line; a last line without an end has got one.
        archive: The compressed archive of the run's files, or None when there is none, or not all of it.
    """

    streams: Mapping[str, bytes]
    archive: bytes | None


def read_marked(text: bytes) -> PodLog:
    """Split the log of a pod into the two streams and the archive."""
    streams: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    packed: list[bytes] | None = None
    archive = None
    lines = text.split(b"\n")  # a program's own carriage returns end no line
    for line in [*(each + b"\n" for each in lines[:-1]), lines[-1]]:
        begins = _ARCHIVE.fullmatch(line) if packed is None else None
        if begins is not None:
            packed, size = [], int(begins[1])
        elif packed is not None and line == b"T\n":
            try:
                found = base64.b64decode(b"".join(packed))
            except binascii.Error:
                continue
            archive = found if len(found) == size else None
        elif packed is not None:
            packed.append(line.strip())
        elif line[:1] in (b"O", b"E"):
            streams["stdout" if line[:1] == b"O" else "stderr"].append(line[1:])
    return PodLog({name: b"".join(lines) for name, lines in streams.items()}, archive)
