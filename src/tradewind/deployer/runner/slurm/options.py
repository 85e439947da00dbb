"""The settings of the Slurm runner, and the options of sbatch and the command of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tradewind import plugins
from tradewind.deployer.runner.resource_limits import cpus_of, memory_of, whole_gpus
from tradewind.deployer.runner.slurm.option_words import CONTAINER_RULES, SBATCH
from tradewind.deployer.ssh_target import HostText, SshSettings
from tradewind.errors import ImageError
from tradewind.problem import RunRequest


def _check_sbatch_words(words: list[str]) -> list[str]:
    SBATCH.check(words)
    return words


def _check_mpi(given: str) -> str:
    if given in ("list", "help"):
        raise ValueError(f"srun --mpi={given} prints the plugins that there are, and starts nothing: name one of them")
    return given


class SlurmSettings(plugins.Settings):
    """Settings of the Slurm runner."""

    partition: str = Field("", description="The partition; the cluster's default without it")
    account: str = Field("", description="The account that pays")
    qos: str = Field("", description="The quality of service")
    constraint: str = Field("", description="Features that the nodes must have, as sbatch --constraint takes them")
    gres: str = Field("gpu", description="The name of the cluster's accelerators, with a type where wanted: `gpu:a100`")
    exclusive: bool = Field(False, description="Share no node with other jobs")
    sbatch: Annotated[list[str], AfterValidator(_check_sbatch_words)] = Field(
        [], description="Further options of sbatch, one a word: `--reservation=mine`"
    )
    mpi: Annotated[str, AfterValidator(_check_mpi)] = Field(
        "",
        description="Start the command once for each task: `mpirun`, or a plugin of `srun --mpi=list` (`pmix`, `pmi2`, "
        "`none`); empty: once, on the first node, and it starts the rest by itself",
    )
    tasks_per_node: int = Field(
        0, ge=0, description="Tasks on each node, with `mpi`; 0: one for each CPU, or a single one without `mpi`"
    )
    container: Literal["", "podman", "docker", "apptainer", "singularity", "oci", "pyxis"] = Field(
        "",
        description="What runs the job's image on the nodes: a program, Slurm's own support of OCI bundles (`oci`), "
        "or its plugin Pyxis (`pyxis`)",
    )
    container_options: list[str] = Field(
        [], description="Further options of what runs the image, one a word: `--nv`, `--device=nvidia.com/gpu=all`"
    )
    folder: Path | None = Field(
        None,
        description="A folder on a file system that this machine and all nodes see under this name; the data folder "
        "without it",
    )
    host: HostText = Field(
        "", description="A login host that Slurm's programs are called on by SSH, or empty for this one"
    )
    ssh: SshSettings = Field(SshSettings(), description="How the login host is reached by SSH")
    bin: str = Field("", description="The folder of Slurm's programs; empty to look on the PATH")
    inherit: bool = Field(
        True, description="Give the job the environment of this process, as sbatch does; never with `host`"
    )
    margin: float = Field(
        60.0,
        ge=0,
        description="Seconds that Slurm's own time limit lies above the wall time, which the job script keeps",
    )
    grace: float = Field(2.0, ge=0, le=25, description="Seconds between SIGTERM and SIGKILL when a run is ended")
    max_array: int = Field(
        1000, ge=1, description="Runs in one job array, at most: MaxArraySize of the cluster less one"
    )
    interval: float = Field(1.0, ge=0, description="Seconds between two looks at the queue, at least")
    timeout: float = Field(5.0, gt=0, description="Seconds that a question to Slurm may take")
    patience: float = Field(
        30.0, ge=0, description="Seconds that a submission is tried again while Slurm does not answer"
    )
    full: float = Field(
        3600.0,
        ge=0,
        description="Seconds after which runs are given up that Slurm does not take (`MaxSubmitJobs`, `MaxJobCount`) "
        "while it has none of ours in its queue; as long as it has some, they wait for those to end",
    )
    settle: float = Field(
        20.0,
        ge=0,
        description="Seconds that the end of a run may take to be seen here after its job has left the queue, and that "
        "a job may wait for a reason that will not go away by itself",
    )

    @field_validator("container_options")
    @classmethod
    def _harmless(cls, given: list[str], info: ValidationInfo) -> list[str]:
        if rules := CONTAINER_RULES.get(info.data.get("container", "")):
            rules.check(given)
        return given


def cpus_per_node(request: RunRequest) -> int:
    """The number of whole CPUs that a run gets on each node."""
    return max(1, math.ceil((cpus_of(request) or 0) - 1e-9))


def tasks_of(request: RunRequest, settings: SlurmSettings) -> int:
    """The number of tasks of a run on each node."""
    return settings.tasks_per_node or (cpus_per_node(request) if settings.mpi else 1)


def sbatch_options(request: RunRequest, settings: SlurmSettings) -> tuple[str, ...]:
    """The options of sbatch that ask for a run's resources; runs with the same can be elements of one array."""
    cpus, tasks, memory = cpus_per_node(request), tasks_of(request, settings), memory_of(request)
    words = [
        f"--nodes={request.offer.nodes + (request.load is not None)}",
        f"--ntasks-per-node={tasks}",
        f"--cpus-per-task={max(1, math.ceil(cpus / tasks))}",
    ]
    if memory is not None:
        words.append(f"--mem={max(1, math.ceil(memory / 2**20))}M")
    if request.limits.wall_seconds is not None and request.limits.asked:
        minutes = math.ceil((request.limits.wall_seconds + settings.grace + settings.margin) / 60)
        words.append(f"--time={max(1, minutes)}")
    if gpus := whole_gpus(request, "Slurm"):
        words.append(f"--gres={settings.gres}:{gpus}")
    chosen = {name: getattr(settings, name) for name in ("partition", "account", "qos", "constraint")}
    words += [f"--{name}={value}" for name, value in chosen.items() if value]
    if settings.exclusive:
        words.append("--exclusive")
    if request.image and settings.container == "oci":
        words.append(f"--container={request.image}")
    return (*words, *settings.sbatch)


