"""What the settings of the Slurm runner make of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.deployer.helpers import OFFER, request_for

from tradewind.deployer.runner.slurm.options import SlurmSettings, command_of
from tradewind.deployer.runner.slurm.queue import SlurmQueueRow
from tradewind.deployer.runner.slurm.status import blocking_reason


def command(base: Path, image: str | None = None, **settings: Any) -> list[str]:
    offer = replace(OFFER, vcpu=2, nodes=3)
    request = replace(request_for(base, ("app", "-x"), offer=offer), image=image)
    return command_of(request, base, SlurmSettings.model_validate(settings), ["A"], "mine")


def test_a_container_is_held_to_the_offer_and_is_found_again(tmp_path: Path) -> None:
    """It is in no control group of its job: an engine's own process has it."""
    found = command(tmp_path, "some/image:1", container="docker", container_options=["--gpus=all"])
    assert {"--label=tradewind=mine", "--env=A"} <= set(found)
    assert [word for word in found if word.startswith("--memory=")]
    assert [word for word in found if word.startswith("--cpus=")]
    assert found[-4:] == ["--gpus=all", "some/image:1", "app", "-x"]
    podman = command(tmp_path, "some/image:1", container="podman")
    assert not [word for word in podman if word.startswith("--cpus=")], "Podman's have the CPUs of the job"


@pytest.mark.parametrize("container", ["apptainer", "oci", "pyxis"])
def test_options_of_a_container_are_the_users(tmp_path: Path, container: str) -> None:
    found = command(tmp_path, "/image", container=container, container_options=["--nv"])
    assert found.index("--nv") < found.index("app")


@pytest.mark.parametrize(
    "words",
    [
        ["--reservation=mine"], ["--reservation", "mine"], ["-p", "fast"], ["-n4"], ["--wait-all-nodes=1"],
        ["--exclusive", "--mail-type=END"], ["-A", "lab", "-H"], ["--dependency=afterok:7"],
    ],
)  # fmt: skip
def test_options_that_choose_machines_and_accounts_are_sbatchs(words: list[str]) -> None:
    assert SlurmSettings(sbatch=words).sbatch == words


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--array=1-3"], "set by Tradewind"),
        (["--arr", "1-3"], "set by Tradewind"),
        (["--arr 1-3"], r"one word for sbatch, which knows no such option; write --arr=1-3"),
        (["-a1-3"], "set by Tradewind"),
        (["-Ha1-3"], "set by Tradewind"),
        (["--parsable"], "set by Tradewind"),
        (["-oout"], "set by Tradewind"),
        (["--wrap=date"], "job script"),
        (["job.sh"], "job script"),
        (["--exclusive", "job.sh"], "job script"),
        (["--reservation=a", "job.sh"], "job script"),
        (["--gres=gpu:1", ":", "--gres=gpu:2"], "several jobs"),
        (["--", "job.sh"], "ends the options"),
        (["--test-only"], "submits nothing"),
        (["--help"], "submits nothing"),
        (["-V"], "submits nothing"),
        (["-Q"], "prints"),
        (["-W"], "wait"),
        (["--requeue"], "again"),
        (["-M", "other"], "cluster"),
        (["--gres=help"], "prints"),
        (["--cpu-bind", "help"], "prints"),
    ],
)
def test_options_that_break_the_runner_are_refused_when_they_are_read(words: list[str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SlurmSettings(sbatch=words)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ("docker", ["--gpus=all", "-v", "/data:/data:ro", "--volume=/a:/b", "-eMODE=fast", "-e", "HOME"]),
        ("docker", ["--entrypoint=", "--user", "1000", "-u0", "--init", "--privileged", "-P", "-h", "node"]),
        ("docker", ["--pull", "never", "--platform=linux/amd64", "-q", "--label", "team=lab", "-l", "a=b"]),
        ("docker", ["--shm-size=1g", "--ulimit", "memlock=-1", "--rm=true", "--restart=no", "--detach=false"]),
        ("docker", ["--memory-swap=-1", "--network-alias=x", "--name-of-a-later-version=x"]),
        ("podman", ["--device=nvidia.com/gpu=all", "--userns=keep-id", "--cpus=1", "--log-driver", "none", "--rmi"]),
        ("apptainer", ["--nv", "--contain", "-B", "/data", "--env", "A=1,B=2", "-w", "--no-home", "--overlay", "x"]),
        ("singularity", ["--rocm", "-fB/data", "-o", "overlay.img", "--writable-tmpfs"]),
        ("oci", ["--cpu-bind=cores", "-u", "--mem=0", "-c", "4", "--overlap", "-W", "30", "-K"]),
        ("pyxis", ["--container-mounts=/data:/data", "--no-container-mount-home", "--container-writable", "-t5"]),
        ("", ["--name=x"]),
    ],
)
def test_options_of_a_container_that_are_only_unusual_pass(container: str, words: list[str]) -> None:
    given = SlurmSettings.model_validate({"container": container, "container_options": words})
    assert given.container_options == words


