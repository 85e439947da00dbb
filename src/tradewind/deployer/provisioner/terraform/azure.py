"""Asks Azure for what has our tags, with the ``az`` program."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
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
from tradewind.errors import DeployError, MissingProgramError

_GONE = re.compile(r"ResourceGroupNotFound|could not be found", re.IGNORECASE)
_DOWN = re.compile(r"stopp|deallocat", re.IGNORECASE)


class AzureCloud(Cloud):
    """Azure: all that a run has is in a resource group of its own, which goes as a whole.

    Args:
        subscription: The subscription, or empty for Terraform's (``ARM_SUBSCRIPTION_ID``), else the one that ``az`` is
            set to.
    """

    covers = frozenset(
        {
            "azurerm_resource_group",
            "azurerm_virtual_network",
            "azurerm_subnet",
            "azurerm_public_ip",
            "azurerm_network_security_group",
            "azurerm_network_interface",
            "azurerm_network_interface_security_group_association",
            "azurerm_linux_virtual_machine",
            "azurerm_dev_test_global_vm_shutdown_schedule",
        }
    )

    def __init__(self, subscription: str = "") -> None:
        self._subscription = subscription or os.environ.get("ARM_SUBSCRIPTION_ID", "")
        self._answers = False

    def _ask(self, *words: str) -> Any:
        within = ("--subscription", self._subscription) if self._subscription else ()
        return ask("azure", "az", *words, *within)

    def account(self) -> str:
        """The subscription; see `Cloud.account`."""
        return self._subscription or str((self._ask("account", "show", "--output", "json") or {}).get("id", ""))

    def check(self) -> None:
        """Raise when there is no ``az``, or it is not logged in; it is asked once."""
        if shutil.which("az") is None:
            raise MissingProgramError(
                "there is no az program, by which leftovers at azure are looked for",
                hint="install the Azure CLI, or set sweep: false",
            )
        if not self._answers:
            self._ask("group", "list", "--tag", f"{RUN}=none", "--output", "json")
            self._answers = True

    def find(self, owner: str | None) -> list[TaggedResources]:
        """See `Cloud.find`."""
        wanted = f"{OWNER}={owner}" if owner else RUN
        groups = self._ask("group", "list", "--tag", wanted, "--output", "json") or []
        found = []
        for group in groups:
            tags = group.get("tags") or {}
            if RUN in tags:
                found.append(resources_from_tags(tags[RUN], group["location"], tags, (group["name"],)))
        return merge_by_run(found)

    def alive(self, region: str, machines: Collection[str]) -> set[str]:
        """See `Cloud.alive`."""
        there = self._ask("vm", "list", "--show-details", "--output", "json") or []
        runs = {each.get("vmId", "").lower() for each in there if not _DOWN.search(each.get("powerState") or "")}
        return {machine for machine in machines if machine.lower() in runs}

    def give_back(self, run_id: str, region: str) -> list[str]:
        """See `Cloud.give_back`."""
        groups = self._ask("group", "list", "--tag", f"{RUN}={run_id}", "--output", "json") or []
        for group in groups:
            if group.get("properties", {}).get("provisioningState") == "Deleting":
                continue
            try:
                self._ask("group", "delete", "--name", group["name"], "--yes", "--no-wait")
            except DeployError as error:
                if not _GONE.search(str(error)):
                    raise
        return [f"resource group {group['name']}" for group in groups]