def container_engine_of(request: RunRequest, settings: SlurmSettings) -> str:
    """The engine whose containers outlive their client, so that they must be removed; empty without one."""
    return settings.container if request.image and settings.container in ("podman", "docker") else ""


def command_of(
    request: RunRequest, folder: Path, settings: SlurmSettings, variables: list[str], label: str
) -> list[str]:
    """The command that a run starts on its first node.

    Args:
        request: The run.
        folder: The run's folder, as the nodes see it.
        settings: The settings of the runner.
        variables: The names of the variables that a container gets.
        label: The label of a container that outlives its client.

    Raises:
        ImageError: The job names an image, and the settings name nothing to run it.
    """
    around = _container(request, folder, settings, variables, label)
    step = around[:1] == ["srun"]  # the container is one of a step of the job
    tasks = tasks_of(request, settings) * request.offer.nodes
    if settings.mpi == "mpirun":
        return ["mpirun", "-n", str(tasks), *around, *request.argv]
    if settings.mpi:
        return ["srun", f"--mpi={settings.mpi}", f"--ntasks={tasks}", *around[step:], *request.argv]
    if step:
        return ["srun", "--nodes=1", "--ntasks=1", *around[1:], *request.argv]
    return [*around, *request.argv]


def _container(
    request: RunRequest, folder: Path, settings: SlurmSettings, variables: list[str], label: str
) -> list[str]:
    image, further = request.image, settings.container_options
    if image is None:
        return []
    work = str(request.workdir.absolute())
    match settings.container:
        case "podman" | "docker":
            mounts = [f"--volume={place}:{place}" for place in dict.fromkeys((str(folder), work))]
            # By name: values would be seen in the list of processes.
            passed = [f"--env={name}" for name in variables]
            words = ["run", "--rm", "--network=host", f"--label=tradewind={label}", *_limits(request, settings)]
            return [settings.container, *words, *mounts, f"--workdir={work}", *passed, *further, image]
        case "apptainer" | "singularity":
            mounts = [f"--bind={place}" for place in dict.fromkeys((str(folder), work))]
            return [settings.container, "exec", *mounts, f"--pwd={work}", *further, image]
        case "oci":
            return ["srun", f"--container={image}", *further]
        case "pyxis":
            places = ",".join(f"{place}:{place}" for place in dict.fromkeys((str(folder), work)))
            words = [f"--container-image={image}", f"--container-mounts={places}", f"--container-workdir={work}"]
            return ["srun", *words, *further]
        case _:
            raise ImageError(
                f"the job names the image {image}, and the slurm runner is not told what runs it",
                hint="set `container` to what the nodes have: podman, apptainer, oci or pyxis",
            )


def _limits(request: RunRequest, settings: SlurmSettings) -> list[str]:
    """The options that hold a container to its offer: its control group is its own, not that of its job."""
    memory = memory_of(request)
    words = [f"--memory={memory}b"] if memory is not None else []
    # A daemon's containers do not have the CPUs of who asks for them; others inherit those of the job.
    return [*words, f"--cpus={cpus_per_node(request)}"] if settings.container == "docker" else words
