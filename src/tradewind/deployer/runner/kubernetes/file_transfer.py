"""The files of a run on their way to its pods and back, and the handle of a run from its Job.

Files go there as Secrets that several runs own together: the first one makes a Secret, and it goes with the last of
them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

from tradewind.deployer import bundle
from tradewind.deployer.runner.kubernetes.api import ClusterApi, Document, ObjectConflict, ObjectNotFound
from tradewind.deployer.runner.kubernetes.job import ENDING, EXPIRES, FACTS, MANAGED, OWNER, RUN, secret_of
from tradewind.deployer.runner.kubernetes.status import KubernetesData, first_pod, seconds_of
from tradewind.deployer.runner.log_limit import shorten_log
from tradewind.deployer.runner.run_files import replace_document
from tradewind.errors import DeployError
from tradewind.problem import Handle, RunRequest

UNPACKED_BYTES = 2**30
"""The most that the files of a run may have, in either direction, in bytes."""

LOGS = ("stdout", "stderr", "application.stdout", "application.stderr")

_ATTEMPTS = 20
_LATEST = 3


def share_secret(api: ClusterApi, name: str, content: Mapping[str, bytes], owner: Document) -> None:
    """Make a Secret that all runs with the same content own together, or join its owners.

    The garbage collector looks at the owners of an object first, and deletes it, by its uid, a while after: it may
    have looked before we joined. Where no other owner lives any more the Secret is made anew, with another uid.

    Args:
        api: The API of the cluster.
        name: The Secret's name.
        content: The files in it, by name.
        owner: The owner reference to the run's Job.

    Raises:
        DeployError: The Secret cannot be made.
    """
    labels = {"app.kubernetes.io/managed-by": "tradewind"}
    path = api.path("secrets", name)
    for _ in range(_ATTEMPTS):
        try:
            api.call("POST", api.path("secrets"), secret_of(name, labels, owner, content))
            return
        except ObjectConflict:
            pass
        try:
            found = api.document("GET", path)["metadata"]
            others = [each for each in found.get("ownerReferences") or [] if each["uid"] != owner["uid"]]
            if not others:
                return  # we have made it, and the answer was lost
            changed = {"resourceVersion": found["resourceVersion"], "ownerReferences": [*others, owner]}
            found = api.patch("secrets", name, {"metadata": changed})["metadata"]
            if _any_lives(api, others):
                return
            unchanged = {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}
            api.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": unchanged})
        except (ObjectConflict, ObjectNotFound):
            continue
    raise DeployError(f"the Secret {name} changes all the time")


def _any_lives(api: ClusterApi, owners: Sequence[Document]) -> bool:
    """True when one of some Jobs is there; the latest are asked for first, which mostly is enough."""
    for each in reversed(owners[-_LATEST:]):
        try:
            about = api.document("GET", api.path("jobs", each["name"]))["metadata"]
        except ObjectNotFound:
            continue
        if about["uid"] == each["uid"] and not about.get("deletionTimestamp"):
            return True
    uids = {each["uid"] for each in owners[:-_LATEST]}
    return bool(uids) and any(
        job["metadata"]["uid"] in uids and not job["metadata"].get("deletionTimestamp")
        for job in api.listed("jobs", MANAGED)
    )


def content_name(kind: str, content: Mapping[str, bytes]) -> str:
    """The name of a Secret with some files, which all runs with the same files share.

    Args:
        kind: The kind of content, as a part of the name.
        content: The files, by name.
    """
    digest = hashlib.sha256()
    for name in sorted(content):
        digest.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(content[name]).digest())
    return f"tradewind-{kind}-{digest.hexdigest()[:32]}"


def handle_of(job: Document, runner: str) -> Handle:
    """The handle of a run, from the annotations of its Job."""
    notes = job["metadata"].get("annotations", {})
    data = replace(
        KubernetesData.from_json(json.loads(notes.get(FACTS, "{}"))),
        owner=notes.get(OWNER, ""),
        expires=float(notes[EXPIRES]),
        created=seconds_of(job["metadata"].get("creationTimestamp")),
        job=job["metadata"]["name"],
        uid=job["metadata"]["uid"],
    )
    return data.handle(notes[RUN], runner)


def with_expiry(handle: Handle, job: Document, pods: Sequence[Document]) -> Handle:
    """The handle of a run with its expiry: time without a node does not count.

    A run that waits has none: it costs nothing, and once it has a node the cluster ends its pod in time.

    Args:
        handle: The handle of the run.
        job: The run's Job.
        pods: The pods of that Job.
    """
    data, pod = KubernetesData.of(handle), first_pod(pods)
    began = seconds_of(pod["status"].get("startTime")) if pod is not None else None
    if began is not None:
        data = data.begun(began, data.lasts)
    elif not has_ended(job):
        data = data.waiting()
    return data.handle(handle.run_id, handle.runner)


def has_ended(job: Document) -> bool:
    """True when a Job has ended, or is marked as ended."""
    notes: Mapping[str, Any] = job["metadata"].get("annotations", {})
    conditions = job.get("status", {}).get("conditions") or []
    return ENDING in notes or any(each["status"] == "True" and each["type"] != "Suspended" for each in conditions)


def unpack(archive: bytes, folder: Path, request: RunRequest) -> None:
    """Put the files of a run into its folder; of the working folder, the files that the output patterns match.

    Args:
        archive: The compressed archive from the pod's log.
        folder: The run's folder.
        request: The run.
    """
    place = folder / "collected"
    try:
        unpack_all(archive, place)
        work, outputs = place / "work", folder / "outputs"
        if outputs.is_dir():
            shutil.rmtree(outputs)
        for name in (*LOGS, "metrics.jsonl", "outputs"):
            if (place / name).exists():
                (place / name).replace(folder / name)
        long = [_shorten(place / f"{name}.written", folder / name, request) for name in LOGS]
        replace_document(folder / "result.json", {"truncated": any(long)})
        for found in {path for pattern in request.outputs for path in work.glob(pattern)}:
            for path in [found] if found.is_file() else [each for each in found.rglob("*") if each.is_file()]:
                target = outputs / path.relative_to(work)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def unpack_application(archive: bytes, folder: Path, request: RunRequest) -> None:
    """Put the files of an application whose load generator is in another pod beside those of that.

    Args:
        archive: The compressed archive from the log of the application's pod.
        folder: The run's folder.
        request: The run.
    """
    place = folder / "driven"
    try:
        place.mkdir(parents=True, exist_ok=True)
        unpack(archive, place, request)
        for name in ("stdout", "stderr"):
            if (place / name).exists():
                (place / name).replace(folder / f"application.{name}")
        others = [each for each in (place / "outputs").rglob("*") if each.is_file()]
        for found, target in [
            *((each, folder / each.relative_to(place)) for each in others),
            (place / "metrics.jsonl", folder / "metrics.jsonl"),
        ]:
            if found.exists() and not (target.exists() and target.stat().st_size):  # the load's own are the run's
                target.parent.mkdir(parents=True, exist_ok=True)
                found.replace(target)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def unpack_all(archive: bytes, folder: Path) -> None:
    """Unpack all that a pod has packed.

    Args:
        archive: The compressed archive from the pod's log.
        folder: The folder that is made for it.
    """
    with gzip.open(io.BytesIO(archive)) as stream:
        bundle.unpack(cast("IO[bytes]", stream), folder, limit_bytes=UNPACKED_BYTES, lenient=True)


def _shorten(note: Path, log: Path, request: RunRequest) -> bool:
    """Join the beginning and the end of a log, of which a note says how long it was; True when a part is missing."""
    return note.is_file() and shorten_log(log, request.limits.log_bytes, int(note.read_text(encoding="ascii")))
