"""The options of ``tradewind workflow advise``, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tradewind.cli import completion
from tradewind.cli.workflow.common import Seed


class StorageOption(StrEnum):
    """Where the files of a workflow are."""

    NONE = "none"
    SHARED = "shared"
    LOCAL = "local"


def _listed(words: str) -> Any:
    return typer.Option(help=f"{words}; repeatable.")


_NO_DEFAULT: dict[str, Any] = {"show_default": False}

_Texts = list[str] | None
_Deadline = Annotated[str | None, typer.Option(help="Time from the order of the VMs to the end: 30m.", **_NO_DEFAULT)]
_Budget = Annotated[
    str | None,
    typer.Option(
        help="USD that one execution may cost: 2, or '$2' (in quotes, for the shell). Looking for it costs nothing.",
        **_NO_DEFAULT,
    ),
]
_Types = Annotated[_Texts, typer.Option("--type", "--types", help="Instance type, * and ? match; repeatable.")]
_Category = Annotated[_Texts, _listed("As in tradewind offers; all but burstable and accelerated without it")]
_Speed = Annotated[_Texts, _listed("Speed of a vCPU by type, family or pattern, 1 is that of the run times: c7i=1.3")]
_Slots = Annotated[int | None, typer.Option(min=1, help="Tasks that a VM runs at a time; its vCPUs without it.")]
_Boot = Annotated[str, typer.Option(help="Time from the order of a VM until it can run a task; it is paid.")]
_Minimum = Annotated[str, typer.Option("--billing-minimum", help="The least time that a VM is billed for.")]
_Granularity = Annotated[str, typer.Option(help="Billed time is rounded up to a multiple of this.")]
_Storage = Annotated[StorageOption, typer.Option(help="Where files are: none (they cost nothing), shared or local.")]
_Planner = Annotated[
    str, typer.Option(help="The planner while sets are compared.", autocompletion=completion.parts("planner"))
]
_Searcher = Annotated[
    str, typer.Option(help="Who proposes sets: bounds knows the workflow; tradewind plugins lists others.")
]
_Refine = Annotated[
    str, typer.Option(help="Processor time to look for a better plan on each of the best sets; 0 for none.")
]
_Csv = Annotated[str | None, typer.Option(help="A CSV of your own offers, besides or instead.")]
_Set = Annotated[_Texts, typer.Option("--set", help="A catalogue's setting: local.price_per_vcpu=0.05; repeatable.")]
_Out = Annotated[Path | None, typer.Option(help="Write the plan there, for workflow run.", **_NO_DEFAULT)]
_VmsOut = Annotated[Path | None, typer.Option(help="Write the VMs there, for --vms.", **_NO_DEFAULT)]


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """What is wanted of a set of VMs."""

    deadline: _Deadline = None
    budget: _Budget = None
    max_vms: Annotated[int, typer.Option(min=1, max=1000, help="VMs of a set at most.")] = 16
    mix: Annotated[int, typer.Option(min=1, max=4, help="Types of VMs in one set at most.")] = 2


@dataclass(frozen=True, slots=True)
class MarketOptions:
    """Which offers are looked at."""

    provider: Annotated[_Texts, _listed("Catalogue or provider")] = None
    region: Annotated[_Texts, _listed("Region")] = None
    types: _Types = None
    category: _Category = None
    arch: Annotated[_Texts, _listed("x86_64 or arm64")] = None
    spot: Annotated[bool, typer.Option("--spot", help="Spot offers instead of on demand.")] = False


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """What the VMs can do, and how they are billed."""

    speed: _Speed = None
    slots: _Slots = None
    boot: _Boot = "60s"
    minimum: _Minimum = "60s"
    granularity: _Granularity = "1s"
    storage: _Storage = StorageOption.NONE
    bandwidth: Annotated[float, typer.Option(help="MB/s at which a VM reads files.")] = 15.0
    latency: Annotated[str, typer.Option(help="Time for each file that is read.")] = "0s"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How sets are looked for."""

    planner: _Planner = "heft"
    searcher: _Searcher = "bounds"
    trials: Annotated[int, typer.Option(min=1, help="Sets of one type to try at most, and as many mixed ones.")] = 300
    seconds: Annotated[str, typer.Option(help="Processor time that the search may take.")] = "20s"
    refine: _Refine = "1s"
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """Where prices are from."""

    csv: _Csv = None
    set_: _Set = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What is written."""

    out: _Out = None
    vms_out: _VmsOut = None
