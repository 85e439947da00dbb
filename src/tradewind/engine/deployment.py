"""Makes the deployer of a specification, and the requests that it carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind import plugins
from tradewind.problem import CheckpointPlan, Limits, Run, RunRequest, TenantShare, Trial
from tradewind.problem.template import render, render_load, render_workflow
from tradewind.searcher.base import ContinuesTrials
from tradewind.store.base import StudyRow
from tradewind.utils.paths import expand, make_private
from tradewind.utils.user_functions import JobRelativePath

if TYPE_CHECKING:
    from tradewind.deployer.lifecycle.deployer import Deployer
    from tradewind.deployer.lifecycle.run_context import StageListener
    from tradewind.problem.job_spec.spec import JobSpec

_LONGEST = 7 * 86400.0
"""Seconds that a run may take which nothing limits and whose YAML says nothing of it."""

_EXPIRY_SLACK = 3600.0
"""Seconds beyond a run's wall time after which anyone may destroy what is left of it."""


_USES = 8
"""So many runs as long as the first one may be may use the same machines, with the longest pauses between them."""

_DAY = 86400.0


def build_deployer(spec: JobSpec, owner: str, data_folder: Path, entered: StageListener | None = None) -> Deployer:
    """The deployer of a specification.

    Args:
        spec: The specification.
        owner: Tag of everything that its runs create.
        data_folder: Where runners and provisioners keep what they need between processes.
        entered: Told of each stage that a run enters.
    """
    from tradewind.deployer.lifecycle.deployer import Deployer
    from tradewind.deployer.lifecycle.hooks import Hooks
    from tradewind.deployer.result_uploads import ResultUploader

    made = {}
    for kind, choice in (("runner", spec.runner), ("provisioner", spec.provisioner)):
        with spec.placed(("deploy", kind)):
            made[kind] = make_plugin(kind, choice.name, choice.settings, spec.base, data_folder)
    hooks = Hooks.from_spec(
        {
            moment: [
                {"command": hook.command, "timeout": hook.timeout}
                if hook.command
                else {"python": hook.python, "timeout": hook.timeout}
                for hook in listed
            ]
            for moment, listed in spec.hooks.items()
        }
    )
    return Deployer(
        provisioner=made["provisioner"],
        runner=made["runner"],
        billing=spec.billing,
        owner=owner,
        hooks=hooks,
        results=ResultUploader(data_folder / "uploads" / owner),
        entered=entered,
        keeps=spec.keep is not None,
    )


def make_plugin(kind: str, name: str, settings: Mapping[str, Any], base: Path, data_folder: Path) -> Any:
    """A runner or provisioner, with the settings that a job YAML gives it.

    Args:
        kind: ``runner`` or ``provisioner``.
        name: Its entry-point name.
        settings: Its settings as the YAML has them.
        base: The folder that paths among them are seen from.
        data_folder: Where it keeps what it needs between processes.
    """
    return plugins.create(kind, name, resolve_setting_paths(base, kind, name, settings), data_folder=data_folder)


