"""What a cluster says when it makes no pod for a Job: whether waiting helps, and whose fault it is.

Pods pass admission after their Job has: the words are in the events of the Job (reason ``FailedCreate``). Those here
are of Pod Security, limit ranges, quotas, priority classes, service accounts and webhooks; see "Admission Control in
Kubernetes" in its documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tradewind.problem import Fault

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
    """A quantity of Kubernetes, such as ``500m`` or ``2Gi``, as a number.

    Raises:
        ValueError: It is none.
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or found[2] not in _SUFFIXES:
        raise ValueError(f"{text!r} is no quantity")
    return float(found[1]) * _SUFFIXES[found[2]]


def final_refusal(words: str) -> tuple[Fault, str] | None:
    """Whose fault it is that no pod is made, and what to do, where no waiting helps; None where it may.

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
    """What of a request is more than all that a quota has; empty where all of it may fit once others have ended."""
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
