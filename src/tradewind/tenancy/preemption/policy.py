"""The preemption policy of a tenant: within which time it gets its places, and who pays the runs that are taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from tradewind.errors import InputError
from tradewind.problem import Payer
from tradewind.utils.units import format_duration, parse_duration

MOST_TAKEN = 3
"""A trial without checkpoints is taken so often at most: what was done of it is lost each time."""

PAYERS: tuple[Payer, ...] = get_args(Payer)
_KEYS = ("within", "pays", "exempt")
_HINT = "write within=2m, and pays=owner, taker or cluster, and exempt=30s"


@dataclass(frozen=True, slots=True)
class PreemptionPolicy:
    """The policy of a tenant whose work may end runs of others.

    Attributes:
        within: Seconds within which it gets places up to its share, as far as others have runs that may be taken.
        pays: Who pays a run that is taken: its owner, the tenant that takes it, or nobody (the cluster).
        exempt: Seconds for which a run has had its place before it may be taken.
    """

    within: float
    pays: Payer = "taker"
    exempt: float = 0.0

    @property
    def words(self) -> str:
        """The policy in a few words."""
        whom = {"owner": "their owners pay", "taker": "it pays", "cluster": "nobody pays"}[self.pays]
        when = format_duration(self.within)
        return f"has a place within {when} of when its work comes, if need be by runs of others, and {whom} for them"


def preemption_document(given: Mapping[str, Any]) -> dict[str, Any]:
    """A policy as the store keeps it: seconds, and every key.

    Args:
        given: Of ``within``, ``pays`` and ``exempt``; times as words or in seconds. Without ``exempt`` a run is exempt
            for half of ``within``.

    Raises:
        InputError: A key is unknown, or a value is none.
    """
    if (unknown := next((key for key in given if key not in _KEYS), None)) is not None:
        raise InputError(f"preempt: there is no {unknown[:40]!r}", hint=_HINT)
    if "within" not in given:
        raise InputError("preempt: it says not within which time places are wanted", hint=_HINT)
    within = _seconds("within", given["within"])
    exempt = _seconds("exempt", given["exempt"]) if "exempt" in given else within / 2
    pays = given.get("pays", "taker")
    if pays not in PAYERS:
        raise InputError(f"preempt: {str(pays)[:40]!r} pays nothing", hint=_HINT)
    if not within > 0:
        raise InputError(f"preempt: within={given['within']} is no time", hint=_HINT)
    if exempt >= within:
        raise InputError(
            f"preempt: runs that are exempt for {format_duration(exempt)} leave no place within "
            f"{format_duration(within)}",
            hint="let exempt be less than within",
        )
    return {"within": within, "pays": pays, "exempt": exempt}


def preemption_policy(document: Mapping[str, Any]) -> PreemptionPolicy | None:
    """The policy of a document of the store; None where the tenant takes nothing.

    Raises:
        InputError: It is none.
    """
    return PreemptionPolicy(**preemption_document(document)) if document else None


def _seconds(key: str, given: Any) -> float:
    try:
        return parse_duration(given)
    except InputError as error:
        raise InputError(f"preempt: {key}: {error.message}", hint=error.hint) from error