def resolve_setting_paths(base: Path, kind: str, name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part's settings, with the paths among them seen from a folder.

    Args:
        base: The folder.
        kind: The part's kind.
        name: Its entry-point name.
        settings: Its settings as the YAML has them.
    """
    fields = plugins.load(kind, name).Settings.model_fields
    seen = dict(settings)
    for key, value in settings.items():
        if key not in fields or not isinstance(value, str):
            continue
        if fields[key].annotation in (Path, Path | None):
            seen[key] = str(base / expand(value))
        elif any(isinstance(mark, JobRelativePath) for mark in fields[key].metadata):
            place, _, function = value.rpartition(":")
            seen[key] = f"{base / expand(place)}:{function}" if place.endswith(".py") else value
    return seen


def run_folder(data_folder: Path, owner: str, run_id: str) -> Path:
    """The folder of a run on this machine."""
    return data_folder / "runs" / owner / run_id


def checkpoint_folder(data_folder: Path, owner: str, number: int | None = None) -> Path:
    """The folder of a trial's checkpoints on this machine, or of all those of a study."""
    folder = data_folder / "checkpoints" / owner
    return folder if number is None else folder / f"{number:05d}"


def _make_folders(data_folder: Path, owner: str) -> None:
    """Make the folders that those of a study's runs and checkpoints are in, for this user alone."""
    for name in ("runs", "checkpoints"):
        with suppress(OSError):  # the runner, which needs it, says why
            make_private(data_folder / name / owner)


def run_span(spec: JobSpec, wall_seconds: float | None) -> float:
    """Seconds from the launch of a run until anyone may destroy what is left of it.

    Args:
        spec: The specification.
        wall_seconds: Its wall time, or None.
    """
    return _wall(spec, wall_seconds) + _EXPIRY_SLACK


def _wall(spec: JobSpec, wall_seconds: float | None) -> float:
    most = _LONGEST if spec.longest is None else spec.longest
    return most if wall_seconds is None else min(wall_seconds, most)


def machines_span(spec: JobSpec, wall_seconds: float | None) -> float | None:
    """Seconds that machines may live which are kept between runs; None where they are not.

    It is fixed when they are made, since tags and switch-off times of machines cannot be changed everywhere: time for
    some runs like the first one, a day more than that one at most. Then others are made.

    Args:
        spec: The specification.
        wall_seconds: Wall time of the run that they are made for, or None.
    """
    if spec.keep is None:
        return None
    turn = _wall(spec, wall_seconds) + spec.keep
    return turn + min((_USES - 1) * turn, max(_DAY, spec.keep)) + _EXPIRY_SLACK


def run_request_factory(
    spec: JobSpec, study: StudyRow, data_folder: Path, now: Callable[[], float]
) -> Callable[[Trial, Run, float | None], RunRequest]:
    """Makes the request of a run from its trial, its row and its wall time.

    Args:
        spec: The specification.
        study: The study's row.
        data_folder: The runs' folders are made below it.
        now: The time on the runner's clock.
    """

    def checkpoints(trial: Trial) -> CheckpointPlan | None:
        if spec.checkpoint is None:
            return None
        folder, origin = partial(checkpoint_folder, data_folder, study.owner), trial.proposal.origin
        before = None if origin is None else folder(origin)
        return CheckpointPlan(folder(trial.number), spec.checkpoint, before, kept)

    kept = issubclass(plugins.load("searcher", spec.searcher.name), ContinuesTrials)

    def make(trial: Trial, run: Run, wall_seconds: float | None) -> RunRequest:
        _make_folders(data_folder, study.owner)
        job, offer, most = spec.job, trial.offer, _wall(spec, None)
        longest, live = _wall(spec, wall_seconds), machines_span(spec, wall_seconds)
        fraction = trial.proposal.fidelity * job.parameters.fidelity
        argv, env = render(job, trial.configuration, offer, fraction)
        return RunRequest(
            run_id=run.run_id,
            owner=study.owner,
            expires=now() + run_span(spec, wall_seconds),
            machines_expire=None if live is None else now() + live,
            argv=argv,
            env={**env, "TRADEWIND_STUDY": study.name},
            secrets=job.secrets,
            workdir=job.workdir,
            folder=run_folder(data_folder, study.owner, run.run_id),
            offer=offer,
            configuration=trial.configuration,
            limits=Limits(
                cpus=offer.vcpu or None,
                memory_bytes=int(offer.memory_gib * 2**30) or None,
                wall_seconds=longest,
                log_bytes=spec.log_limit,
                asked=spec.longest is not None or longest < most,
            ),
            image=job.image,
            inputs=job.inputs,
            outputs=job.outputs,
            fidelity=fraction,
            load=render_load(job, trial.configuration, offer, fraction),
            ports=job.ports,
            results=spec.results,
            places=spec.places,
            parameters=job.parameters.values,
            workflow=render_workflow(job, trial.configuration, offer, fraction),
            checkpoint=checkpoints(trial),
        )

    return make


def for_tenant(
    make: Callable[[Trial, Run, float | None], RunRequest], name: str, weight: Callable[[], float]
) -> Callable[[Trial, Run, float | None], RunRequest]:
    """Makes requests of runs that are a tenant's, where several share machines.

    Args:
        make: Makes them without.
        name: The tenant.
        weight: Its weight now.
    """

    def made(trial: Trial, run: Run, wall_seconds: float | None) -> RunRequest:
        return replace(make(trial, run, wall_seconds), tenant=TenantShare(name, weight()))

    return made
