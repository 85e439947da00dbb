"""Asks Google Cloud for what has our labels, with the ``gcloud`` program."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Sequence
from typing import Any

from tradewind.deployer.provisioner.terraform.cloud import (
    OWNER,
    RUN,
    Cloud,
    TaggedResources,
    ask,
    merge_by_run,
    resources_from_tags,
)
from tradewind.errors import DeployError, MissingProgramError, OfferRefusedError

_GONE = re.compile(r"was not found|notFound|404", re.IGNORECASE)
_ON_ITS_WAY = re.compile(r"resourceNotReady|is not ready|resourceInUseByAnotherResource", re.IGNORECASE)

_DOWN = ("STOPPING", "STOPPED", "SUSPENDING", "SUSPENDED", "TERMINATED")

_VARIABLES = ("GOOGLE_PROJECT", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
"""Where Terraform's provider looks for the project, in its order."""


class GoogleCloud(Cloud):
    """Google Compute Engine.

    Machines and disks have labels; firewall rules have none and keep the same facts in their description.

    Args:
        project: The project, or empty for Terraform's (``GOOGLE_PROJECT`` and its like), else the one that ``gcloud``
            is set to.
        patience: For how many seconds a deletion is waited for; machines may take more than a minute to go.
    """

    covers = frozenset({"google_compute_instance", "google_compute_firewall", "google_compute_disk"})

    def __init__(self, project: str, patience: float = 300.0) -> None:
        named = project or next(filter(None, map(os.environ.get, _VARIABLES)), "")
        self._project = ("--project", named) if named else ()
        self._zones: dict[tuple[str, str], tuple[str, ...]] = {}
        self._answers = False
        self._patience = patience

    def account(self) -> str:
        """The project; see `Cloud.account`."""
        if self._project:
            return self._project[1]
        return str(ask("gcp", "gcloud", "config", "get-value", "project", "--format=json") or "")

    def check(self) -> None:
        """Raise when there is no ``gcloud``, or it is not logged in; it is asked once."""
        if shutil.which("gcloud") is None:
            raise MissingProgramError(
                "there is no gcloud program, by which leftovers at gcp are looked for",
                hint="install the Google Cloud CLI, or set sweep: false",
            )
        if not self._answers:
            self._list("instances", f"labels.{RUN}=none")
            self._answers = True

    def zones(self, region: str, kind: str, nodes: int) -> tuple[str, ...]:
        """See `Cloud.zones`; Google wants a zone named, and many types are in some only. It is asked once."""
        found = self._zones.get((region, kind))
        if found is None:
            if "custom-" in kind:  # no list has them
                up = self._list("zones", f"name~^{region}- AND status=UP")
                found = tuple(sorted(each["name"] for each in up))
            else:
                there = (each["zone"].rpartition("/")[2] for each in self._list("machine-types", f"name={kind}"))
                found = tuple(sorted({zone for zone in there if zone.startswith(f"{region}-")}))
            if not found:
                hint = f"`gcloud compute machine-types list --filter='zone~{region}-'` names those that it has"
                raise OfferRefusedError(f"gcp has no {kind} in any zone of {region}", hint=hint)
            self._zones[region, kind] = found
        return found

    def find(self, owner: str | None) -> list[TaggedResources]:
        """See `Cloud.find`."""
        wanted = f"labels.{RUN}:*" + (f" AND labels.{OWNER}={label(owner)}" if owner else "")
        found = []
        for kind in ("instances", "disks"):
            for each in self._list(kind, wanted):
                labels = each.get("labels", {})
                machines = (each["name"],) if kind == "instances" else ()
                found.append(resources_from_tags(labels.get(RUN, ""), _region(each), labels, machines))
        for rule in self._rules():
            facts = rule["facts"]
            if owner is None or facts.get(OWNER) == label(owner):
                found.append(resources_from_tags(facts[RUN], facts.get("region", ""), facts))
        return merge_by_run(found)

    def give_back(self, run_id: str, region: str) -> list[str]:
        """See `Cloud.give_back`; it waits for Google's own operations, a while."""
        wanted = f"labels.{RUN}={label(run_id)}"
        for kind in ("instances", "disks"):
            by_zone: dict[str, list[str]] = {}
            for each in self._list(kind, wanted):
                by_zone.setdefault(each["zone"].rpartition("/")[2], []).append(each["name"])
            for zone, names in by_zone.items():
                self._delete(kind, names, "--zone", zone)
            # Disks can be deleted only after the machines that use them.
            if left := [f"{kind[:-1]} {each['name']}" for each in self._list(kind, wanted)]:
                return left
        if names := self._rules_of(run_id):
            self._delete("firewall-rules", names)
        return [f"rule {name}" for name in self._rules_of(run_id)]

    def alive(self, region: str, machines: Collection[str]) -> set[str]:
        """See `Cloud.alive`."""
        there = self._list("instances", f"labels.{RUN}:*")
        return {each["name"] for each in there if each.get("status") not in _DOWN} & set(machines)

    def _list(self, kind: str, wanted: str) -> list[dict[str, Any]]:
        return (
            ask("gcp", "gcloud", "compute", kind, "list", f"--filter={wanted}", "--format=json", *self._project) or []
        )

    def _rules(self) -> list[dict[str, Any]]:
        rules = []
        for rule in self._list("firewall-rules", "name~^tradewind-"):
            try:
                facts = json.loads(rule.get("description", ""))
            except ValueError:
                continue
            if isinstance(facts, dict) and RUN in facts:
                rules.append({"name": rule["name"], "facts": facts})
        return rules

    def _rules_of(self, run_id: str) -> list[str]:
        return [rule["name"] for rule in self._rules() if rule["facts"][RUN] == label(run_id)]

    def _delete(self, kind: str, names: Sequence[str], *place: str) -> None:
        """Delete things of one kind at the same time; what takes longer than our patience goes on at Google."""
        words = ("compute", kind, "delete", *names, *place, "--quiet", "--format=json", *self._project)
        try:
            ask("gcp", "gcloud", *words, patience=self._patience)
        except DeployError as error:
            if not _GONE.search(str(error)) and not _ON_ITS_WAY.search(str(error)):
                raise


def label(text: str) -> str:
    """A text as a label's value: as the module writes it."""
    return re.sub(r"[^a-z0-9_-]", "_", text.lower())[:63]


def _region(each: dict[str, Any]) -> str:
    zone: str = each.get("zone", "")
    return zone.rpartition("/")[2].rpartition("-")[0]
