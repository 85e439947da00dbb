"""Applications that come with the product: three to begin with, and kernels that show what machines are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from tradewind.service.accounts.identity import Principal

if TYPE_CHECKING:
    from tradewind.service.applications.application_service import ApplicationService

MAKER = Principal(0, "Tradewind", "admin", "")
"""The author of the applications, as pages show it."""

MOST_DOLLARS = 0.05
"""USD that a starter may cost at most when it is run with one click."""


@dataclass(frozen=True, slots=True)
class ReadyApplication:
    """An application that comes with the product.

    Attributes:
        name: Name of the application.
        file: Its document, in this folder.
        program: Its program, in the folder ``programs``.
        trials: Runs of the search that one click begins; 0 for one run.
    """

    name: str
    file: str
    program: str
    trials: int = 0

    def document(self) -> dict[str, Any]:
        """Read the document of the application, with its program in it."""
        folder = files(__name__)
        document: dict[str, Any] = yaml.safe_load(folder.joinpath(self.file).read_text(encoding="utf-8"))
        text = folder.joinpath("programs", self.program).read_text(encoding="utf-8")
        document["application"]["files"] = {self.program: text}
        return document

    def request(self) -> dict[str, Any]:
        """Return the rest of the request that one click makes: what it may cost, and whether it is a search."""
        if self.trials:
            return {"search": {"budget": {"dollars": MOST_DOLLARS, "trials": self.trials}}}
        return {"budget": MOST_DOLLARS}


STARTERS = (
    ReadyApplication("starter-galaxy", "galaxy.yaml", "galaxy.py"),
    ReadyApplication("starter-heat", "heat.yaml", "heat.py"),
    ReadyApplication("starter-primes", "primes.yaml", "primes.py", trials=6),
)
"""Applications to begin with, as the first page shows them."""

BENCHMARKS = (
    ReadyApplication("nas-kernels", "kernels.yaml", "kernels.py"),
    ReadyApplication("memory-sweep", "memory.yaml", "kernels.py"),
    ReadyApplication("network-sweep", "network.yaml", "kernels.py"),
)
"""Kernels that show how many nodes and processes are worth it."""


def install(applications: ApplicationService, wanted: Sequence[ReadyApplication], who: Principal = MAKER) -> list[str]:
    """Register applications for all tenants; one that is there as it is gets no new version.

    Args:
        applications: The applications of the server.
        wanted: `STARTERS` or `BENCHMARKS`.
        who: An administrator, or the product itself.

    Returns:
        Their titles.

    Raises:
        ForbiddenError: The user is no administrator.
    """
    return [applications.register(who, one.document(), shared=True).name for one in wanted]
