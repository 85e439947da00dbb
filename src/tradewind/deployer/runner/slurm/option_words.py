"""Checks options that a user adds to the commands of the Slurm runner: what would break it is refused.

The commands are `sbatch`, `srun` (for OCI bundles and Pyxis), and the programs that run a job's image. An option that
is merely unusual passes, and so does one that is not known here: its program knows more of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_LEAVE = "leave it out"
_OURS = f"is set by Tradewind itself: {_LEAVE}"
_NOTHING = f"starts nothing: {_LEAVE}"
_LISTING = ("help", "list")
_TOGETHER = re.compile(r"(--[\w-]+)\s+(.*)", re.DOTALL)
"""A long option with its value behind a blank, as a shell takes it for two words."""
_OUR_VARIABLE = re.compile(r"(?:^|,)(TRADEWIND_\w+)=")


@dataclass(frozen=True)
class OptionRules:
    """The options of a program that break the runner.

    Attributes:
        program: The program, for messages.
        takes_place: What a word that is no option would take the place of.
        refused: Long options, and why they are refused.
        short: The long options that letters stand for, as far as they are refused.
        letters: Letters of options without a value, behind which others may follow in the same word.
        flags: Long options without a value, or with one behind ``=`` only.
        shortened: True when a part of a long option's name will do (getopt).
        listing: Options that print what there is instead of starting anything, where their value is ``help`` or
            ``list``.
        harmless: Values with which a refused option may be written all the same.
    """

    program: str
    takes_place: str
    refused: Mapping[str, str]
    short: Mapping[str, str]
    letters: str
    flags: frozenset[str]
    shortened: bool = False
    listing: frozenset[str] = frozenset()
    harmless: Mapping[str, str] = field(default_factory=dict)

    def check(self, words: Sequence[str]) -> None:
        """Refuse words that make the program do something else than to start this job's command once.

        Raises:
            ValueError: There is one; with the reason.
        """
        option, value_may_follow = "", False
        for word in words:
            if not word.startswith("-") or word == "-":
                if not value_may_follow:
                    reason = "separates several jobs" if word == ":" else f"would take the place of {self.takes_place}"
                    raise ValueError(f"{word!r} is no option of {self.program} and {reason}; write one option a word")
                self._check_value(f"{option} {word}", option, word)
                value_may_follow = False
                continue
            if word == "--":
                raise ValueError(f"'--' ends the options of {self.program}, and others follow: leave it out")
            option, value, value_may_follow = self._read(word)
            self._check_value(word, option, value)

    def _read(self, word: str) -> tuple[str, str, bool]:
        """The last option in a word and its value, and True if the value may be in the next word."""
        if word.startswith("--"):
            if written := _TOGETHER.fullmatch(word):
                reason = f"is one word for {self.program}, which knows no such option"
                raise ValueError(f"{word!r} {reason}; write {written[1]}={written[2]}")
            name, equals, value = word[2:].partition("=")
            self._check_name(word, name, value, long=True)
            return f"--{name}", value, name not in self.flags and not equals
        used = word[1:]
        flags = len(used) - len(used.lstrip(self.letters))
        for letter in used[: flags + 1]:
            self._check_name(word, self.short.get(letter, ""), "", long=False)
        option, value = used[flags : flags + 1], used[flags + 1 :].removeprefix("=")
        return f"-{option or used[-1]}", value, bool(option) and not value

    def _check_name(self, word: str, name: str, value: str, *, long: bool) -> None:
        found = self._refused(name, long)
        if found and not (value and self.harmless.get(found) == value):
            raise ValueError(f"{self.program}'s {word} {self.refused[found]}")

    def _refused(self, name: str, long: bool) -> str:
        if name in self.refused or not (name and long and self.shortened):
            return name if name in self.refused else ""
        # getopt takes a part of a name for the whole, as long as it is one option's only.
        return next((full for full in self.refused if full.startswith(name) and name not in self.flags), "")

    def _check_value(self, shown: str, option: str, value: str) -> None:
        name = option.lstrip("-")
        if name in self.listing and value.lower() in _LISTING:
            raise ValueError(f"{self.program}'s {shown} prints what there is, and {_NOTHING}")
        if option in ("--env", "-e") and (variable := _OUR_VARIABLE.search(value)):
            raise ValueError(f"{self.program}'s {shown} sets {variable[1]}, which {_OURS}")
        if option in ("--label", "-l") and value.partition("=")[0] == "tradewind":
            raise ValueError(
                f"{self.program}'s {shown} sets the label by which a container is found again, which {_OURS}"
            )


_BINDINGS = frozenset({"cpu-bind", "gpu-bind", "gres", "hint", "mem-bind", "mpi"})
"""Options of Slurm's programs whose values ``help`` and ``list`` make them print something and end."""

