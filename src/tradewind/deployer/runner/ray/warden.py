"""The warden of a run on a node of a Ray cluster: it ends its job when the actor of the run dies.

Another node may get the run then: on a cluster, unlike on one machine, nobody else would find the job.
"""

from __future__ import annotations

from tradewind.deployer.runner.warden.warden import Warden


class HeldWarden(Warden):
    """A warden whose jobs end when its controller does."""

    def _deadlines(self) -> None:
        if not self.controlled:
            for job in list(self.jobs.values()):
                job.end("preempted", "the actor of the run died", 0.0)
        super()._deadlines()


def main() -> None:
    """Run a `HeldWarden` on this process's standard input and output."""
    HeldWarden().run()
