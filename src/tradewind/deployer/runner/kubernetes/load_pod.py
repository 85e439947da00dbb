"""A load generator in a pod of its own, on another node than the application that it drives.

Each of the two is a Job with the usual script around its command. The application's is the run's Job, and its pod is
probed for readiness. The load's belongs to it, and is suspended until then. When the load has ended, the application is
told by a file in its pod, so that its logs, outputs and figures come as those of any run. Both steps are taken while
the run is polled.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from tradewind.deployer.runner.exit_reasons import lost_status
from tradewind.deployer.runner.kubernetes.api import ClusterApi, Document, ObjectConflict, ObjectNotFound
from tradewind.deployer.runner.kubernetes.channel import open_channel
from tradewind.deployer.runner.kubernetes.job import FOLDER
from tradewind.deployer.runner.kubernetes.status import (
    KubernetesData,
    PodVerdict,
    WaitLimits,
    end_of,
    first_pod,
    lives,
    marked_end,
    seconds_of,
    termination_figures,
    verdict,
)
from tradewind.deployer.runner.load_generators import with_load_usage
from tradewind.errors import CredentialsError, DeployError, TradewindError
from tradewind.problem import Fault, RunRequest, RunState, RunStatus, Usage

_log = logging.getLogger("tradewind.deployer")

_ENOUGH = f'echo "$1" > {FOLDER}/enough'
_TELL_SECONDS = 5.0
_MADE_SECONDS = 60.0
"""Seconds after the run's Job in which that of the load is made, or whoever submits the run is gone."""
_OF_LOAD = "the load generator: "


def check_load(request: RunRequest) -> None:
    """Refuse an application on several nodes.

    Raises:
        DeployError: It has a load generator and several nodes.
    """
    if request.load is not None and request.offer.nodes > 1:
        raise DeployError(
            f"on Kubernetes a load generator drives an application on one node, and the offer has "
            f"{request.offer.nodes}",
            hint="search nodes: [1]",
            retryable=False,
        )


