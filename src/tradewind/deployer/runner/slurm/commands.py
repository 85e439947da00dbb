"""Calls Slurm's programs, on this machine or a login host, and turns their refusals into typed errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tradewind.deployer.ssh_connection import CommandResult, SshConnection
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    OfferRefusedError,
    PrerequisiteError,
    UnreachableError,
)

_GLANCE_SECONDS = 2.0
_KEPT = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TMPDIR|SLURM_CONF|SLURM_CLUSTERS|SLURM_JWT|SBATCH_\w+")
_HINT = "apt-get install slurm-client, or set `bin` to the folder of Slurm's programs or `host` to a login host"

_AWAY = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection refused|Zero Bytes were transmitted|"
    r"Connection timed out|No route to host|standby mode|Transport endpoint|Communication connection failure|"
    r"Unexpected message received|Insane message length",
    re.IGNORECASE,
)
_SLEEPS = re.compile(r"temporarily unable to accept job", re.IGNORECASE)
"""The message of sbatch before it sleeps and tries again, for two minutes, where the cluster is full of jobs."""
_FULL = re.compile(
    r"Job violates accounting|SubmitJob|temporarily unable to accept job|MaxJobCount|"
    r"Resource temporarily unavailable|Too many|job limit|JobHoldMaxRequeue",
    re.IGNORECASE,
)
TOO_MUCH = re.compile(r"(?:QOS|Assoc)Max\w+Per(?:Node|Job)(?:Limit)?|QOSMin\w+")
"""Limits of one job, that no end of another job changes; those of a user or a group may be kept later."""
_ALONE = re.compile(r"(?:QOS|Assoc)(?:Max|Grp)(?!\w*(?:Submit|Jobs))\w+")
"""Limits that sbatch names at once only of a job that exceeds them by itself, as where the QOS has `DenyOnLimit`."""
_REFUSALS: tuple[tuple[str, type[DeployError], str], ...] = (
    (r"Invalid account|account.*not permitted", CredentialsError, "set `account` to one of `sacctmgr show assoc`"),
    (r"group not permitted", CredentialsError, "set `partition` to one that lets you in"),
    (
        r"Access/permission denied|Invalid user id|Protocol authentication|munge|Invalid authentication|Unauthorized",
        CredentialsError,
        "check with `scontrol ping` and `munge -n | unmunge` that the cluster knows you",
    ),
    (r"Invalid qos", CredentialsError, "set `qos` to one that the account may use"),
    (
        r"invalid partition|partition (?:not available|name)|partition.*(?:down|inactive|drain)",
        PrerequisiteError,
        "set `partition` to one that is up: `sinfo` lists them",
    ),
    (r"not available in partition", OfferRefusedError, "`sinfo` lists partitions"),
    (
        r"Requested node configuration|Node count specification|More processors requested|Memory specification|"
        r"CPU count per node|CPU count specification|Memory required by task",
        OfferRefusedError,
        "no node of the partition is that large: offer smaller machines or set `partition`",
    ),
    (r"Invalid feature|node features", PrerequisiteError, "set `constraint` to features of `sinfo -o %f`"),
    (
        r"generic resource|Invalid Trackable RESource|gres",
        OfferRefusedError,
        "set `gres` to the name that `sinfo -o %G` has",
    ),
    (
        r"reservation is invalid|reservation.*(?:denied|not)|Invalid node name|mutually exclusive|dependency problem",
        PrerequisiteError,
        "look at the setting `sbatch`",
    ),
    (r"Invalid job array", PrerequisiteError, "set `max_array` to MaxArraySize of `scontrol show config`"),
    (
        r"time limit is invalid",
        DeployError,
        "the partition's limit is shorter: set deploy.longest or `partition`",
    ),
    (r"unrecognized option|invalid option|Invalid.*specification", PrerequisiteError, "look at the setting `sbatch`"),
)


def find_programs() -> None:
    """Check that the programs by which jobs are handed over, followed and ended are on the PATH.

    Raises:
        MissingProgramError: One is not there.
    """
    for name in ("sbatch", "squeue", "scontrol", "scancel"):
        _find(name)


def _find(path: str) -> str:
    found = shutil.which(path)
    if found is None:
        raise MissingProgramError(f"there is no program {path}", hint=_HINT)
    return found


class SlurmCommands:
    """Calls Slurm's programs.

    Args:
        bin_folder: The folder that they are in, or empty to look for them on the PATH.
        link: The login host to call them on, or None for this machine.
    """

    def __init__(self, bin_folder: str, link: SshConnection | None) -> None:
        self._bin = bin_folder
        self._link = link

    @property
    def remote(self) -> bool:
        """True when the programs are called on a login host."""
        return self._link is not None

    def run(self, name: str, *words: str, timeout: float, holding: int | None = None) -> CommandResult:
        """Run a program; its output, whatever its exit code.

        Args:
            name: The program.
            words: The arguments of the program.
            timeout: Seconds that it may take.
            holding: A file descriptor that it keeps open too, so that a lock lives as long as the program.

        Raises:
            MissingProgramError: The program is not there.
            UnreachableError: It does not answer in time, or the login host cannot be reached.
        """
        path = f"{self._bin.rstrip('/')}/{name}" if self._bin else name
        if self._link is not None:
            return self._run_there(self._link, [path, *words], timeout)
        found = _find(path)
        # Not the whole environment: sbatch would hand it, with all that is secret in it, to Slurm.
        environment = {key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)}
        try:
            process = subprocess.Popen(
                [found, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd="/",
                start_new_session=True,  # Ctrl-C is for us: it must not cut a submission in two
                pass_fds=() if holding is None else (holding,),
            )
        except OSError as error:
            raise MissingProgramError(f"{found} cannot be run: {error.strerror}", hint=_HINT) from error
        said = _answer(process, timeout)
        if said is None:
            raise UnreachableError(f"Slurm did not answer within {timeout:g} s ({name})")
        return said

    def _run_there(self, link: SshConnection, argv: Sequence[str], timeout: float) -> CommandResult:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with link.session(argv, **pipes) as process:
            said = _answer(process, timeout)
        if said is None:
            raise UnreachableError(f"Slurm did not answer within {timeout:g} s ({argv[0]} on {link.target.host})")
        answer = link.judge(argv, said, check=False)
        if answer.code == 127:
            raise MissingProgramError(f"there is no {argv[0]} on {link.target.host}", hint=_HINT)
        return answer

    def ask(self, name: str, *words: str, timeout: float) -> str:
        """Run a program; its standard output.

        Args:
            name: The program.
            words: The arguments of the program.
            timeout: Seconds that it may take.

        Raises:
            DeployError: It failed; see `refusal`.
            MissingProgramError: The program is not there.
        """
        answer = self.run(name, *words, timeout=timeout)
        if answer.code:
            raise refusal(name, answer)
        return answer.stdout.decode(errors="replace")

    def close(self) -> None:
        """Close the connection to the login host."""
        if self._link is not None:
            self._link.close()


def _answer(process: subprocess.Popen[bytes], timeout: float) -> CommandResult | None:
    """The output of a program that was started; None where it takes too long, and then it is killed."""
    until = time.monotonic() + timeout
    with process:
        try:
            while True:
                left = until - time.monotonic()
                try:
                    out, err = process.communicate(timeout=max(0.0, min(left, _GLANCE_SECONDS)))
                except subprocess.TimeoutExpired as late:
                    said = late.stderr or b""
                    if _SLEEPS.search(said.decode(errors="replace")):
                        return CommandResult(1, b"", said)
                    if left <= _GLANCE_SECONDS:
                        return None
                else:
                    return CommandResult(process.returncode, out, err)
        finally:
            if process.poll() is None:
                process.kill()


def surely_refused(error: CapacityError) -> bool:
    """False for an error of Slurm after which the job may be there all the same.

    Args:
        error: The error that `refusal` made of the answer to a submission.
    """
    return _SLEEPS.search(error.message) is None


def refusal(name: str, answer: CommandResult) -> DeployError:
    """The typed error for a program's message.

    Args:
        name: The program.
        answer: The output of the program.
    """
    lines = [line.partition("error: ")[2] or line for line in answer.stderr.decode(errors="replace").splitlines()]
    words = "; ".join(dict.fromkeys(line.strip() for line in lines if line.strip())) or f"exit code {answer.code}"
    if _AWAY.search(words):
        return UnreachableError(f"Slurm's controller does not answer: {words}", hint="`scontrol ping` shows its state")
    if TOO_MUCH.search(words) or _ALONE.search(words):
        hint = "offer other sizes, set deploy.longest, or name another qos"
        return OfferRefusedError(f"{name} refused: one job may not have that much: {words}", hint=hint)
    if _FULL.search(words):
        hint = "set `parallel` to what you may have at a time: `sacctmgr show assoc`, `sacctmgr show qos`"
        limit = words.partition("; Batch job submission failed")[0]
        return CapacityError(f"Slurm takes no more jobs now: {limit}", hint=hint)
    if "Could not establish a configuration source" in words:
        hint = "set SLURM_CONF, or `host` to a login host of the cluster"
        return PrerequisiteError(f"{name} finds no slurm.conf", hint=hint)
    for pattern, kind, hint in _REFUSALS:
        if re.search(pattern, words, re.IGNORECASE):
            if kind is DeployError:
                return DeployError(f"{name} refused: {words}", hint=hint, retryable=False)
            return kind(f"{name} refused: {words}", hint=hint)
    return DeployError(f"{name} failed: {words}")


def script_source() -> bytes:
    """The text of the job script, which is the same for all runs."""
    return Path(__file__).with_name("job.sh").read_bytes()
