"""Processor architectures of machines, images and programs, and runs that fail because two of them differ."""

from __future__ import annotations

import errno
import os
import platform
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from subprocess import DEVNULL
from typing import Literal

from tradewind.errors import ArchitectureError
from tradewind.problem import RunRequest

CANNOT_EXECUTE, NOT_FOUND = 126, 127
"""The exit codes of shells for a program that cannot be executed, and for one that is not there."""

_NAMES = {
    "amd64": "x86_64", "x64": "x86_64", "x86-64": "x86_64", "aarch64": "arm64", "arm64v8": "arm64",
    "386": "x86", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86",
    "armhf": "arm", "armv6l": "arm", "armv7l": "arm", "armv8l": "arm", "powerpc64le": "ppc64le",
}  # fmt: skip
_ELF_MACHINES = {
    3: "x86", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "arm64", 243: "riscv64",
    258: "loongarch64",
}  # fmt: skip
_LITTLE_ENDIAN_POWER = "ppc64le"
_ELF = b"\x7fELF"
_RUNS_TOO = {("x86", "x86_64"), ("arm", "arm64")}
"""Programs of an older architecture, and the machines that run them as well."""

_REFUSAL = re.compile(r"exec format error|cannot execute binary file", re.IGNORECASE)
_BY_ENGINE = re.compile(
    r"^exec |exec user process|execve\(\)|exec failed|runc|crun|oci runtime|unable to (launch|start)", re.IGNORECASE
)
"""What container engines, Slurm and MPI write, who end with exit codes of their own."""

_READ_AS_SCRIPT = "\x7fELF"
"""The words that a shell, or what starts a program as one does (env, setsid), finds no command when it reads one."""
_SYNTAX_ERROR = 2
_PROBE_SECONDS = 10.0

_TAIL_BYTES = 8192
_TAIL_LINES = 20


def architecture_of(name: str) -> str:
    """An architecture by the name that offers have for it (``x86_64``, ``arm64``), whatever it is called elsewhere."""
    plain = name.strip().lower()
    return _NAMES.get(plain, plain)


def architecture_here() -> str:
    """The architecture of this machine."""
    return architecture_of(platform.machine())


def runs_on(program: str, machine: str) -> bool:
    """False only where a program of one architecture certainly does not run on a machine of another.

    Args:
        program: The architecture of the program, or empty where it is not known.
        machine: That of the machine, or empty.
    """
    return not program or not machine or program == machine or (program, machine) in _RUNS_TOO


@cache
def may_be_emulated(architecture: str) -> bool:
    """False only where this machine's kernel certainly runs no programs of an architecture, nor has them emulated.

    The kernel is given the head of such a program: without an emulator for it (binfmt_misc) it refuses that at once.

    Args:
        architecture: An architecture as `architecture_of` has it, which is not this machine's.
    """
    named = "ppc64" if architecture == _LITTLE_ENDIAN_POWER else architecture
    number = next((number for number, name in _ELF_MACHINES.items() if name == named), None)
    if number is None:
        return True
    wide, little = architecture not in ("x86", "arm", "ppc", "mips"), architecture not in ("s390x", "ppc64", "ppc")
    order: Literal["little", "big"] = "little" if little else "big"
    kind = bytes([2 if wide else 1, 1 if little else 2, 1])
    head = (_ELF + kind).ljust(16, b"\0") + b"".join(each.to_bytes(2, order) for each in (2, number))
    try:
        with tempfile.TemporaryDirectory(prefix="tradewind-") as folder:
            probe = Path(folder) / "probe"
            probe.write_bytes(head.ljust(128, b"\0"))
            probe.chmod(0o700)
            subprocess.run([probe], stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, timeout=_PROBE_SECONDS, check=False)
    except OSError as error:
        return error.errno != errno.ENOEXEC
    except subprocess.SubprocessError:
        pass
    return True