_COMMON = {
    **dict.fromkeys(("help", "usage", "version"), _NOTHING),
    "test-only": _NOTHING,
    "clusters": f"may send the job to a cluster that is not asked for it later: {_LEAVE}",
}

SBATCH = OptionRules(
    "sbatch",
    "the job script",
    refused={
        **dict.fromkeys(
            ("array", "chdir", "comment", "error", "export", "input", "job-name", "no-requeue", "output", "parsable"),
            _OURS,
        ),
        "requeue": f"would run the job again behind Tradewind's back: {_LEAVE}",
        "wrap": f"takes the place of the job script: {_LEAVE}",
        "export-file": "takes the place of the job's environment: use job.env",
        **_COMMON,
        **dict.fromkeys(("help", "usage", "version", "test-only"), f"submits nothing: {_LEAVE}"),
        **dict.fromkeys(
            ("quiet", "verbose"), f"changes what sbatch prints, where the number of the job is read: {_LEAVE}"
        ),
        "wait": f"lets sbatch wait for the end of the job: {_LEAVE}",
    },
    short={
        "D": "chdir", "J": "job-name", "M": "clusters", "Q": "quiet", "V": "version", "W": "wait", "a": "array",
        "e": "error", "h": "help", "i": "input", "o": "output", "v": "verbose",
    },
    letters="HIOQVWhksv",
    flags=frozenset(
        {"contiguous", "exclusive", "get-user-env", "hold", "ignore-pbs", "immediate", "kill-on-invalid-dep", "no-kill"}
        | {"overcommit", "oversubscribe", "reboot", "share", "spread-job", "use-min-nodes", "wait-all-nodes"}
    ),
    shortened=True,
    listing=_BINDINGS,
)  # fmt: skip

_HOW_OFTEN = "says how often the command starts: use mpi and tasks_per_node, and offers with several nodes"

SRUN = OptionRules(
    "srun",
    "the command",
    refused={
        **_COMMON,
        **dict.fromkeys(("chdir", "container-image", "container-workdir", "error", "input", "jobid", "output"), _OURS),
        **dict.fromkeys(("ntasks", "ntasks-per-node", "nodes"), _HOW_OFTEN),
        "export": "takes the job's variables away: use job.env, and inherit: false",
        "mpi": "is set by Tradewind itself: use mpi",
        "label": f"puts a number before each line that the job prints, where its metrics are read: {_LEAVE}",
        "pty": f"makes one stream of the job's output and its errors: {_LEAVE}",
        "multi-prog": f"takes the command for a file with several: {_LEAVE}",
        "no-allocate": f"starts the command outside of the job: {_LEAVE}",
        "dependency": "lets the job's step wait within its job, which is paid: use sbatch",
    },
    short={
        "D": "chdir", "M": "clusters", "N": "nodes", "V": "version", "Z": "no-allocate", "d": "dependency",
        "e": "error", "h": "help", "i": "input", "l": "label", "n": "ntasks", "o": "output",
    },
    letters="EHIOQRVXZhklsuv",
    flags=frozenset(
        {"contiguous", "disable-status", "exact", "exclusive", "immediate", "interactive", "kill-on-bad-exit"}
        | {"no-kill", "overcommit", "overlap", "oversubscribe", "preserve-env", "quiet", "quit-on-interrupt", "reboot"}
        | {"share", "spread-job", "unbuffered", "use-min-nodes", "verbose", "whole", "x11", "container-remap-root"}
        | {"no-container-entrypoint", "no-container-mount-home", "no-container-remap-root", "container-mount-home"}
        | {"container-entrypoint", "container-readonly", "container-writable"}
    ),
    shortened=True,
    listing=_BINDINGS,
)  # fmt: skip

