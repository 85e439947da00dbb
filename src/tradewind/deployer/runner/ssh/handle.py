"""What the handles of the ssh runner tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tradewind.deployer.runner.handle import HandleData
from tradewind.deployer.ssh_target import SshTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class SshData(HandleData):
    """What an ssh handle tells of its run; its note has the same.

    Attributes:
        name: What it is called on its machines.
        machines: How they are reached, as `SshTarget` writes it, the first one first.
        load: True when it has a load generator beside the application.
        program: The first word of its command.
        wall_seconds: Its time limit, or None.
        memory_bytes: The memory that it may take on each machine, or None.
    """

    name: str = ""
    machines: Sequence[Mapping[str, Any]] = ()
    load: bool = False
    program: str = ""
    wall_seconds: float | None = None
    memory_bytes: int | None = None

    @property
    def targets(self) -> list[SshTarget]:
        """How its machines are reached, the first one first."""
        return [SshTarget(**facts) for facts in self.machines]
