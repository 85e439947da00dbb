"""Which provisioners and runners go together, told from their capabilities."""

from __future__ import annotations

from tradewind.deployer.provisioner.base import MakesMachines, Provisioner, ReachableBySsh, RunsDocker
from tradewind.deployer.runner.base import HasOwnMachines, NeedsImages, Runner, Simulates, ThisMachine, UsesMachines


def why_not(provisioner: type[Provisioner], runner: type[Runner]) -> str:
    """Why a runner cannot run on a provisioner's machines, or an empty text where it can."""
    made = issubclass(provisioner, MakesMachines)
    real = issubclass(provisioner, ReachableBySsh)
    if not made:
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
    if issubclass(runner, NeedsImages) and not issubclass(provisioner, RunsDocker):
        return f"the machines of {provisioner.name} have no container engine"
    return ""


def matrix(provisioners: dict[str, type[Provisioner]], runners: dict[str, type[Runner]]) -> dict[str, dict[str, str]]:
    """Runner -> provisioner -> why not, for all of some parts."""
    return {r: {p: why_not(made, run) for p, made in provisioners.items()} for r, run in runners.items()}
