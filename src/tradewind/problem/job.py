"""The job: what is run, in the user's words, before any configuration is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tradewind.problem.configuration import stable_hash
from tradewind.problem.objective import JobParameters
from tradewind.problem.run import Load, WorkflowJob


@dataclass(frozen=True, slots=True)
class Job:
    """A program with holes for the configuration.

    The holes are Jinja expressions (``{{ workers }}``). They may name every parameter, ``instance`` (the offer:
    ``{{ instance.vcpu }}``), ``nodes``, ``fraction`` and the job parameters. Each word of the command is filled in
    by itself, so that a value can never become a second argument, and no shell sees it.

    Attributes:
        name: The job's name; studies and history are found by it.
        command: The words of the command line, each a template.
        workdir: The folder it starts in; it is not changed by Tradewind.
        env: Environment variables, each value a template.
        secrets: Environment variable by name -> reference (``env:NAME``, ``file:PATH`` or
            ``keyring:SERVICE/NAME``); values never leave the runner.
        inputs: Files and URLs to stage before the run.
        outputs: Glob patterns, below the run's folder, to keep after it.
        image: Container image, for runners that use one.
        parameters: The job's own parameters, such as the input size.
        load: A load generator that drives the command, its words and variables being templates; or None.
        ports: Ports of the job that are made reachable from outside, for runners in containers.
        workflow: The workflow that is run instead of the command, its texts being templates; or None.
    """

    name: str
    command: tuple[str, ...]
    workdir: Path = field(default_factory=Path.cwd)
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    image: str | None = None
    parameters: JobParameters = field(default_factory=JobParameters)
    load: Load | None = None
    ports: tuple[int, ...] = ()
    workflow: WorkflowJob | None = None

    @property
    def key(self) -> str:
        """A hash of what decides the job's time: not its folder, not its secrets."""
        return stable_hash(
            {
                "name": self.name,
                "command": list(self.command),
                "env": dict(self.env),
                "inputs": list(self.inputs),
                "image": self.image,
                # 4000 and 4000.0 are the same job.
                "parameters": {
                    name: value if isinstance(value, str) else float(value)
                    for name, value in self.parameters.values.items()
                },
                "fidelity": self.parameters.fidelity,
                **({"load": asdict(self.load)} if self.load else {}),
                **({"workflow": _without_empty_measured(self.workflow)} if self.workflow else {}),
            }
        )


def _without_empty_measured(workflow: WorkflowJob) -> dict[str, object]:
    """A workflow as keys count it: studies of before there were measured run times go on."""
    found = asdict(workflow)
    if not workflow.measured:
        del found["measured"]
    return found
