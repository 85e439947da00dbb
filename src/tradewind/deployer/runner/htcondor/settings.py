"""Settings of the HTCondor runner."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from tradewind import plugins
from tradewind.errors import InputError
from tradewind.utils.units import parse_memory

_OURS = frozenset(
    {
        "allowed_execute_duration",
        "arguments",
        "batch_name",
        "docker_image",
        "error",
        "executable",
        "initialdir",
        "input",
        "job_max_vacate_time",
        "log",
        "output",
        "periodic_hold",
        "periodic_hold_reason",
        "periodic_remove",
        "queue",
        "request_cpus",
        "request_gpus",
        "request_memory",
        "requirements",
        "should_transfer_files",
        "transfer_executable",
        "transfer_input_files",
        "transfer_output_files",
        "universe",
        "when_to_transfer_output",
    }
)
"""Commands that Tradewind sets itself."""

_ALIASES = (
    "args",
    "cmd",
    "err",
    "in",
    "iwd",
    "jobiwd",
    "out",
    "remoteiwd",
    "stderr",
    "stdin",
    "stdout",
    "ulog",
    "userlog",
)
"""What condor_submit and the attributes of a job call some of them besides."""

_REFUSED = {
    **dict.fromkeys((*(name.replace("_", "") for name in _OURS), *_ALIASES), "is set by Tradewind itself"),
    **dict.fromkeys(
        ("maxretries", "onexitremove", "periodicrelease", "retryuntil", "successexitcode"),
        "may run the job again behind Tradewind's back: leave it out",
    ),
    **dict.fromkeys(("maxidle", "maxmaterialize"), "changes how many jobs there are: leave it out"),
    **dict.fromkeys(("leaveinqueue", "onexithold"), "would keep ended jobs in the queue: leave it out"),
    "hold": "would keep the job from starting: leave it out",
    "noopjob": "would run nothing: leave it out",
}
"""Commands that break the runner, in lower case without underscores, and why."""


class HtCondorSettings(plugins.Settings):
    """Settings of the HTCondor runner."""

    bin: str = Field("", description="Folder with condor_submit, condor_q and the others; without it they are on PATH")
    files: Literal["transfer", "shared"] = Field(
        "transfer",
        description="HTCondor transfers the working folder and the results, or all machines see the folders of this "
        "one under the same paths",
    )
    requirements: str = Field(
        "", pattern=r"^[^\r\n]*$", description="What the machines must have, as in a submit description"
    )
    submit: dict[str, str] = Field(
        default_factory=dict,
        description="Further commands of the submit description, such as accounting_group; a name with + sets an "
        "attribute of the job",
    )
    memory_hold: bool = Field(
        True, description="Also hold jobs by HTCondor's own measure of memory, where machines do not enforce it"
    )
    grace: float = Field(5.0, ge=0, le=600, description="Seconds between SIGTERM and SIGKILL at the wall time")
    interval: float = Field(
        3.0, gt=0, le=600, description="Seconds between two calls of condor_q; event logs are read in between"
    )
    timeout: float = Field(
        5.0, gt=0, le=60, description="Seconds that condor_q and condor_history may take; submitting may take 12 times"
    )
    full: float = Field(
        3600.0,
        ge=0,
        description="Seconds after which runs are given up that HTCondor does not take (`MAX_JOBS_PER_OWNER`, "
        "`MAX_JOBS_SUBMITTED`) while it has none of ours in its queue; as long as it has some, they wait",
    )
    sent_bytes: str = Field("1GiB", description="The most that a working folder, or the results of a run, may have")

    @field_validator("sent_bytes")
    @classmethod
    def _an_amount(cls, given: str) -> str:
        try:
            parse_memory(given)
        except InputError as error:
            raise ValueError(str(error)) from None
        return given

    @field_validator("submit")
    @classmethod
    def _single_commands(cls, given: dict[str, str]) -> dict[str, str]:
        for name, value in given.items():
            plain = name.removeprefix("+").lower()
            if not plain.replace("_", "").replace(".", "").isalnum() or not plain[0].isalpha():
                raise ValueError(f"{name!r} is not the name of a submit command")
            plain = plain.removeprefix("my.")
            if reason := _REFUSED.get(plain.replace("_", "")):
                raise ValueError(f"{name} {reason}")
            if plain.startswith("tradewind"):
                raise ValueError(f"{name} is set by Tradewind itself")
            if "\n" in value or "\r" in value:
                raise ValueError(f"the value of {name} has more than one line")
        return given