_DOCKER_FLAGS = frozenset(
    {"detach", "disable-content-trust", "env-host", "help", "http-proxy", "init", "interactive", "no-healthcheck"}
    | {"no-hosts", "oom-kill-disable", "passwd", "privileged", "publish-all", "quiet", "read-only", "read-only-tmpfs"}
    | {"replace", "rm", "rmi", "rootfs", "sig-proxy", "tls-verify", "tty", "unsetenv-all", "use-api-socket"}
)

_IMAGES = {
    **dict.fromkeys(("memory", "network", "net", "rm", "workdir"), _OURS),
    "name": f"gives the containers of all runs one name, which only one can have: {_LEAVE}",
    "cidfile": f"names one file for all runs, which only one can make: {_LEAVE}",
    "detach": f"lets the command return before the job has ended: {_LEAVE}",
    "attach": f"changes which of the job's output is seen: {_LEAVE}",
    "interactive": f"takes over the input of the job script: {_LEAVE}",
    "tty": f"makes one stream of the job's output and its errors: {_LEAVE}",
    "restart": "would run the job again behind Tradewind's back: use deploy.retries",
    "sig-proxy": f"keeps the job from being ended: {_LEAVE}",
    "help": _NOTHING,
}
_LETTERS = {"a": "attach", "d": "detach", "i": "interactive", "m": "memory", "t": "tty", "w": "workdir"}
_OFF = {**dict.fromkeys(("detach", "help", "interactive", "tty"), "false"), "restart": "no"} | {
    "rm": "true", "sig-proxy": "true"
}  # fmt: skip

_APPTAINER = {
    **dict.fromkeys(("cwd", "pwd"), _OURS),
    "help": _NOTHING,
    "cleanenv": "takes the job's own variables away too: use inherit: false",
    **dict.fromkeys(
        ("compat", "containall"), "takes the job's own variables away too: use --contain here, and inherit: false"
    ),
    "docker-login": f"asks for a password, and nobody answers: {_LEAVE}",
    "passphrase": "asks for a passphrase, and nobody answers: use --pem-path",
}
_APPTAINER_FLAGS = frozenset(
    {"allow-setuid", "contain", "disable-cache", "fakeroot", "ipc", "keep-privs", "net", "no-eval", "no-home"}
    | {"no-https", "no-init", "no-pid", "no-privs", "no-tmp-sandbox", "no-umask", "nv", "nvccli", "oci", "no-oci"}
    | {"pid", "rocm", "sharens", "underlay", "unsquash", "userns", "uts", "vm", "writable", "writable-tmpfs"}
)


def _engine(program: str, more: Mapping[str, str]) -> OptionRules:
    return OptionRules(
        program,
        "the image",
        refused={**_IMAGES, **more},
        short=_LETTERS,
        letters="Pdiqt",
        flags=_DOCKER_FLAGS,
        harmless=_OFF,
    )


CONTAINER_RULES: Mapping[str, OptionRules] = {
    "docker": _engine("docker", {"cpus": _OURS}),
    "podman": _engine("podman", {}),
    **{
        program: OptionRules(
            program,
            "the image",
            refused=_APPTAINER,
            short={"C": "containall", "e": "cleanenv", "h": "help"},
            letters="Ccefhipuw",
            flags=_APPTAINER_FLAGS,
        )
        for program in ("apptainer", "singularity")
    },
    "oci": SRUN,
    "pyxis": SRUN,
}
"""The rules for the setting ``container_options``, by the setting ``container``."""
