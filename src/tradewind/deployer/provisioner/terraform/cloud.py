"""Asks a provider without Terraform which machines have our tags, and gives them back.

Terraform knows only what its state has. What was created while it was killed, or by a state that is lost, is found by
the tags that every create call carries.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tradewind.deployer.provisioner.base import Cluster, ClusterState
from tradewind.deployer.provisioner.terraform.errors import cloud_cli_error
from tradewind.errors import MissingProgramError, UnreachableError
from tradewind.problem import Machine

RUN, OWNER, EXPIRES = "tradewind-run", "tradewind-owner", "tradewind-expires"
CREATED, PRICE = "tradewind-created", "tradewind-price"
"""The keys of the tags."""

_ASK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TaggedResources:
    """Things of a provider that have the tag of one run.

    Attributes:
        run_id: The run.
        region: The region that they are in.
        owner: The tag of who pays, or empty.
        expires: The tag of when anyone may destroy them, in seconds since the epoch, or None.
        machines: The ids of its machines that cost money; empty where only other things are left.
        created: When it was asked for, in seconds since the epoch, or None.
        price_per_hour: The tag of what the run's machines cost together, in USD per hour, or None.
    """

    run_id: str
    region: str
    owner: str = ""
    expires: float | None = None
    machines: tuple[str, ...] = ()
    created: float | None = None
    price_per_hour: float | None = None


class Cloud(ABC):
    """A provider, asked by tag.

    Attributes:
        covers: The types of Terraform's resources that `give_back` takes back by itself.
    """

    covers: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def find(self, owner: str | None) -> list[TaggedResources]:
        """Resources of an owner, one entry for each run and region; of all owners without one.

        Raises:
            UnreachableError: The provider does not answer: what it has is not known.
            CredentialsError: It does not know us.
            MissingProgramError: A program to ask it with is not there.
        """

    @abstractmethod
    def give_back(self, run_id: str, region: str) -> list[str]:
        """Ask it to take back all that has the tag of a run; may be repeated.

        Returns:
            What is still there, in words; empty when nothing is.
        """

    @abstractmethod
    def alive(self, region: str, machines: Collection[str]) -> set[str]:
        """Give those of some machines that run or are about to; one that the provider does not mention is none of them.

        Args:
            region: Where they are.
            machines: Their ids, as the shipped module's output has them.

        Raises:
            DeployError: The provider does not answer, or the credentials are of another account.
        """

    def label(self, run_id: str, region: str) -> None:  # noqa: B027  (nothing to do is the usual case)
        """Put the tags on what the provider made along with the machines, where create calls cannot."""

    def zones(self, region: str, kind: str, nodes: int) -> tuple[str, ...]:
        """The zones of a region that have machines of a type; none where the provider finds one by itself.

        Args:
            region: The region.
            kind: The type.
            nodes: How many machines there are to be in one zone.

        Raises:
            OfferRefusedError: No zone has them.
        """
        return ()

    @abstractmethod
    def account(self) -> str:
        """The account, subscription or project that is asked now: where machines are that are made now.

        Raises:
            DeployError: The provider does not say.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise before money is spent, if leftovers could not be looked for.

        Raises:
            MissingProgramError: A program to ask with is not there.
            CredentialsError: There are no credentials.
        """


def resources_from_tags(
    run_id: str, region: str, tags: dict[str, str], machines: Sequence[str] = ()
) -> TaggedResources:
    """Make a `TaggedResources` of a run with what the tags say: owner, expiry, age and price."""
    expires, created, price = (_number(tags.get(key, "")) for key in (EXPIRES, CREATED, PRICE))
    return TaggedResources(run_id, region, tags.get(OWNER, ""), expires, tuple(machines), created, price)


def _number(text: str) -> float | None:
    """A tag that is a number; Google's labels cannot have a point, and have a line in its place."""
    try:
        return float(text.replace("_", "."))
    except ValueError:
        return None


def merge_by_run(found: Sequence[TaggedResources]) -> list[TaggedResources]:
    """Merge findings into one for each run and region."""
    merged: dict[tuple[str, str], TaggedResources] = {}
    for each in found:
        key = (each.run_id, each.region)
        other = merged.get(key, each)
        machines = tuple(dict.fromkeys((*other.machines, *each.machines)))
        owner = each.owner or other.owner
        expires, created, price = (
            mine if mine is not None else theirs
            for mine, theirs in (
                (each.expires, other.expires),
                (each.created, other.created),
                (each.price_per_hour, other.price_per_hour),
            )
        )
        merged[key] = TaggedResources(each.run_id, each.region, owner, expires, machines, created, price)
    return list(merged.values())


def ask(provider: str, program: str, *words: str, patience: float | None = None) -> Any:
    """Ask a provider's own command-line program; its answer is JSON, or nothing.

    Args:
        provider: The provider whose program it is.
        program: The program, looked for on the PATH.
        words: The arguments of the program.
        patience: For how many seconds something that goes on at the provider is waited for: that it takes longer is no
            error. Without it, the program has to answer soon.

    Raises:
        MissingProgramError: It is not there.
        DeployError: What it complained of, typed.
    """
    found = shutil.which(program)
    if found is None:
        raise MissingProgramError(
            f"there is no {program} program, by which leftovers at {provider} are looked for",
            hint=f"install {program}, or leave {provider} out of the setting providers",
        )
    try:
        done = subprocess.run(
            [found, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_SECONDS if patience is None else patience,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        if patience is not None:
            return None
        raise UnreachableError(f"{provider}: {program} did not answer within {_ASK_SECONDS:g} s") from None
    if done.returncode:
        words_of = done.stderr.decode(errors="replace").strip() or f"exit code {done.returncode}"
        raise cloud_cli_error(words_of, provider, f"{program} {' '.join(words[:3])}")
    return json.loads(done.stdout) if done.stdout.strip() else None


def orphan_cluster(found: TaggedResources, provider: str, owner: str | None) -> Cluster:
    """A cluster that the provider has and no folder here knows."""
    machines = tuple(Machine(each) for each in found.machines)
    known = {"created": found.created, "price_per_hour": found.price_per_hour}
    data = {"region": found.region, "provider": provider, **{k: v for k, v in known.items() if v is not None}}
    tags: dict[str, Any] = {"owner": owner or found.owner, "expires": found.expires}
    return Cluster(found.run_id, ClusterState.UNKNOWN, machines, data=data, reason="no folder here knows it", **tags)
