"""The machines of ``tradewind workflow run``: which provisioner and runner give them, with which settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from tradewind.deployer.provisioner.base import Provisioner
    from tradewind.deployer.runner.base import Runner

_ABSENT = {"name": "workflow", "objective": "cost", "job.command": "true", "space": {"machine": [1]}}
"""Keys of a job YAML that a file of ``--deploy`` may leave out, and what stands for them."""


_NO_DEFAULT: dict[str, Any] = {"show_default": False}
_On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Where: local, a runner (slurm, ray, ssh, docker), or PROVISIONER+RUNNER (terraform+ssh), which makes the "
        "machines of the plan; local without it.",
        **_NO_DEFAULT,
    ),
]
_Deploy = Annotated[
    Path | None,
    typer.Option(help="In place of --on: a file with the deploy (and job: {image}) of a job YAML.", **_NO_DEFAULT),
]
_Image = Annotated[
    str | None, typer.Option(help="Container image with Python, for runners that use one.", **_NO_DEFAULT)
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting of the runner, partition=main, or provisioner.KEY=VALUE; tradewind plugins lists them; "
        "repeatable.",
    ),
]
_Budget = Annotated[
    str | None,
    typer.Option(
        help="Most that its machines may cost: $5. A plan that costs more is refused, a run that would is ended.",
        **_NO_DEFAULT,
    ),
]
_Deadline = Annotated[
    str | None, typer.Option(help="Time after its beginning at which the run is ended: 2h.", **_NO_DEFAULT)
]


@dataclass(frozen=True, slots=True)
class WhereOptions:
    """Options for where a plan is carried out."""

    on: _On = None
    set_: _Set = None
    deploy: _Deploy = None
    image: _Image = None


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Options for what it may cost, in money and time."""

    budget: _Budget = None
    deadline: _Deadline = None

    def parsed(self) -> tuple[float | None, float | None]:
        """USD and seconds, or None.

        Raises:
            InputError: One is no amount, or leaves nothing.
        """
        from tradewind.errors import InputError
        from tradewind.utils.units import parse_duration, parse_money

        dollars = None if self.budget is None else parse_money(self.budget)
        seconds = None if self.deadline is None else parse_duration(self.deadline)
        for option, text, value in (("--budget", self.budget, dollars), ("--deadline", self.deadline, seconds)):
            if value is not None and value <= 0:
                raise InputError(f"{option} {text!r} leaves nothing", hint="it is above 0")
        return dollars, seconds


@dataclass(frozen=True, slots=True)
class MachineSource:
    """The parts that give machines, the image that the agent runs in, and what is kept of logs.

    Attributes:
        provisioner: Makes the machines.
        runner: Runs the agent on them.
        image: Container image, or None.
        log_bytes: Bytes that are kept of stdout and of stderr of a task, each; None where nobody says.
    """

    provisioner: Provisioner
    runner: Runner
    image: str | None = None
    log_bytes: int | None = None


def machine_source(where: WhereOptions, place: Path) -> MachineSource:
    """Make the parts that give machines.

    Args:
        where: The options.
        place: Folder of the run.

    Raises:
        PluginError: There is no such part, or the two cannot carry out a plan.
        InputError: A setting is not written as one, or both ways are used at once.
        SpecError: The file is wrong.
    """
    from tradewind.cli.common import pairs
    from tradewind.errors import InputError

    given = pairs(where.set_, "--set", "seconds=5")
    if where.deploy is not None:
        if where.on is not None or given:
            raise InputError("--deploy says where the plan runs", hint="leave --on and --set out, or --deploy")
        return _from_file(where.deploy, where.image, place)
    made, _, runner = (where.on or "local").rpartition("+")
    own = {key: value for key, value in given.items() if not key.startswith("provisioner.")}
    others = {key.removeprefix("provisioner."): value for key, value in given.items() if key not in own}
    return _source((made or "none", others), (runner, own), Path.cwd(), where.image, place)


def _from_file(path: Path, image: str | None, place: Path) -> MachineSource:
    from tradewind.problem.job_spec.spec import build_spec
    from tradewind.problem.yaml_source import read_source

    source = read_source(path)
    job = source.document.get("job")
    there = {*source.document, *(f"job.{key}" for key in (job if isinstance(job, Mapping) else ()))}
    absent = {key: value for key, value in _ABSENT.items() if key not in there}
    spec = build_spec(source.override(absent), path.absolute().parent)
    with spec.placed(("deploy",)):
        found = _source(
            (spec.provisioner.name, spec.provisioner.settings),
            (spec.runner.name, spec.runner.settings),
            spec.base,
            image or spec.job.image,
            place,
        )
    return replace(found, log_bytes=spec.log_limit)


_Choice = tuple[str, Mapping[str, Any]]


def _source(made: _Choice, run: _Choice, base: Path, image: str | None, place: Path) -> MachineSource:
    from tradewind import plugins
    from tradewind.deployer.compatibility import shares_folder, workflow_incompatibility
    from tradewind.engine.deployment import make_plugin
    from tradewind.errors import PluginError
    from tradewind.utils.paths import data_folder

    name = "process" if run[0] == "local" else run[0]
    runner_class = cast("type[Runner]", plugins.load("runner", name))
    made_class = cast("type[Provisioner]", plugins.load("provisioner", made[0]))
    here = shares_folder(runner_class) and made[0] == "none"
    folder = place / "machines" / ".runner" if here else data_folder()
    provisioner = make_plugin("provisioner", made[0], made[1], base, folder)
    if why := workflow_incompatibility(made_class, runner_class, given=provisioner.gives_machines):
        on = run[0] if made[0] == "none" else f"{made[0]}+{run[0]}"
        raise PluginError(f"{on!r} cannot carry out a plan: {why}", hint=f"use {_able()}")
    return MachineSource(provisioner, make_plugin("runner", name, run[1], base, folder), image)


def _able() -> str:
    """The runners that can carry out a plan without machines being made, and how the others are found."""
    from tradewind.cli.plugins import compatibility_matrix

    found = compatibility_matrix(workflows=True)
    able = ["local" if name == "process" else name for name, row in found.items() if not row.get("none", "-")]
    return f"{', '.join(able)}; tradewind plugins --matrix shows all"