class LoadPods:
    """Judges runs whose load generators have pods of their own, and takes them from one step to the next.

    Args:
        api: The API of the cluster.
    """

    def __init__(self, api: ClusterApi) -> None:
        self._api = api

    def judge(
        self,
        data: KubernetesData,
        jobs: tuple[Document | None, Document | None],
        pods: tuple[Sequence[Document], Sequence[Document]],
        now: float,
        limits: WaitLimits,
    ) -> PodVerdict:
        """Judge a run, as `verdict` does.

        Args:
            data: The data of the run's handle.
            jobs: The Jobs of application and load, each None where it is not there.
            pods: Their pods.
            now: The time, in seconds since the epoch.
            limits: The longest times that each of the two may wait.
        """
        (job, load_job), (mine, loads) = jobs, pods
        if job is not None and marked_end(job) is not None:
            self._end_load(data, load_job, loads, now)
            return verdict(data, job, [*mine, *loads], now, limits)
        found = verdict(data, job, mine, now, limits)
        pod, status = first_pod(mine), found.status
        if pod is None or found.mark or status.state is RunState.SUBMITTING:
            return found
        if load_job is None:
            made = seconds_of(pod["metadata"].get("creationTimestamp")) or now
            if status.state.ended or now < made + _MADE_SECONDS:
                return found
            return PodVerdict(lost_status("the Job of its load generator is gone", status.runtime), mark=True)
        load = verdict(_data_of_load(data), load_job, loads, now, limits)
        waits = bool(load_job["spec"].get("suspend"))
        if status.state.ended:
            self._end_load(data, load_job, loads, now)
            if any(lives(each, now) for each in loads):
                return PodVerdict(RunStatus(RunState.EXECUTING, status.runtime))
            return PodVerdict(_over(data, status, pod, load.status, first_pod(loads), began=not waits))
        if data.look:
            return found
        if waits:
            return self._start(data, load_job, pod, found, now)
        if not (load.mark or load.status.state.ended):
            reason = f"{_OF_LOAD}{load.status.reason}" if load.status.reason else ""
            return PodVerdict(replace(status, reason=reason))
        ended = first_pod(loads)
        if load.mark or ended is None or end_of(ended) is None:
            # It never began, or nobody knows how it ended: the application has nothing to tell.
            return PodVerdict(replace(load.status, reason=_OF_LOAD + load.status.reason), mark=True)
        return self._tell(pod, "driven", found)

    def _start(
        self, data: KubernetesData, load_job: Document, pod: Document, found: PodVerdict, now: float
    ) -> PodVerdict:
        """Let the load begin once the application is ready; end the run where that takes too long."""
        conditions = pod["status"].get("conditions") or []
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            with suppress(TradewindError, ObjectConflict, ObjectNotFound):  # the next poll tries again
                self._api.patch("jobs", load_job["metadata"]["name"], {"spec": {"suspend": False}})
            return found
        if found.status.runtime > data.ready_seconds:
            return self._tell(pod, "unready", found)
        return found

    def _tell(self, pod: Document, word: str, found: PodVerdict) -> PodVerdict:
        """Have an application end; its own script writes the word down, and the next polls see it go."""
        command = [f"{FOLDER}/bin/busybox", "sh", "-c", _ENOUGH, "sh", word]
        name = pod["metadata"]["name"]
        try:
            with open_channel(self._api, name, command) as channel:
                channel.settimeout(_TELL_SECONDS)
                while channel.recv(1 << 10):
                    pass
        except CredentialsError as error:
            words = f"the application cannot be told that its load generator has ended: {error.message}"
            return PodVerdict(RunStatus(RunState.FAILED, found.status.runtime, words, Fault.CREDENTIALS), mark=True)
        except (TradewindError, ObjectNotFound, OSError) as error:
            _log.info("pod %s: %s", name, error)
        return found

    def _end_load(self, data: KubernetesData, load_job: Document | None, loads: Sequence[Document], now: float) -> None:
        """Let the load's pods go, which would drive nothing any more."""
        wanted = load_job is not None and not load_job["spec"].get("suspend") and load_job["spec"]["parallelism"]
        if data.look or load_job is None or not wanted or not any(lives(each, now) for each in loads):
            return
        with suppress(TradewindError, ObjectConflict, ObjectNotFound):  # the next poll tries again
            self._api.patch("jobs", load_job["metadata"]["name"], {"spec": {"parallelism": 0}})


def _data_of_load(data: KubernetesData) -> KubernetesData:
    return replace(data, program=data.load_program, memory_bytes=data.load_memory, load_memory=None, load_cpus=None)


def _over(
    data: KubernetesData,
    application: RunStatus,
    pod: Document,
    load: RunStatus,
    load_pod: Document | None,
    *,
    began: bool,
) -> RunStatus:
    """The status of a run whose application has ended, and its load generator with it.

    Args:
        data: The data of the run's handle.
        application: The status of the application, as that of a run.
        pod: Its pod.
        load: The status of the load generator, as that of a run.
        load_pod: Its pod, or None.
        began: True when it was to begin.
    """
    ended = end_of(pod) or {}
    said = termination_figures(ended).get("state")
    usage = with_load_usage(application.usage or Usage(), load.usage or Usage(), load.runtime, data.load_cpus)
    there = end_of(load_pod) if load_pod is not None else None
    when, last = (seconds_of(each.get("finishedAt")) for each in (there or {}, ended))
    first = when is not None and last is not None and when <= last
    if load.state.ended and there is not None and (said == "driven" or (first and application.state is RunState.DONE)):
        reason = f"{_OF_LOAD}{load.reason}" if load.reason else ""
        return replace(load, runtime=application.runtime, usage=usage, reason=reason)
    by_itself = said == "ended" or application.state is RunState.DONE
    if application.fault in (None, Fault.JOB) and by_itself and ended.get("reason") != "OOMKilled":
        code = application.exit_code or 1
        verb = "did" if began else "began"
        words = f"the application ended before the load generator {verb}, with code {application.exit_code}"
        return RunStatus(RunState.FAILED, application.runtime, words, Fault.JOB, code, usage)
    alone = ended.get("reason") == "OOMKilled" or said == "missing"
    if alone and application.fault is Fault.JOB:
        return replace(application, reason=f"the application: {application.reason}", usage=usage)
    return replace(application, usage=usage)
