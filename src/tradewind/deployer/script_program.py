"""Calls a program of the user's own that makes machines, runs jobs, collects results or destroys machines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tradewind.errors import CapacityError, CredentialsError, DeployError, PrerequisiteError

_TEMPORARY, _NO_PERMISSION, _CONFIGURATION = os.EX_TEMPFAIL, os.EX_NOPERM, os.EX_CONFIG
_STOP_SECONDS = 10.0
_LONGEST = 400
"""Characters of what the program complained of, in an error."""


@dataclass(frozen=True, slots=True)
class ScriptAnswer:
    """Result of a call.

    Attributes:
        code: Exit code; negative for a signal.
        output: What it wrote to its standard output.
        complaint: The last line of its standard error, or empty.
        late: True when it was ended, since it took too long or was given up.
    """

    code: int
    output: str
    complaint: str
    late: bool = False


class CallsProgram:
    """Mixin of parts that call a program of the user's, which has to be there before a search begins."""

    program: Path


def check_program(program: Path) -> None:
    """See that the program is there and can be executed.

    Raises:
        PrerequisiteError: It is not.
    """
    if not program.is_file():
        raise PrerequisiteError(f"there is no script {program}", hint="paths start at the YAML's folder")
    if not os.access(program, os.X_OK):
        raise PrerequisiteError(f"the script {program} is not executable", hint=f"chmod +x {program}")


def call_script(
    program: Path,
    verb: str,
    file: Path,
    environment: Mapping[str, str],
    seconds: float,
    *,
    keep: Sequence[int] = (),
    started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
) -> ScriptAnswer:
    """Call the program for one step, and wait for it. It is ended with all that it started where it takes too long.

    Args:
        program: The program.
        verb: ``make``, ``collect`` or ``destroy``: its first argument.
        file: The JSON file that says what about: its second argument.
        environment: Variables beside those of this process.
        seconds: Time that it may take.
        keep: Descriptors that it inherits, such as a lock that is held as long as it lives.
        started: Gets the process as soon as it is there.

    Raises:
        PrerequisiteError: It is not there or cannot be executed.
    """
    check_program(program)
    words = [str(program), verb, str(file)]
    log = file.with_name(f"{file.stem}.{verb}.log")
    with (
        log.open("wb") as errors,
        file.with_name(f"{file.stem}.{verb}.out").open("w+b") as output,
    ):
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C at the terminal is for the search, which then asks for what is needed
                pass_fds=tuple(keep),
            )
        except OSError as error:
            raise PrerequisiteError(f"the script {program} cannot be started: {error.strerror}") from error
        late = False
        try:
            started(process)
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            end_group(process)
        said = _text(output)
    return ScriptAnswer(process.returncode, said, _last_line(log), late or process.returncode == -signal.SIGTERM)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a program with all that it started, by SIGTERM and then by SIGKILL; one that has ended is no error."""
    if process.poll() is None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
                return


def script_error(what: str, answer: ScriptAnswer) -> DeployError:
    """The typed error of a step that failed, by the exit code (those of ``sysexits.h``).

    Args:
        what: The step, as the beginning of a sentence.
        answer: What the program said.
    """
    why = answer.complaint or ("it took too long" if answer.late else f"exit code {answer.code}")
    message = f"{what}: {why}"
    if answer.code == _TEMPORARY:
        return CapacityError(message)
    if answer.code == _NO_PERMISSION:
        return CredentialsError(message)
    if answer.code == _CONFIGURATION:
        return PrerequisiteError(message)
    return DeployError(message)


def answered_document(answer: ScriptAnswer, what: str) -> dict[str, Any]:
    """The JSON that a step has printed; empty where it printed nothing.

    Raises:
        PrerequisiteError: It is no JSON object.
    """
    if not answer.output.strip():
        return {}
    try:
        found = json.loads(answer.output)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise PrerequisiteError(
            f"{what} printed no JSON object: {' '.join(answer.output.split())[:80]!r}",
            hint="messages go to the standard error",
        )
    return found


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(1 << 20).decode(errors="replace")


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_bytes()[-4096:].decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else ""