def program_architecture(path: Path) -> str | None:
    """The architecture that a program is compiled for; empty for a script or another file, None without a file."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except (OSError, ValueError):
        return None
    if len(head) < 20 or not head.startswith(_ELF):
        return ""
    little = head[5] == 1
    number = int.from_bytes(head[18:20], "little" if little else "big")
    found = _ELF_MACHINES.get(number, f"ELF machine {number}")
    return _LITTLE_ENDIAN_POWER if found == "ppc64" and little else found


def wrong_architecture(what: str, machine: str, program: str = "", place: str = "") -> str:
    """The reason of a run whose program, or image, is for another architecture than its machine.

    Args:
        what: The program or the image, as a subject of the sentence.
        machine: The architecture of the machine, or empty where it is not known.
        program: That of the program, or empty.
        place: The instance type or the host, or empty.
    """
    about = f" ({program})" if program else ""
    known = ", ".join(filter(None, (machine if machine != program else "", place)))
    return f"{what} is for another processor architecture{about} than the machine's{f' ({known})' if known else ''}"


def architecture_error(reason: str) -> ArchitectureError:
    """The error for a run that cannot be started for its architecture."""
    return ArchitectureError(reason, hint="build it for the machine's, or choose offers by arch")


def foreign_program(program: str, workdir: Path, search_path: str, machine: str) -> str:
    """The architecture of a program if it does not run on a machine; empty where it does, or is a script.

    Args:
        program: The first word of the command.
        workdir: The working folder.
        search_path: The value of ``PATH``.
        machine: The architecture of the machine.
    """
    folders = [""] if "/" in program else search_path.split(os.pathsep)
    found = (program_architecture(workdir / folder / program) for folder in folders)
    first = next((each for each in found if each is not None), "")
    return "" if runs_on(first, machine) else first


def failed_for_architecture(code: int | None, request: RunRequest) -> str:
    """The reason of a failed run whose program, or one that it called, is for another architecture; else empty.

    Args:
        code: The exit code of the run.
        request: The run. What it wrote is read, and a program in its working folder is looked at.
    """
    if code is None or code <= 0:
        return ""
    lines, machine = _last_lines(request.folder / "stderr"), architecture_of(request.offer.arch)
    own = sent_program(request.argv[0], request.workdir)
    refused = next((line for line in lines if _REFUSAL.search(line)), "")
    read = next((line for line in lines if _READ_AS_SCRIPT in line), "")
    named = _program_in(refused or read)
    program = sent_program(named, request.workdir) if named else own
    foreign = bool(program) and not runs_on(program or "", machine)
    by_engine = _BY_ENGINE.search(refused) is not None
    if refused:
        # Without a #! line a script is refused likewise; and a program may go on where one that it called is refused.
        found = program != "" and (by_engine or foreign or code in (CANNOT_EXECUTE, NOT_FOUND))
    elif read:
        found = code in (_SYNTAX_ERROR, CANNOT_EXECUTE, NOT_FOUND)
    else:
        found = foreign and code == CANNOT_EXECUTE  # some versions of bash lose the reason of a failed exec
    if not found:
        return ""
    image = by_engine and request.image and program is None
    what = f"the image {request.image}" if image else _shown(named, request.workdir) or request.argv[0]
    place = request.offer.instance_type if request.offer.provider != "local" else ""
    reason = wrong_architecture(what, machine, program or "", place)
    return f"{reason}: Exec format error" if refused else reason


def _shown(program: str, workdir: Path) -> str:
    """The name of a program for messages: below the working folder as it is seen from there."""
    path = Path(program)
    return f"./{path.relative_to(workdir)}" if path.is_absolute() and path.is_relative_to(workdir) else program


def sent_program(name: str, workdir: Path) -> str | None:
    """As `program_architecture`, of a program in the working folder: others are those of the run's machine."""
    path = Path(os.path.normpath(workdir / name))
    return program_architecture(path) if "/" in name and path.is_relative_to(os.path.normpath(workdir)) else None


def _last_lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.split("\n") if line.strip()][-_TAIL_LINES:]


def _program_in(line: str) -> str:
    """The program that a message about a failed start names, or empty."""
    refusal = _REFUSAL.search(line)
    texts = (line[: refusal.start()], line[refusal.end() :]) if refusal else (line.partition(_READ_AS_SCRIPT)[0], "")
    before, behind = ([word for word in re.split(r"[\s:'\"`‘’]+", text) if "/" in word] for text in texts)
    return before[-1] if before else behind[0] if behind else ""
