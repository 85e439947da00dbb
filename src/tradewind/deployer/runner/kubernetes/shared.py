"""Secrets that several runs own together: whoever comes first makes one, and it goes with the last of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.deployer.runner.kubernetes.api import ClusterApi, ObjectConflict, ObjectNotFound
from tradewind.deployer.runner.kubernetes.job import MANAGED, secret_of
from tradewind.errors import DeployError

SecretDocument = dict[str, Any]

_ATTEMPTS = 20
_LATEST = 3


def share_secret(api: ClusterApi, name: str, content: Mapping[str, bytes], owner: SecretDocument) -> None:
    """Make a Secret that all runs with the same content own together, or join its owners.

    The garbage collector looks at the owners of an object first, and deletes it, by its uid, a while after: it may
    have looked before we joined. Where no other owner lives any more the Secret is made anew, with another uid.

    Args:
        api: The cluster.
        name: The Secret's name.
        content: Its files.
        owner: The reference to the run's Job.

    Raises:
        DeployError: It cannot be made.
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
                return  # we have made it, and have not heard of it
            changed = {"resourceVersion": found["resourceVersion"], "ownerReferences": [*others, owner]}
            found = api.patch("secrets", name, {"metadata": changed})["metadata"]
            if _any_lives(api, others):
                return
            unchanged = {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}
            api.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": unchanged})
        except (ObjectConflict, ObjectNotFound):
            continue
    raise DeployError(f"the Secret {name} changes all the time")


def _any_lives(api: ClusterApi, owners: Sequence[SecretDocument]) -> bool:
    """True when one of some Jobs is there; the latest are asked about first, which mostly is enough."""
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
