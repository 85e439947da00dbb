"""Judges from their capabilities which provisioners and runners go together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from tradewind import plugins
from tradewind.deployer.provisioner.base import MakesMachines, Provisioner, ReachableBySsh, RunsDocker
from tradewind.deployer.runner.base import (
    HasOwnMachines,
    NeedsImages,
    OpensChannel,
    Runner,
    RunsWorkflows,
    Simulates,
    ThisMachine,
    UsesMachines,
)
from tradewind.errors import PluginError
from tradewind.problem import Offer
from tradewind.problem.stored_goal import goal_document


def incompatibility(provisioner: type[Provisioner], runner: type[Runner], *, given: bool = False) -> str:
    """Say why a runner cannot run on a provisioner's machines; an empty text where it can.

    Args:
        provisioner: Who makes the machines.
        runner: Who runs the job.
        given: It gives machines without making any: the hosts that a user has.
    """
    made = issubclass(provisioner, MakesMachines)
    real = issubclass(provisioner, ReachableBySsh)
    if not (made or given):
        return ""
    if issubclass(runner, HasOwnMachines):
        return f"the engine of {runner.name} has its own machines"
    if not real:
        # Pretended machines: whatever runs, runs here.
        return "" if issubclass(runner, Simulates | ThisMachine) else f"the machines of {provisioner.name} are not real"
    if issubclass(runner, Simulates):
        return f"{runner.name} runs nothing for real"
    if not issubclass(runner, UsesMachines):
        return f"{runner.name} runs on this machine only"
    if made and issubclass(runner, NeedsImages) and not issubclass(provisioner, RunsDocker):
        return f"the machines of {provisioner.name} have no container engine"
    return ""


def offer_incompatibility(provisioner: Provisioner, runner: Runner, offer: Offer) -> str:
    """Say why a runner can never run on a provisioner's machines for an offer, both with their settings; else empty.

    Args:
        provisioner: Who makes the machines.
        runner: Who runs the job.
        offer: The machines that are wanted.

    Raises:
        DeployError: The settings of one cannot be used.
    """
    given = provisioner.gives_machines
    return incompatibility(type(provisioner), type(runner), given=given) or runner.refuses(offer, given=given)


def shares_folder(runner: type[Runner]) -> bool:
    """True for a runner whose machines see the folders of this one and can be reached from here: nothing is copied."""
    own = issubclass(runner, HasOwnMachines) and not issubclass(runner, NeedsImages)
    return not issubclass(runner, OpensChannel) and (issubclass(runner, ThisMachine) or own)


def workflow_incompatibility(provisioner: type[Provisioner], runner: type[Runner], *, given: bool = False) -> str:
    """Say why the machines of two parts cannot carry out a plan of a workflow; an empty text where they can.

    Args:
        provisioner: Who makes the machines.
        runner: Who runs the agent on them.
        given: It gives machines without making any: the hosts that a user has.
    """
    if why := incompatibility(provisioner, runner, given=given):
        return why
    if issubclass(runner, Simulates):
        return f"{runner.name} runs nothing for real"
    if issubclass(runner, RunsWorkflows):
        return f"{runner.name} runs whole workflows, and no single program"
    if shares_folder(runner) or issubclass(runner, OpensChannel):
        return ""
    return f"{runner.name} opens no channel to what it runs"


def compatibility_matrix(
    provisioners: dict[str, type[Provisioner]], runners: dict[str, type[Runner]], *, workflows: bool = False
) -> dict[str, dict[str, str]]:
    """Runner -> provisioner -> why not, for all of some parts.

    Args:
        provisioners: By name.
        runners: By name.
        workflows: True for workflows that are carried out, False for jobs.
    """
    judge = workflow_incompatibility if workflows else incompatibility
    return {r: {p: judge(made, run) for p, made in provisioners.items()} for r, run in runners.items()}


def is_simulated(spec: Mapping[str, Any]) -> bool:
    """True for a stored specification whose runs nobody pays: they are simulated, or answered from records.

    Args:
        spec: The document of a study; any part of it may be missing.
    """
    deploy = goal_document(spec).get("deploy")
    runner = deploy.get("runner") if isinstance(deploy, Mapping) else None
    name = (runner.get("use") or runner.get("name")) if isinstance(runner, Mapping) else runner
    return _simulates(str(name or ""))


@cache
def _simulates(runner: str) -> bool:
    """True for a runner that simulates; one that is not installed here is not known to."""
    try:
        return bool(runner) and issubclass(plugins.load("runner", runner), Simulates)
    except PluginError:
        return False
