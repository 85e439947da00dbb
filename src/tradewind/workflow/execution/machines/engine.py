"""The parts of the deployer that give a run its machines."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.deployer.compatibility import offer_incompatibility, shares_folder, workflow_incompatibility
from tradewind.deployer.lifecycle.deployer import Deployer
from tradewind.deployer.provisioner.base import MakesMachines, Provisioner
from tradewind.deployer.provisioner.none import NoneProvisioner, NoneSettings
from tradewind.deployer.runner.base import NeedsImages, Runner
from tradewind.errors import NoOfferError, PluginError, WorkflowError
from tradewind.problem import Billing
from tradewind.workflow.execution.agent import proof
from tradewind.workflow.execution.machines.rows import RunRows
from tradewind.workflow.platform import Vm

_NOBODY = "workflow-nobody"
"""An owner that has no machines."""


@dataclass(frozen=True)
class PilotEngine:
    """A provisioner and a runner that give the machines of a run, and who keeps their rows.

    Attributes:
        provisioner: Makes the machines.
        runner: Runs the agent on each.
        rows: Keeps their rows.
    """

    provisioner: Provisioner
    runner: Runner
    rows: RunRows

    @property
    def name(self) -> str:
        """Name as ``--on`` takes it."""
        made = self.provisioner
        plain = made.name == "none" and not made.gives_machines
        return self.runner.name if plain else f"{made.name}+{self.runner.name}"

    @property
    def apart(self) -> bool:
        """True where machines do not see the run's folder: files are sent to them."""
        return not shares_folder(type(self.runner))

    def deployer(self, owner: str, billing: Billing) -> Deployer:
        """Make the deployer of a run.

        Args:
            owner: Tag of all that is made.
            billing: Rule that turns time into money.
        """
        return Deployer(provisioner=self.provisioner, runner=self.runner, billing=billing, owner=owner)

    def fingerprint(self, secret: str) -> str:
        """Compute a fingerprint that distinguishes the settings of the parts without revealing them.

        Args:
            secret: Secret of the run, which keys the digest.
        """
        settings = self.runner.settings.model_dump(mode="json", exclude_defaults=True)
        made = self.provisioner.settings.model_dump(mode="json", exclude_defaults=True)
        if made or self.provisioner.name != "none":
            settings = {"runner": settings, "provisioner": made}
        return proof(secret, json.dumps(settings, sort_keys=True))

    def session(self, secret: str) -> dict[str, Any]:
        """Make what the journal keeps of the parts that a session works with."""
        place = {"host": socket.gethostname(), "on": self.name, "settings": self.fingerprint(secret)}
        return {**place, "apart": True} if self.apart else place

    def check(self, vms: Sequence[Vm], used: Sequence[int], image: str | None) -> None:
        """Check, before anything is made, that the machines of a plan can be had.

        Args:
            vms: The machines.
            used: Those that have tasks.
            image: Container image, or None.

        Raises:
            PluginError: The parts cannot carry out a plan.
            WorkflowError: Nothing is known of who sells a machine, or there is no image.
            NoOfferError: The provisioner does not make such a machine.
            TradewindError: It cannot be asked, as without credentials.
        """
        given = self.provisioner.gives_machines
        if why := workflow_incompatibility(type(self.provisioner), type(self.runner), given=given):
            raise PluginError(f"{self.name} cannot carry out a plan: {why}", hint="tradewind plugins --matrix")
        if isinstance(self.runner, NeedsImages) and not image:
            hint = "name one that has Python: --image python:3.12-slim, or job: {image: ...} in the file of --deploy"
            raise WorkflowError(
                f"{self.runner.name} runs everything in a container image, and there is none", hint=hint
            )
        if not isinstance(self.provisioner, MakesMachines):
            return
        for vm in (vms[place] for place in used):
            if vm.offer is None:
                raise WorkflowError(
                    f"the plan does not say who sells machine {vm.name!r}: it is of an older version, or of machines "
                    "without an offer",
                    hint="advise again, or name an offer: for each machine of --vms and plan again",
                )
            offer = vm.offer.times(1)
            why = self.provisioner.refuses(offer) or offer_incompatibility(self.provisioner, self.runner, offer)
            if why:
                where = ":".join(filter(None, (offer.provider, offer.region, offer.instance_type)))
                raise NoOfferError(f"machine {vm.name!r} of the plan ({where}) cannot be had: {why}")
        # Whom it does not know it would make nothing for; and it would not say what there is, so that no end came.
        self.provisioner.find(_NOBODY)


def plain_provisioner(data_folder: Path) -> Provisioner:
    """Make the provisioner of machines that are there already.

    Args:
        data_folder: Where it keeps what it needs.
    """
    return NoneProvisioner(settings=NoneSettings(), data_folder=data_folder)