@pytest.mark.parametrize(
    ("container", "words", "why"),
    [
        ("docker", ["--name=x"], "--name=x gives the containers of all runs one name"),
        ("podman", ["--name", "x"], "one name"),
        ("docker", ["--rm"], "set by Tradewind"),
        ("docker", ["--rm=false"], "set by Tradewind"),
        ("docker", ["-d"], "before the job has ended"),
        ("docker", ["--gpus", "all", "-dit"], "before the job has ended"),
        ("podman", ["-Pit"], "takes over the input"),
        ("docker", ["-t"], "one stream"),
        ("docker", ["--tty=true"], "one stream"),
        ("docker", ["-a", "stdout"], "which of the job's output"),
        ("docker", ["--cidfile=/tmp/id"], "one file for all runs"),
        ("docker", ["--restart=on-failure:3"], "use deploy.retries"),
        ("docker", ["--restart", "no"], "use deploy.retries"),
        ("docker", ["--sig-proxy=false"], "from being ended"),
        ("docker", ["--help"], "starts nothing"),
        ("docker", ["-w/elsewhere"], "set by Tradewind"),
        ("docker", ["--network=none"], "set by Tradewind"),
        ("docker", ["--memory", "64g"], "set by Tradewind"),
        ("docker", ["-m=64g"], "set by Tradewind"),
        ("docker", ["--cpus=64"], "set by Tradewind"),
        ("docker", ["--label=tradewind=x"], "found again"),
        ("podman", ["-l", "tradewind=x"], "found again"),
        ("docker", ["-eTRADEWIND_OUTPUTS=/x"], "sets TRADEWIND_OUTPUTS"),
        ("docker", ["--env", "TRADEWIND_RUN=x"], "sets TRADEWIND_RUN"),
        ("docker", ["other/image"], "place of the image"),
        ("docker", ["--init", "other/image"], "place of the image"),
        ("docker", ["--user=0", "other/image"], "place of the image"),
        ("docker", ["--"], "ends the options"),
        ("apptainer", ["--pwd=/x"], "set by Tradewind"),
        ("apptainer", ["--cleanenv"], "use inherit: false"),
        ("singularity", ["-ce"], "use inherit: false"),
        ("apptainer", ["--containall"], "use --contain here"),
        ("apptainer", ["--env", "A=1,TRADEWIND_RUN=2"], "sets TRADEWIND_RUN"),
        ("apptainer", ["--nv", "other.sif"], "place of the image"),
        ("oci", ["--nodes=2"], "use mpi and tasks_per_node"),
        ("oci", ["-n4"], "use mpi and tasks_per_node"),
        ("pyxis", ["--output=x"], "set by Tradewind"),
        ("pyxis", ["--outp=x"], "set by Tradewind"),
        ("pyxis", ["-ul"], "number before each line"),
        ("pyxis", ["--pty"], "one stream"),
        ("pyxis", ["--gpus 2"], r"one word for srun, .*; write --gpus=2"),
        ("docker", ["--user 0"], r"one word for docker, .*; write --user=0"),
        ("pyxis", ["--export=NONE"], "inherit: false"),
        ("pyxis", ["--mpi=pmix"], "use mpi"),
        ("oci", ["--cpu-bind=help"], "prints"),
        ("oci", ["date"], "place of the command"),
    ],
)
def test_options_of_a_container_that_break_the_runner_are_refused(container: str, words: list[str], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SlurmSettings.model_validate({"container": container, "container_options": words})


def test_a_plugin_of_mpi_is_named_and_the_login_host_is_a_host() -> None:
    with pytest.raises(ValidationError, match="starts nothing"):
        SlurmSettings(mpi="list")
    assert SlurmSettings(host="ssh://me@login:2222").host
    with pytest.raises(ValidationError, match="http:// is no way"):
        SlurmSettings(host="http://login")


def waiting(reason: str) -> SlurmQueueRow:
    return SlurmQueueRow("7", "7", "batch", 0, "PENDING", reason, 0.0, {})


def test_a_command_is_started_once_or_once_for_each_task(tmp_path: Path) -> None:
    assert command(tmp_path) == ["app", "-x"]
    assert command(tmp_path, mpi="pmix") == ["srun", "--mpi=pmix", "--ntasks=6", "app", "-x"]
    assert command(tmp_path, mpi="mpirun") == ["mpirun", "-n", "6", "app", "-x"]


def test_a_container_of_slurm_is_one_step_on_the_first_node(tmp_path: Path) -> None:
    once = ["srun", "--nodes=1", "--ntasks=1"]
    assert command(tmp_path, "/bundle", container="oci") == [*once, "--container=/bundle", "app", "-x"]
    found = command(tmp_path, "some/image:1", container="pyxis")
    assert found[:4] == [*once, "--container-image=some/image:1"]
    assert found[-2:] == ["app", "-x"]


def test_a_container_of_slurm_is_that_of_the_tasks(tmp_path: Path) -> None:
    found = command(tmp_path, "some/image:1", container="pyxis", mpi="pmix")
    assert found[:4] == ["srun", "--mpi=pmix", "--ntasks=6", "--container-image=some/image:1"]
    assert found.count("srun") == 1


@pytest.mark.parametrize(
    "reason",
    ["QOSMaxWallDurationPerJobLimit", "QOSMaxCpuPerNode", "QOSMaxMemoryPerJob", "AssocMaxCpuPerJobLimit", "QOSMinGRES"],
)
def test_limits_of_a_single_job_do_not_go_away(reason: str) -> None:
    found = blocking_reason(waiting(reason), "")
    assert reason in found
    assert "one job may" in found


@pytest.mark.parametrize("reason", ["QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit", "AssocGrpCpuLimit", "Resources"])
def test_limits_of_all_jobs_together_are_waited_for(reason: str) -> None:
    assert blocking_reason(waiting(reason), "") == ""
